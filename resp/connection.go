package resp

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// connectionCommands are answered here, without the handler.
var connectionCommands []Command

func init() {
	own := func(name string, arity int, flags string, open, immediate bool, summary string, run func(*Conn, [][]byte, *Writer)) {
		connectionCommands = append(connectionCommands, Command{Name: name, Arity: arity, Flags: strings.Fields(flags),
			Group: "connection", Summary: summary, open: open, immediate: immediate, run: run})
	}
	own("hello", -1, "noscript loading stale fast no_auth allow_busy", true, false, "Chooses the dialect, and says who is talking.", hello)
	own("auth", -2, "noscript loading stale fast no_auth allow_busy", true, false, "Gives the password.", auth)
	own("ping", -1, "fast", false, false, "Answers PONG, or its argument.", ping)
	own("echo", 2, "loading stale fast", false, false, "Answers its argument.", func(_ *Conn, a [][]byte, w *Writer) { w.Bulk(a[1]) })
	own("quit", -1, "noscript loading stale fast no_auth allow_busy", true, true, "Closes the connection.", quit)
	own("reset", 1, "noscript loading stale fast no_auth allow_busy", true, true, "Makes the connection as it was in the beginning.", reset)
	own("select", 2, "loading stale fast", false, false, "Selects a database: 0, or one that a space has.", selectDB)
	own("client", -2, "noscript loading stale", false, false, "Asks about connections, and sets their properties.", client)
	own("command", -1, "loading stale", false, false, "Describes the commands.", describe)
	own("multi", 1, "noscript loading stale fast allow_busy", false, true, "Begins a transaction.", multi)
	own("exec", 1, "noscript loading stale skip_slowlog", false, true, "Runs the commands queued since MULTI, all together.", exec)
	own("discard", 1, "noscript loading stale fast allow_busy", false, true, "Forgets the commands queued since MULTI.", discard)
	for i := range connectionCommands {
		switch connectionCommands[i].Name {
		case "multi", "exec", "discard":
			connectionCommands[i].Group = "transactions"
		case "ping", "quit", "reset":
			connectionCommands[i].subscribed = true
		}
	}
}

