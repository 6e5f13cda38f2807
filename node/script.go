package node

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"

	"github.com/freshet-cache/freshet/resp"
)

// script is what a Lua script of a client does, done by commands we have. Its
// arguments are one key and then at least values others.
type script struct {
	values int
	run    func(x kv, key []byte, arg [][]byte, w *resp.Writer)
}

// scripts are those that rueidislock and rueidisaside send, by the SHA-1 of their
// text. There is no Lua here: others are refused, and say so.
var scripts = map[string]script{
	"9eb62214c9af87ae5f9a9f12bb4520281c0d2ae1": {1, release},
	"7726c7be95e2a0ed082ec1da1e26b562f5c8903f": {1, release},
	"852ba6ec6104340ced36643283c856d4698569e4": {2, extend},
	"fa3d1aaa7e4145457755016a3d5daf72fa7a11bf": {2, acquire("NX", "PX")},
	"3875d208d9e377969d2022550302cc83ad17b584": {2, acquire("NX", "PXAT")},
	"4384ed08baff4dd7071b6c78c516a2fded4ee3e7": {2, acquire("PX")},
	"c10e8119872659b926e8e28002d9b7fccbf15617": {2, acquire("PXAT")},
	"3913f9de2aab2b98021c6f9b04f7293af86e2c61": {3, replace},
	"fb80ce0e2c4327e6b8b4818dcf4591eec0ebbc2c": {2, claim},
}

const (
	errScript   = "ERR this script is not known: there is no Lua here, only the scripts of rueidislock and rueidisaside"
	errNoScript = "NOSCRIPT No matching script. Please use EVAL."
)

// holds reports whether a key exists with a value.
func holds(x kv, key, value []byte) (yes, ok bool) {
	e, ok := x.get(key)
	return e.Exists && e.Value == string(value), ok
}

// release removes a key that has the value.
func release(x kv, key []byte, arg [][]byte, w *resp.Writer) {
	switch yes, ok := holds(x, key, arg[0]); {
	case !ok:
	case yes:
		x.del(key)
		w.Int(1)
	default:
		w.Int(0)
	}
}

// extend moves the deadline of a key that has the value.
func extend(x kv, key []byte, arg [][]byte, w *resp.Writer) {
	switch yes, ok := holds(x, key, arg[0]); {
	case !ok:
	case yes:
		expire(x, [][]byte{[]byte("pexpireat"), key, arg[1]}, w)
	default:
		w.Int(0)
	}
}

// acquire sets a key to the first value, with options whose last one takes the second.
func acquire(options ...string) func(kv, []byte, [][]byte, *resp.Writer) {
	return func(x kv, key []byte, arg [][]byte, w *resp.Writer) {
		args := [][]byte{[]byte("set"), key, arg[0]}
		for _, o := range options {
			args = append(args, []byte(o))
		}
		set(x, append(args, arg[1]), w)
	}
}

// replace sets a key that has the first value to the second, for milliseconds.
func replace(x kv, key []byte, arg [][]byte, w *resp.Writer) {
	switch yes, ok := holds(x, key, arg[0]); {
	case !ok:
	case yes:
		set(x, [][]byte{[]byte("set"), key, arg[1], []byte("PX"), arg[2]}, w)
	default:
		w.Int(0)
	}
}

// claim sets a key that does not exist, for milliseconds, and answers the value
// of one that does.
func claim(x kv, key []byte, arg [][]byte, w *resp.Writer) {
	e, ok := x.get(key)
	if !ok {
		return
	}
	tmp := resp.NewWriter(w.Proto())
	acquire("NX", "PX")(x, key, arg, tmp)
	if b := tmp.Bytes(); len(b) > 0 && b[0] == '-' {
		w.Raw(b)
		return
	}
	value(e, w)
}

// known finds the script that EVAL or EVALSHA names, and checks what it is given.
// If it is nil, the answer is an error.
func known(args [][]byte, w *resp.Writer) *script {
	name, missing := lower(args[1]), errNoScript
	if lower(args[0]) == "eval" {
		name, missing = fingerprint(args[1]), errScript
	}
	s, ok := scripts[name]
	keys, number := integer(args[2])
	switch {
	case !number:
		w.Error(errInteger)
	case keys < 0:
		w.Error("ERR Number of keys can't be negative")
	case keys > int64(len(args)-3):
		w.Error("ERR Number of keys can't be greater than number of args")
	case !ok:
		w.Error(missing)
	case keys != 1 || len(args) < 4+s.values:
		w.Error("ERR this script takes one key, and more arguments than these")
	default:
		return &s
	}
	return nil
}

func fingerprint(text []byte) string {
	sum := sha1.Sum(text)
	return hex.EncodeToString(sum[:])
}

func eval(x kv, args [][]byte, w *resp.Writer) {
	if s := known(args, w); s != nil {
		s.run(x, args[3], args[4:], w)
	}
}

// scripting answers SCRIPT.
func scripting(args [][]byte, w *resp.Writer) {
	switch sub := strings.ToLower(string(args[1])); {
	case sub == "load" && len(args) == 3:
		name := fingerprint(args[2])
		if _, ok := scripts[name]; !ok {
			w.Error(errScript)
			return
		}
		w.BulkString(name)
	case sub == "exists" && len(args) > 2:
		w.Array(len(args) - 2)
		for _, name := range args[2:] {
			if _, ok := scripts[lower(name)]; ok {
				w.Int(1)
			} else {
				w.Int(0)
			}
		}
	case sub == "flush" && len(args) <= 3:
		w.SimpleString("OK")
	default:
		w.Error("ERR unknown subcommand or wrong number of arguments for SCRIPT; LOAD, EXISTS and FLUSH are known")
	}
}
