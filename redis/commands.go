package redis

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/resp"
)

// versionLater is what FR.SETV and FR.DELV answer over a KV, which does not know the version that a
// change will have. A node that runs one of them alone asks the cache.
func versionLater(_ KV, args [][]byte, w *resp.Writer) {
	w.Error("ERR " + string(args[0]) + " inside MULTI: there is no version before EXEC; use SET or DEL, and FR.VERSION")
}

func get(x KV, args [][]byte, w *resp.Writer) {
	if e, ok := x.Get(args[1]); ok {
		Value(e, w)
	}
}

// Value writes the value of a key, or null if the key does not exist.
func Value(e linear.Entry[string], w *resp.Writer) {
	if !e.Exists {
		w.Null()
		return
	}
	w.BulkString(e.Value)
}

func mget(x KV, args [][]byte, w *resp.Writer) {
	w.Array(len(args) - 1)
	for _, key := range args[1:] {
		e, ok := x.Get(key)
		if !ok {
			return
		}
		Value(e, w)
	}
}

func exists(x KV, args [][]byte, w *resp.Writer) {
	n := int64(0)
	for _, key := range args[1:] {
		e, ok := x.Get(key)
		if !ok {
			return
		}
		if e.Exists {
			n++
		}
	}
	w.Int(n)
}

func typeOf(x KV, args [][]byte, w *resp.Writer) {
	e, ok := x.Get(args[1])
	switch {
	case !ok:
	case e.Exists:
		w.SimpleString("string")
	default:
		w.SimpleString("none")
	}
}

func strlen(x KV, args [][]byte, w *resp.Writer) {
	if e, ok := x.Get(args[1]); ok {
		w.Int(int64(len(e.Value)))
	}
}

func getRange(x KV, args [][]byte, w *resp.Writer) {
	from, ok1 := Integer(args[2])
	to, ok2 := Integer(args[3])
	if !ok1 || !ok2 {
		w.Error(ErrInteger)
		return
	}
	e, ok := x.Get(args[1])
	if !ok {
		return
	}
	n := int64(len(e.Value))
	if from < 0 && to < 0 && from > to {
		from, to = 1, 0
	}
	if from < 0 {
		from = max(0, n+from)
	}
	if to < 0 {
		to = max(0, n+to)
	}
	if to = min(to, n-1); from > to {
		w.BulkString("")
		return
	}
	w.BulkString(e.Value[from : to+1])
}

func ttl(x KV, args [][]byte, w *resp.Writer) {
	e, ok := x.Get(args[1])
	if !ok {
		return
	}
	name := Lower(args[0])
	left := e.TTL
	if strings.HasSuffix(name, "time") {
		left = time.Duration(time.Now().Add(e.TTL).UnixNano())
	}
	switch {
	case !e.Exists:
		w.Int(-2)
	case e.TTL == 0:
		w.Int(-1)
	case name[0] == 'p':
		w.Int(int64((left + time.Millisecond - 1) / time.Millisecond))
	default:
		w.Int(int64((left + time.Second/2) / time.Second))
	}
}

// getVersion answers version, value and remaining milliseconds. The version is
// text because it needs 63 bits, and some clients' numbers have 53.
func getVersion(x KV, args [][]byte, w *resp.Writer) {
	e, ok := x.Get(args[1])
	if !ok {
		return
	}
	w.Array(3)
	w.BulkString(strconv.FormatUint(e.Version, 10))
	Value(e, w)
	if e.TTL == 0 {
		w.Int(-1)
	} else {
		w.Int(int64((e.TTL + time.Millisecond - 1) / time.Millisecond))
	}
}

// onlyVersion is FR.VERSION inside a transaction; Node.version is it elsewhere.
func onlyVersion(x KV, args [][]byte, w *resp.Writer) {
	if e, ok := x.Get(args[1]); ok {
		w.Array(2)
		w.BulkString(strconv.FormatUint(e.Version, 10))
		w.Int(int64(number01(e.Exists)))
	}
}

// compareAndSet is FR.CAS key version value [PX ms]: the value is set if the
// version is still that, and the answer is null if not. The new version is to be
// had by FR.GETV.
func compareAndSet(x KV, args [][]byte, w *resp.Writer) {
	version, err := strconv.ParseUint(string(args[2]), 10, 63)
	if err != nil {
		w.Error("ERR version is not a number that FR.GETV returned")
		return
	}
	o, msg := parseSet(args[4:])
	if msg != "" || o.nx || o.xx || o.get || o.persist {
		w.Error(cmp.Or(msg, ErrSyntax))
		return
	}
	if msg = o.expires("fr.cas"); msg != "" {
		w.Error(msg)
		return
	}
	e, ok := x.Get(args[1])
	switch {
	case !ok:
	case e.Version != version:
		w.Null()
	case o.past:
		x.Delete(args[1])
		w.SimpleString("OK")
	default:
		x.Set(args[1], string(args[3]), o.ttl)
		w.SimpleString("OK")
	}
}

