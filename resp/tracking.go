package resp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxPrefixes bounds the prefixes of one client.
const maxPrefixes = 1024

// Tracking returns the options of CLIENT TRACKING that the client has set.
func (c *Conn) Tracking() Tracking {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tracking
}

// Tracks reports whether the client tracks keys, all or some. Only calls for this connection may
// call it; it costs nothing.
func (c *Conn) Tracks() bool { return c.tracks }

// Remembers reports whether the keys that the current command reads are to be tracked for the
// client, which CLIENT CACHING decides in the modes OPTIN and OPTOUT. Only calls for this
// connection may call it.
func (c *Conn) Remembers() bool {
	t := &c.tracking // only the goroutine of the connection changes it
	return c.tracks && !t.Bcast && (!t.OptIn || c.caching) && !(t.OptOut && c.caching)
}

// Invalidate sends an invalidation of keys, or of everything if there are none, to the connection
// that the client chose. It reports whether a connection got it. own means that the client itself
// made the change; then the push follows its reply.
func (c *Conn) Invalidate(keys []string, own bool) bool {
	t := c.Tracking()
	to := c
	if t.Redirect != 0 {
		if to = c.s.Conn(t.Redirect); to == nil {
			c.broken.Store(true)
			if c.Proto() == 3 {
				w := NewWriter(3)
				w.Push(2)
				w.BulkString("tracking-redir-broken")
				w.Int(t.Redirect)
				return c.say(w, own) == nil
			}
			return false
		}
	}
	w := NewWriter(to.Proto())
	switch {
	case to.Proto() == 3:
		w.Push(2)
		w.BulkString("invalidate")
	case t.Redirect != 0 && to.subscribed.Load():
		w.Array(3)
		w.BulkString("message")
		w.BulkString(invalidations)
	default: // Redis sends nothing either: RESP2 has no message for it
		return false
	}
	if keys == nil {
		w.Null()
	} else {
		w.Array(len(keys))
		for _, k := range keys {
			w.BulkString(k)
		}
	}
	return to.say(w, own && to == c) == nil
}

func (c *Conn) say(w *Writer, own bool) error {
	if own {
		return c.PushAfter(w.Bytes())
	}
	return c.Push(w.Bytes())
}

// flags returns the flags that CLIENT LIST shows. The caller holds the lock.
func (c *Conn) flags() (out string) {
	for _, f := range []struct {
		on   bool
		flag string
	}{{c.subscribed.Load(), "P"}, {c.tracking.On, "t"}, {c.broken.Load(), "R"}, {c.tracking.Bcast, "B"}} {
		if f.on {
			out += f.flag
		}
	}
	if out == "" {
		return "N"
	}
	return out
}

// clientTracking answers CLIENT TRACKING and its related subcommands.
func clientTracking(c *Conn, sub string, args [][]byte, w *Writer) {
	switch sub {
	case "tracking":
		if msg := c.setTracking(args); msg != "" {
			w.Error(msg)
			return
		}
		w.SimpleString("OK")
	case "caching":
		if msg := c.setCaching(strings.ToLower(string(args[2]))); msg != "" {
			w.Error(msg)
			return
		}
		w.SimpleString("OK")
	case "getredir":
		w.Int(c.tracking.redirect())
	case "trackinginfo":
		c.trackingInfo(w)
	}
}

// setTracking parses the options and checks them in the order of Redis, with the same error texts.
func (c *Conn) setTracking(args [][]byte) string {
	var t Tracking
	for i := 3; i < len(args); i++ {
		more := i+1 < len(args)
		switch opt := strings.ToLower(string(args[i])); {
		case opt == "redirect" && more:
			if i++; t.Redirect != 0 {
				return "ERR A client can only redirect to a single other client"
			}
			id, err := strconv.ParseInt(string(args[i]), 10, 64)
			if err != nil {
				return "ERR value is not an integer or out of range"
			}
			if c.s.Conn(id) == nil {
				return "ERR The client ID you want redirect to does not exist"
			}
			t.Redirect = id
		case opt == "bcast":
			t.Bcast = true
		case opt == "optin":
			t.OptIn = true
		case opt == "optout":
			t.OptOut = true
		case opt == "noloop":
			t.NoLoop = true
		case opt == "prefix" && more:
			i++
			t.Prefixes = append(t.Prefixes, string(args[i]))
		default:
			return "ERR syntax error"
		}
	}
	switch strings.ToLower(string(args[2])) {
	case "on":
		return c.startTracking(t)
	case "off":
		c.stopTracking()
		return ""
	}
	return "ERR syntax error"
}