func hello(c *Conn, args [][]byte, w *Writer) {
	proto := c.Proto()
	if len(args) > 1 {
		switch string(args[1]) {
		case "2":
			proto = 2
		case "3":
			proto = 3
		default:
			if _, err := strconv.Atoi(string(args[1])); err != nil {
				w.Error("ERR Protocol version is not an integer or out of range")
				return
			}
			w.Error("NOPROTO unsupported protocol version")
			return
		}
	}
	name, named := "", false
	for i := 2; i < len(args); i++ {
		switch opt := strings.ToLower(string(args[i])); {
		case opt == "auth" && i+2 < len(args):
			if !c.login(string(args[i+1]), args[i+2]) {
				w.Error("WRONGPASS invalid username-password pair or user is disabled.")
				return
			}
			i += 2
		case opt == "setname" && i+1 < len(args):
			name, named = string(args[i+1]), true
			i++
		default:
			w.Error(fmt.Sprintf("ERR Syntax error in HELLO option '%.64s'", args[i]))
			return
		}
	}
	if !c.authed.Load() {
		w.Error("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
		return
	}
	if named && !c.setName(name, w) {
		return
	}
	c.proto.Store(int32(proto))
	w.proto = proto
	w.Map(7)
	for _, kv := range [][2]string{{"server", "redis"}, {"version", c.s.opt.Version}} { // clients look for this name
		w.BulkString(kv[0])
		w.BulkString(kv[1])
	}
	w.BulkString("proto")
	w.Int(int64(proto))
	w.BulkString("id")
	w.Int(c.id)
	for _, kv := range [][2]string{{"mode", "standalone"}, {"role", "master"}} {
		w.BulkString(kv[0])
		w.BulkString(kv[1])
	}
	w.BulkString("modules")
	w.Array(0)
}

// login compares in constant time, whatever the lengths.
func (c *Conn) login(user string, password []byte) bool {
	want, got := sha256.Sum256([]byte(c.s.opt.Password)), sha256.Sum256(password)
	ok := subtle.ConstantTimeCompare(want[:], got[:]) == 1 && user == "default"
	if ok || c.s.opt.Password == "" {
		c.authed.Store(ok || c.authed.Load())
		return ok || user == "default"
	}
	c.tellDenied(fmt.Sprintf("%.64q", user), "auth")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails++; c.fails >= 5 { // guessing a password ends the connection
		c.closing.Store(true)
	}
	return false
}

func auth(c *Conn, args [][]byte, w *Writer) {
	user, password := "default", args[len(args)-1]
	switch {
	case len(args) > 3:
		w.Error("ERR syntax error")
		return
	case len(args) == 3:
		user = string(args[1])
	case c.s.opt.Password == "":
		w.Error("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
		return
	}
	if !c.login(user, password) {
		w.Error("WRONGPASS invalid username-password pair or user is disabled.")
		return
	}
	w.SimpleString("OK")
}

func ping(c *Conn, args [][]byte, w *Writer) {
	if c.subscribed.Load() && w.proto == 2 && len(args) <= 2 { // a subscribed RESP2 client expects a message
		w.Array(2)
		w.BulkString("pong")
		w.Bulk(slices.Concat(args[1:]...))
		return
	}
	switch len(args) {
	case 1:
		w.SimpleString("PONG")
	case 2:
		w.Bulk(args[1])
	default:
		w.Error(wrongArity("ping"))
	}
}

func quit(c *Conn, _ [][]byte, w *Writer) {
	w.SimpleString("OK")
	c.closing.Store(true)
}

func reset(c *Conn, _ [][]byte, w *Writer) {
	c.dropTransaction()
	c.stopTracking()
	c.subscribed.Store(false)
	c.proto.Store(2)
	c.w.proto = 2
	c.silent = replyOn
	c.db.Store(0)
	if h, ok := c.s.h.(Resetter); ok {
		h.Reset(c)
	}
	c.authed.Store(c.s.opt.Password == "")
	c.mu.Lock()
	c.name, c.since = "", time.Now()
	c.mu.Unlock()
	w.SimpleString("RESET")
}

func selectDB(c *Conn, args [][]byte, w *Writer) {
	n, err := strconv.Atoi(string(args[1]))
	switch {
	case err != nil:
		w.Error("ERR value is not an integer or out of range")
	case n != 0 && !slices.Contains(c.s.opt.Databases, n):
		w.Error("ERR DB index is out of range")
	default:
		c.db.Store(int32(n))
		w.SimpleString("OK")
	}
}

func multi(c *Conn, _ [][]byte, w *Writer) {
	if c.multi != nil {
		w.Error("ERR MULTI calls can not be nested")
		return
	}
	c.multi = &transaction{}
	w.SimpleString("OK")
}

func exec(c *Conn, args [][]byte, w *Writer) {
	t := c.multi
	if t == nil {
		w.Error("ERR EXEC without MULTI")
		return
	}
	c.multi = nil
	if t.bad {
		c.unwatch()
		w.Error("EXECABORT Transaction discarded because of previous errors.")
		return
	}
	c.s.h.Exec(c, t.cmds, w)
}

func discard(c *Conn, _ [][]byte, w *Writer) {
	if c.multi == nil {
		w.Error("ERR DISCARD without MULTI")
		return
	}
	c.dropTransaction()
	w.SimpleString("OK")
}

func (c *Conn) dropTransaction() {
	c.multi = nil
	c.unwatch()
}

// unwatch makes the handler drop the keys of WATCH.
func (c *Conn) unwatch() {
	if cmd := c.s.table["unwatch"]; cmd != nil {
		c.s.h.Command(c, cmd, [][]byte{[]byte("UNWATCH")}, NewWriter(2))
	}
}

// setName checks a name as Redis does.
func (c *Conn) setName(name string, w *Writer) bool {
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		w.Error("ERR Client names cannot contain spaces, newlines or special characters.")
		return false
	}
	c.mu.Lock()
	c.name = name
	c.mu.Unlock()
	return true
}

func client(c *Conn, args [][]byte, w *Writer) {
	sub := strings.ToLower(string(args[1]))
	want := map[string]int{"id": 2, "info": 2, "getname": 2, "setname": 3, "setinfo": 4, "no-evict": 3, "no-touch": 3, "reply": 3, "unpause": 2, "getredir": 2, "help": 2, "caching": 3, "trackinginfo": 2}
	if n, ok := want[sub]; ok && len(args) != n || (sub == "kill" || sub == "tracking") && len(args) < 3 {
		w.Error(wrongArity("client|" + sub))
		return
	}
	switch sub {
	case "id":
		w.Int(c.id)
	case "info":
		w.Verbatim(c.describe() + "\n")
	case "list":
		clientList(c, args[2:], w)
	case "kill":
		clientKill(c, args[2:], w)
	case "getname":
		if name := c.Name(); name != "" {
			w.BulkString(name)
			return
		}
		w.Null()
	case "setname":
		if c.setName(string(args[2]), w) {
			w.SimpleString("OK")
		}
	case "setinfo":
		clientInfo(c, string(args[2]), string(args[3]), w)
	case "no-evict", "no-touch":
		if s := strings.ToLower(string(args[2])); s != "on" && s != "off" {
			w.Error("ERR syntax error")
			return
		}
		w.SimpleString("OK")
	case "reply":
		clientReply(c, strings.ToLower(string(args[2])), w)
	case "capa", "unpause":
		w.SimpleString("OK")
	case "help":
		w.Array(2)
		w.BulkString("CLIENT ID | INFO | LIST | KILL | GETNAME | SETNAME | SETINFO | NO-EVICT | NO-TOUCH | REPLY | CAPA | UNPAUSE")
		w.BulkString("CLIENT TRACKING (ON|OFF) [REDIRECT id] [PREFIX p]... [BCAST] [OPTIN] [OPTOUT] [NOLOOP] | CACHING (YES|NO) | TRACKINGINFO | GETREDIR")
	case "tracking", "caching", "trackinginfo", "getredir":
		clientTracking(c, sub, args, w)
	default:
		w.Error(fmt.Sprintf("ERR unknown subcommand '%.128s'. Try CLIENT HELP.", args[1]))
	}
}

func clientInfo(c *Conn, attr, value string, w *Writer) {
	if strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
		w.Error("ERR " + strings.ToLower(attr) + " cannot contain spaces, newlines or special characters.")
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch strings.ToLower(attr) {
	case "lib-name":
		c.lib = value
	case "lib-ver":
		c.ver = value
	default:
		w.Error("ERR Unrecognized option '" + attr + "'")
		return
	}
	w.SimpleString("OK")
}

func clientReply(c *Conn, mode string, w *Writer) {
	switch mode {
	case "on":
		c.silent = replyOn
		w.SimpleString("OK")
	case "off":
		c.silent = replyOff
	case "skip":
		switch c.silent {
		case replyOn:
			c.silent = replySkip
		case replySkip:
			c.silent = replyAgain
		}
	default:
		w.Error("ERR syntax error")
	}
}

// describe is the line of CLIENT LIST.
func (c *Conn) describe() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	flags, sub := c.flags(), 0
	if c.subscribed.Load() {
		sub = 1
	}
	return fmt.Sprintf("id=%d addr=%s laddr=%s fd=0 name=%s age=%d idle=0 flags=%s db=%d sub=%d psub=0 multi=-1 cmd=%s user=default redir=%d lib-name=%s lib-ver=%s resp=%d",
		c.id, c.nc.RemoteAddr(), c.nc.LocalAddr(), c.name, int(time.Since(c.created).Seconds()), flags, c.db.Load(), sub, c.cmd, c.tracking.redirect(), c.lib, c.ver, c.proto.Load())
}

