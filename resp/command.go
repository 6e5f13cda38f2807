package resp

import (
	"fmt"
	"strconv"
	"strings"
)

// Keys returns the keys in args; args[0] is the name of the command.
func (cmd *Command) Keys(args [][]byte) (keys [][]byte) {
	if cmd.FirstKey == 0 {
		return nil
	}
	if cmd.counted {
		return countedKeys(args)
	}
	last := cmd.LastKey
	if last < 0 {
		last += len(args)
	}
	for i := cmd.FirstKey; i <= last && i < len(args); i += max(1, cmd.Step) {
		keys = append(keys, args[i])
	}
	return keys
}

// countedKeys returns the keys of EVAL and EVALSHA, which an argument counts.
func countedKeys(args [][]byte) [][]byte {
	if len(args) < 4 {
		return nil
	}
	n, err := strconv.Atoi(string(args[2]))
	if err != nil || n < 1 || n > len(args)-3 {
		return nil
	}
	return args[3 : 3+n]
}

// DataCommands describe the commands on keys and the keyspace.
func DataCommands() []Command {
	var out []Command
	for _, line := range strings.Split(strings.TrimSpace(dataCommands), "\n") {
		var cmd Command
		head, summary, _ := strings.Cut(line, " | ")
		var flags string
		if _, err := fmt.Sscan(head, &cmd.Name, &cmd.Arity, &cmd.FirstKey, &cmd.LastKey, &cmd.Step, &cmd.Group, &cmd.Since, &flags); err != nil {
			panic(fmt.Sprintf("resp: table line %q: %v", line, err))
		}
		cmd.Flags, cmd.Summary = strings.Split(flags, ","), summary
		cmd.immediate = cmd.Name == "watch"
		cmd.counted = cmd.Name == "eval" || cmd.Name == "evalsha"
		out = append(out, cmd)
	}
	return out
}

// name arity first last step group since flags | summary
const dataCommands = `
get 2 1 1 1 string 1.0.0 readonly,fast | Returns the value of a key.
set -3 1 1 1 string 1.0.0 write,denyoom | Sets a key, on conditions and for a time if asked.
setex 4 1 1 1 string 2.0.0 write,denyoom | Sets a key for seconds.
psetex 4 1 1 1 string 2.6.0 write,denyoom | Sets a key for milliseconds.
setnx 3 1 1 1 string 1.0.0 write,denyoom,fast | Sets a key that does not exist.
getset 3 1 1 1 string 1.0.0 write,denyoom,fast | Sets a key and returns what was there.
getdel 2 1 1 1 string 6.2.0 write,fast | Removes a key and returns what was there.
getex -2 1 1 1 string 6.2.0 write,fast | Returns a value and changes how long it lives.
mget -2 1 -1 1 string 1.0.0 readonly,fast | Returns the values of keys.
mset -3 1 -1 2 string 1.0.1 write,denyoom | Sets keys.
msetnx -3 1 -1 2 string 1.0.1 write,denyoom | Sets keys if none of them exists.
del -2 1 -1 1 generic 1.0.0 write | Removes keys.
unlink -2 1 -1 1 generic 4.0.0 write,fast | Removes keys.
exists -2 1 -1 1 generic 1.0.0 readonly,fast | Counts the keys that exist.
type 2 1 1 1 generic 1.0.0 readonly,fast | Returns the type of a key.
expire -3 1 1 1 generic 1.0.0 write,fast | Sets the TTL of a key in seconds.
pexpire -3 1 1 1 generic 2.6.0 write,fast | Sets the TTL of a key in milliseconds.
expireat -3 1 1 1 generic 1.2.0 write,fast | Sets when a key expires, in seconds since 1970.
pexpireat -3 1 1 1 generic 2.6.0 write,fast | Sets when a key expires, in milliseconds since 1970.
persist 2 1 1 1 generic 2.2.0 write,fast | Lets a key live for ever.
ttl 2 1 1 1 generic 1.0.0 readonly,fast | Returns the remaining TTL of a key in seconds.
pttl 2 1 1 1 generic 2.6.0 readonly,fast | Returns the remaining TTL of a key in milliseconds.
expiretime 2 1 1 1 generic 7.0.0 readonly,fast | Returns when a key expires, in seconds since 1970.
pexpiretime 2 1 1 1 generic 7.0.0 readonly,fast | Returns when a key expires, in milliseconds since 1970.
touch -2 1 -1 1 generic 3.2.1 readonly,fast | Counts the keys that exist.
strlen 2 1 1 1 string 2.2.0 readonly,fast | Returns the length of a value.
append 3 1 1 1 string 2.0.0 write,denyoom,fast | Adds to the end of a value.
setrange 4 1 1 1 string 2.2.0 write,denyoom | Overwrites part of a value.
getrange 4 1 1 1 string 2.4.0 readonly | Returns part of a value.
substr 4 1 1 1 string 1.0.0 readonly | Returns part of a value.
incr 2 1 1 1 string 1.0.0 write,denyoom,fast | Adds one to a number.
decr 2 1 1 1 string 1.0.0 write,denyoom,fast | Subtracts one from a number.
incrby 3 1 1 1 string 1.0.0 write,denyoom,fast | Adds to a number.
decrby 3 1 1 1 string 1.0.0 write,denyoom,fast | Subtracts from a number.
incrbyfloat 3 1 1 1 string 2.6.0 write,denyoom,fast | Adds to a number with a fraction.
scan -2 0 0 0 generic 2.8.0 readonly | Walks the keys, some at a time.
keys 2 0 0 0 generic 1.0.0 readonly | Returns the keys that fit a pattern.
dbsize 1 0 0 0 server 1.0.0 readonly,fast | Counts the keys.
randomkey 1 0 0 0 generic 1.0.0 readonly | Returns some key.
flushdb -1 0 0 0 server 1.0.0 write | FLUSHDB [ASYNC|SYNC]: removes all keys, in batches.
flushall -1 0 0 0 server 1.0.0 write | FLUSHALL [ASYNC|SYNC]: removes all keys, in batches.
info -1 0 0 0 server 1.0.0 loading,stale | Describes the server.
config -2 0 0 0 server 2.0.0 admin,noscript,loading,stale | Reads settings.
time 1 0 0 0 server 2.6.0 loading,stale,fast | Returns the server's wall clock.
eval -3 3 3 1 scripting 2.6.0 write,noscript,skip_monitor,may_replicate,movablekeys | Runs one of the scripts that are known.
evalsha -3 3 3 1 scripting 2.6.0 write,noscript,skip_monitor,may_replicate,movablekeys | Runs one of the scripts that are known, by the SHA-1 of its text.
script -2 0 0 0 scripting 2.6.0 noscript | SCRIPT LOAD, EXISTS, FLUSH: says which scripts are known.
watch -2 1 -1 1 transactions 2.2.0 noscript,loading,stale,fast,allow_busy | Makes the next EXEC depend on keys being as they are.
unwatch 1 0 0 0 transactions 2.2.0 noscript,loading,stale,fast,allow_busy | Forgets what was watched.
`