func set(x KV, args [][]byte, w *resp.Writer) {
	o, msg := parseSet(args[3:])
	if msg != "" || o.persist {
		w.Error(cmp.Or(msg, ErrSyntax))
		return
	}
	if msg = o.expires("set"); msg != "" {
		w.Error(msg)
		return
	}
	var e linear.Entry[string]
	if o.nx || o.xx || o.get || o.ttl == linear.KeepTTL {
		var ok bool
		if e, ok = x.Get(args[1]); !ok {
			return
		}
	}
	done := !(o.nx && e.Exists || o.xx && !e.Exists)
	switch {
	case done && o.past:
		x.Delete(args[1])
	case done:
		x.Set(args[1], string(args[2]), o.ttl)
	}
	switch {
	case o.get:
		Value(e, w)
	case done:
		w.SimpleString("OK")
	default:
		w.Null()
	}
}

func setEx(x KV, args [][]byte, w *resp.Writer) {
	name := Lower(args[0])
	unit := "ex"
	if name[0] == 'p' {
		unit = "px"
	}
	d, _, msg := lifetime(args[2], unit, name)
	if msg != "" {
		w.Error(msg)
		return
	}
	x.Set(args[1], string(args[3]), d)
	w.SimpleString("OK")
}

func setNX(x KV, args [][]byte, w *resp.Writer) {
	e, ok := x.Get(args[1])
	switch {
	case !ok:
	case e.Exists:
		w.Int(0)
	default:
		x.Set(args[1], string(args[2]), 0)
		w.Int(1)
	}
}

func getSet(x KV, args [][]byte, w *resp.Writer) {
	if e, ok := x.Get(args[1]); ok {
		x.Set(args[1], string(args[2]), 0)
		Value(e, w)
	}
}

func getDel(x KV, args [][]byte, w *resp.Writer) {
	if e, ok := x.Get(args[1]); ok {
		if e.Exists {
			x.Delete(args[1])
		}
		Value(e, w)
	}
}

func getEx(x KV, args [][]byte, w *resp.Writer) {
	o, msg := parseSet(args[2:])
	if msg != "" || o.nx || o.xx || o.get || o.ttl == linear.KeepTTL && !o.persist {
		w.Error(cmp.Or(msg, ErrSyntax))
		return
	}
	e, ok := x.Get(args[1])
	if !ok {
		return
	}
	if msg = o.expires("getex"); msg != "" && e.Exists {
		w.Error(msg)
		return
	}
	switch {
	case !e.Exists || !o.any:
	case o.persist:
		if e.TTL != 0 {
			x.Set(args[1], e.Value, 0)
		}
	case o.past:
		x.Delete(args[1])
	default:
		x.Set(args[1], e.Value, o.ttl)
	}
	Value(e, w)
}

func mset(x KV, args [][]byte, w *resp.Writer) {
	if Unpaired(args, w) {
		return
	}
	for i := 1; i < len(args); i += 2 {
		x.Set(args[i], string(args[i+1]), 0)
	}
	w.SimpleString("OK")
}

func msetNX(x KV, args [][]byte, w *resp.Writer) {
	if Unpaired(args, w) {
		return
	}
	for i := 1; i < len(args); i += 2 {
		e, ok := x.Get(args[i])
		if !ok {
			return
		}
		if e.Exists {
			w.Int(0)
			return
		}
	}
	for i := 1; i < len(args); i += 2 {
		x.Set(args[i], string(args[i+1]), 0)
	}
	w.Int(1)
}

func del(x KV, args [][]byte, w *resp.Writer) {
	n := int64(0)
	for _, key := range args[1:] {
		e, ok := x.Get(key)
		if !ok {
			return
		}
		if e.Exists {
			x.Delete(key)
			n++
		}
	}
	w.Int(n)
}

func appendTo(x KV, args [][]byte, w *resp.Writer) {
	e, ok := x.Get(args[1])
	if !ok {
		return
	}
	v := e.Value + string(args[2])
	x.Set(args[1], v, linear.KeepTTL)
	w.Int(int64(len(v)))
}