func clientList(c *Conn, args [][]byte, w *Writer) {
	var ids []string
	switch {
	case len(args) == 2 && strings.EqualFold(string(args[0]), "type"):
		if !strings.EqualFold(string(args[1]), "normal") {
			w.Error(fmt.Sprintf("ERR Unknown client type '%.128s'", args[1]))
			return
		}
	case len(args) >= 2 && strings.EqualFold(string(args[0]), "id"):
		for _, a := range args[1:] {
			if !isID(a) {
				w.Error("ERR Invalid client ID")
				return
			}
			ids = append(ids, string(a))
		}
	case len(args) > 0:
		w.Error("ERR syntax error")
		return
	}
	var b strings.Builder
	for _, o := range c.s.Conns() {
		if ids == nil || slices.Contains(ids, strconv.FormatInt(o.id, 10)) {
			b.WriteString(o.describe() + "\n")
		}
	}
	w.Verbatim(b.String())
}

func isID(b []byte) bool {
	n, err := strconv.ParseInt(string(b), 10, 64)
	return err == nil && n > 0
}

// clientKill ends connections, by address or by filters. A connection must match all filters.
func clientKill(c *Conn, args [][]byte, w *Writer) {
	old := len(args) == 1
	if old {
		args = [][]byte{[]byte("addr"), args[0], []byte("skipme"), []byte("no")}
	}
	if len(args) == 0 || len(args)%2 != 0 {
		w.Error("ERR syntax error")
		return
	}
	skipMe := true
	fits := func(o *Conn) bool { return true }
	for i := 0; i < len(args); i += 2 {
		prev, val := fits, string(args[i+1])
		switch strings.ToLower(string(args[i])) {
		case "id":
			if !isID(args[i+1]) {
				w.Error("ERR client-id should be greater than 0")
				return
			}
			fits = func(o *Conn) bool { return prev(o) && strconv.FormatInt(o.id, 10) == val }
		case "addr":
			fits = func(o *Conn) bool { return prev(o) && o.RemoteAddr() == val }
		case "laddr":
			fits = func(o *Conn) bool { return prev(o) && o.LocalAddr() == val }
		case "type", "user":
			fits = func(o *Conn) bool { return prev(o) && (val == "normal" || val == "default") }
		case "skipme":
			skipMe = !strings.EqualFold(val, "no")
		default:
			w.Error("ERR syntax error")
			return
		}
	}
	n := int64(0)
	for _, o := range c.s.Conns() {
		switch {
		case !fits(o) || o == c && skipMe:
			continue
		case o == c:
			c.closing.Store(true)
		default:
			o.kill()
		}
		n++
	}
	switch {
	case !old:
		w.Int(n)
	case n == 0:
		w.Error("ERR No such client")
	default:
		w.SimpleString("OK")
	}
}