// describe answers COMMAND.
func describe(c *Conn, args [][]byte, w *Writer) {
	sub := "all"
	if len(args) > 1 {
		sub = strings.ToLower(string(args[1]))
	}
	names := args[min(2, len(args)):]
	if sub == "count" && len(names) > 0 || sub == "getkeys" && len(names) < 2 {
		w.Error(wrongArity("command|" + sub))
		return
	}
	switch sub {
	case "all":
		w.Array(len(c.s.names))
		for _, n := range c.s.names {
			c.s.table[n].info(w)
		}
	case "count":
		w.Int(int64(len(c.s.names)))
	case "list":
		w.Array(len(c.s.names))
		for _, n := range c.s.names {
			w.BulkString(n)
		}
	case "info":
		all := c.s.pick(names)
		w.Array(len(all))
		for _, cmd := range all {
			cmd.info(w)
		}
	case "docs":
		var known []*Command
		for _, cmd := range c.s.pick(names) {
			if cmd != nil {
				known = append(known, cmd)
			}
		}
		w.Map(len(known))
		for _, cmd := range known {
			cmd.docs(w)
		}
	case "getkeys":
		getKeys(c, names, w)
	default:
		w.Error(fmt.Sprintf("ERR unknown subcommand '%.128s'. Try COMMAND HELP.", args[1]))
	}
}

// pick returns the commands with these names, nil for an unknown one; without names it returns all
// commands.
func (s *Server) pick(names [][]byte) (out []*Command) {
	for _, n := range names {
		cmd := s.lookup(n)
		if sub, ok := subcommands[strings.ToLower(string(n))]; ok {
			cmd = &sub
		}
		out = append(out, cmd)
	}
	if len(names) == 0 {
		for _, n := range s.names {
			out = append(out, s.table[n])
		}
	}
	return out
}

func (cmd *Command) info(w *Writer) {
	if cmd == nil {
		w.Null()
		return
	}
	w.Array(10)
	w.BulkString(cmd.Name)
	w.Int(int64(cmd.Arity))
	w.Set(len(cmd.Flags))
	for _, f := range cmd.Flags {
		w.SimpleString(f)
	}
	w.Int(int64(cmd.FirstKey))
	w.Int(int64(cmd.LastKey))
	w.Int(int64(cmd.Step))
	for range 4 { // ACL categories, tips, key specifications and subcommands stay empty
		w.Array(0)
	}
}

func (cmd *Command) docs(w *Writer) {
	w.BulkString(cmd.Name)
	w.Map(3)
	for _, kv := range [][2]string{{"summary", cmd.Summary}, {"since", cmd.Since}, {"group", cmd.Group}} {
		w.BulkString(kv[0])
		w.BulkString(kv[1])
	}
}

func getKeys(c *Conn, args [][]byte, w *Writer) {
	cmd := c.s.lookup(args[0])
	switch {
	case cmd == nil:
		w.Error("ERR Invalid command specified")
	case cmd.Arity > 0 && len(args) != cmd.Arity || len(args) < -cmd.Arity:
		w.Error("ERR Invalid number of arguments specified for command")
	case cmd.FirstKey == 0:
		w.Error("ERR The command has no key arguments")
	default:
		keys := cmd.Keys(args)
		w.Array(len(keys))
		for _, k := range keys {
			w.Bulk(k)
		}
	}
}

// lookup finds a command by its name in any case, without allocating.
func (s *Server) lookup(name []byte) *Command {
	var low [32]byte
	if len(name) > len(low) {
		return nil
	}
	for i, b := range name {
		if b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		low[i] = b
	}
	return s.table[string(low[:len(name)])]
}

func wrongArity(name string) string {
	return "ERR wrong number of arguments for '" + name + "' command"
}