func (c *Conn) startTracking(t Tracking) string {
	was := &c.tracking
	const other = " before disabling tracking for this client, and then re-enabling it with a different mode."
	switch {
	case c.s.tracker == nil:
		return "ERR client-side caching (CLIENT TRACKING) is not supported; turn it off in your client"
	case !t.Bcast && len(t.Prefixes) > 0:
		return "ERR PREFIX option requires BCAST mode to be enabled"
	case was.On && was.Bcast != t.Bcast:
		return "ERR You can't switch BCAST mode on/off" + other
	case t.Bcast && (t.OptIn || t.OptOut):
		return "ERR OPTIN and OPTOUT are not compatible with BCAST"
	case t.OptIn && t.OptOut:
		return "ERR You can't specify both OPTIN mode and OPTOUT mode"
	case t.OptIn && was.OptOut || t.OptOut && was.OptIn:
		return "ERR You can't switch OPTIN/OPTOUT mode" + other
	case len(t.Prefixes)+len(was.Prefixes) > maxPrefixes:
		return fmt.Sprintf("ERR too many prefixes; a client may have %d", maxPrefixes)
	}
	if msg := overlapping(t.Prefixes, was.Prefixes); msg != "" {
		return msg
	}
	if t.On = true; t.Bcast && len(t.Prefixes) == 0 {
		t.Prefixes = []string{""}
	}
	t.Prefixes = append(t.Prefixes, was.Prefixes...)
	slices.Sort(t.Prefixes)
	t.Prefixes = slices.Compact(t.Prefixes)
	return c.changeTracking(t)
}

// overlapping returns an error text if two prefixes of a client overlap.
func overlapping(prefixes, had []string) string {
	const must = " Prefixes for a single client must not overlap."
	overlap := func(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }
	for i, p := range prefixes {
		for _, h := range had {
			if overlap(p, h) {
				return fmt.Sprintf("ERR Prefix '%.64s' overlaps with an existing prefix '%.64s'.", p, h) + must
			}
		}
		for _, q := range prefixes[i+1:] {
			if overlap(p, q) {
				return fmt.Sprintf("ERR Prefix '%.64s' overlaps with another provided prefix '%.64s'.", p, q) + must
			}
		}
	}
	return ""
}

func (c *Conn) stopTracking() {
	if c.tracking.On {
		c.changeTracking(Tracking{})
	}
}

// changeTracking sets the options once the handler agrees. It marks the client first, so that no
// push of the handler is lost.
func (c *Conn) changeTracking(t Tracking) string {
	was := c.tracking
	set := func(t Tracking) {
		c.mu.Lock()
		c.tracking, c.tracks, c.caching = t, t.On, c.caching && t.On
		c.mu.Unlock()
	}
	set(t)
	c.broken.Store(false)
	c.w.MayBlock()
	if msg := c.s.tracker.Track(c, t); msg != "" {
		set(was)
		return msg
	}
	return ""
}

func (c *Conn) setCaching(mode string) string {
	switch t := &c.tracking; {
	case !t.On:
		return "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled"
	case mode == "yes" && !t.OptIn:
		return "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode."
	case mode == "no" && !t.OptOut:
		return "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode."
	case mode != "yes" && mode != "no":
		return "ERR syntax error"
	}
	c.caching = true
	return ""
}

func (c *Conn) trackingInfo(w *Writer) {
	t := &c.tracking
	flags := []string{"off"}
	add := func(on bool, flag string) {
		if on {
			flags = append(flags, flag)
		}
	}
	if t.On {
		flags[0] = "on"
	}
	add(t.Bcast, "bcast")
	add(t.OptIn, "optin")
	add(t.OptIn && c.caching, "caching-yes")
	add(t.OptOut, "optout")
	add(t.OptOut && c.caching, "caching-no")
	add(t.NoLoop, "noloop")
	add(c.broken.Load(), "broken_redirect")
	w.Map(3)
	w.BulkString("flags")
	w.Set(len(flags))
	for _, f := range flags {
		w.BulkString(f)
	}
	w.BulkString("redirect")
	w.Int(t.redirect())
	w.BulkString("prefixes")
	w.Array(len(t.Prefixes))
	for _, p := range t.Prefixes {
		w.BulkString(p)
	}
}
