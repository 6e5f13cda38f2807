package resp

import "strings"

// invalidations is the only channel. Over it a RESP2 connection receives the invalidations of
// connections that redirect to it.
const invalidations = "__redis__:invalidate"

// pushCommands are the commands about subscriptions.
var pushCommands = []Command{
	{Name: "subscribe", Arity: -2, Flags: []string{"pubsub", "noscript", "loading", "stale"}, Group: "pubsub", Since: "2.0.0",
		Summary: "Lets CLIENT TRACKING redirect to this connection: __redis__:invalidate is the only channel.", immediate: true, subscribed: true, run: subscribe},
	{Name: "unsubscribe", Arity: -1, Flags: []string{"pubsub", "noscript", "loading", "stale"}, Group: "pubsub", Since: "2.0.0",
		Summary: "Ends what SUBSCRIBE began.", immediate: true, subscribed: true, run: unsubscribe},
}

// subcommands are what COMMAND INFO and DOCS describe under these names.
var subcommands = map[string]Command{}

func init() {
	for _, sub := range []Command{
		{Name: "client|tracking", Arity: -3, Since: "6.0.0", Summary: "CLIENT TRACKING (ON|OFF) [REDIRECT id] [PREFIX p]... [BCAST] [OPTIN] [OPTOUT] [NOLOOP]: tells the client when what it has read changes."},
		{Name: "client|caching", Arity: 3, Since: "6.0.0", Summary: "CLIENT CACHING (YES|NO): whether the keys of the next command, or transaction, are tracked."},
		{Name: "client|trackinginfo", Arity: 2, Since: "6.2.0", Summary: "Returns how the connection tracks."},
		{Name: "client|getredir", Arity: 2, Since: "6.0.0", Summary: "Returns the connection that invalidations are redirected to."},
	} {
		sub.Group, sub.Flags = "connection", []string{"noscript", "loading", "stale"}
		subcommands[sub.Name] = sub
	}
}

func subscribe(c *Conn, args [][]byte, w *Writer) {
	for _, channel := range args[1:] {
		if string(channel) != invalidations {
			w.Error("ERR there is no pub/sub here: " + invalidations + ", for CLIENT TRACKING with REDIRECT, is the only channel")
			return
		}
	}
	if c.multi != nil {
		w.Error("ERR SUBSCRIBE inside MULTI is not allowed")
		return
	}
	c.subscribed.Store(true)
	for range args[1:] {
		w.Push(3)
		w.BulkString("subscribe")
		w.BulkString(invalidations)
		w.Int(1)
	}
}

func unsubscribe(c *Conn, args [][]byte, w *Writer) {
	channels := args[1:]
	if len(channels) == 0 && c.subscribed.Load() {
		channels = [][]byte{[]byte(invalidations)}
	}
	for _, channel := range channels {
		if string(channel) == invalidations {
			c.subscribed.Store(false)
		}
		w.Push(3)
		w.BulkString("unsubscribe")
		w.Bulk(channel)
		w.Int(c.channels())
	}
	if len(channels) == 0 {
		w.Push(3)
		w.BulkString("unsubscribe")
		w.Null()
		w.Int(0)
	}
}

// channels returns to how many channels the client has subscribed.
func (c *Conn) channels() int64 {
	if c.subscribed.Load() {
		return 1
	}
	return 0
}

// onlySubscribed returns why a command is refused on a subscribed RESP2 connection; empty if it is
// not.
func onlySubscribed(cmd *Command, args [][]byte) string {
	name := cmd.Name
	if name == "client" || name == "command" || name == "config" || name == "script" {
		if len(args) > 1 {
			name += "|" + strings.ToLower(string(args[1]))
		}
	}
	return "ERR Can't execute '" + name + "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
}
