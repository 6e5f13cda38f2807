package node

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/resp"
)

// Error texts as Redis has them: clients match on some.
const (
	errSyntax   = "ERR syntax error"
	errInteger  = "ERR value is not an integer or out of range"
	errFloat    = "ERR value is not a valid float"
	errOverflow = "ERR increment or decrement would overflow"
	errExpire   = "ERR invalid expire time in '%s' command"
	errOffset   = "ERR offset is out of range"
	errTooLong  = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
)

// reads and writes are the data commands, by name. All keys of one command are
// decided together; DEL, UNLINK, MSET and FLUSHALL over keys of several owners
// are taken apart by the router.
var reads = map[string]command{
	"get": get, "mget": mget, "exists": exists, "touch": exists, "type": typeOf, "strlen": strlen,
	"getrange": getRange, "substr": getRange, "ttl": ttl, "pttl": ttl, "expiretime": ttl, "pexpiretime": ttl,
	"fr.getv": getVersion, "fr.version": onlyVersion,
}

var writes = map[string]command{
	"set": set, "setex": setEx, "psetex": setEx, "setnx": setNX, "getset": getSet, "getdel": getDel, "getex": getEx,
	"mset": mset, "msetnx": msetNX, "del": del, "unlink": del, "append": appendTo, "setrange": setRange,
	"incr": incr, "decr": incr, "incrby": incr, "decrby": incr, "incrbyfloat": incrFloat,
	"expire": expire, "pexpire": expire, "expireat": expire, "pexpireat": expire, "persist": persist,
	"eval": eval, "evalsha": eval, "fr.cas": compareAndSet, "fr.setv": versionLater, "fr.delv": versionLater,
}

func get(x kv, args [][]byte, w *resp.Writer) {
	if e, ok := x.get(args[1]); ok {
		value(e, w)
	}
}

func value(e linear.Entry[string], w *resp.Writer) {
	if !e.Exists {
		w.Null()
		return
	}
	w.BulkString(e.Value)
}

func mget(x kv, args [][]byte, w *resp.Writer) {
	w.Array(len(args) - 1)
	for _, key := range args[1:] {
		e, ok := x.get(key)
		if !ok {
			return
		}
		value(e, w)
	}
}

func exists(x kv, args [][]byte, w *resp.Writer) {
	n := int64(0)
	for _, key := range args[1:] {
		e, ok := x.get(key)
		if !ok {
			return
		}
		if e.Exists {
			n++
		}
	}
	w.Int(n)
}

func typeOf(x kv, args [][]byte, w *resp.Writer) {
	e, ok := x.get(args[1])
	switch {
	case !ok:
	case e.Exists:
		w.SimpleString("string")
	default:
		w.SimpleString("none")
	}
}

func strlen(x kv, args [][]byte, w *resp.Writer) {
	if e, ok := x.get(args[1]); ok {
		w.Int(int64(len(e.Value)))
	}
}

func getRange(x kv, args [][]byte, w *resp.Writer) {
	from, ok1 := integer(args[2])
	to, ok2 := integer(args[3])
	if !ok1 || !ok2 {
		w.Error(errInteger)
		return
	}
	e, ok := x.get(args[1])
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

func ttl(x kv, args [][]byte, w *resp.Writer) {
	e, ok := x.get(args[1])
	if !ok {
		return
	}
	name := lower(args[0])
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
func getVersion(x kv, args [][]byte, w *resp.Writer) {
	e, ok := x.get(args[1])
	if !ok {
		return
	}
	w.Array(3)
	w.BulkString(strconv.FormatUint(e.Version, 10))
	value(e, w)
	if e.TTL == 0 {
		w.Int(-1)
	} else {
		w.Int(int64((e.TTL + time.Millisecond - 1) / time.Millisecond))
	}
}

// onlyVersion is FR.VERSION inside a transaction; Node.version is it elsewhere.
func onlyVersion(x kv, args [][]byte, w *resp.Writer) {
	if e, ok := x.get(args[1]); ok {
		w.Array(2)
		w.BulkString(strconv.FormatUint(e.Version, 10))
		w.Int(int64(flag(e.Exists)))
	}
}

// compareAndSet is FR.CAS key version value [PX ms]: the value is set if the
// version is still that, and the answer is null if not. The new version is to be
// had by FR.GETV.
func compareAndSet(x kv, args [][]byte, w *resp.Writer) {
	version, err := strconv.ParseUint(string(args[2]), 10, 63)
	if err != nil {
		w.Error("ERR version is not a number that FR.GETV returned")
		return
	}
	o, msg := parseSet(args[4:])
	if msg != "" || o.nx || o.xx || o.get || o.persist {
		w.Error(first(msg, errSyntax))
		return
	}
	if msg = o.expires("fr.cas"); msg != "" {
		w.Error(msg)
		return
	}
	e, ok := x.get(args[1])
	switch {
	case !ok:
	case e.Version != version:
		w.Null()
	case o.past:
		x.del(args[1])
		w.SimpleString("OK")
	default:
		x.put(args[1], string(args[3]), o.ttl)
		w.SimpleString("OK")
	}
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// setOptions are those of SET and GETEX.
type setOptions struct {
	ttl          time.Duration
	past         bool // the deadline given is over already
	nx, xx, get  bool
	persist, any bool
	ttlText      []byte // as it was given, in unit
	unit         string
}

// parseSet reads options; a message means that they are wrong. As in Redis, what
// they are is looked at before what they say.
func parseSet(args [][]byte) (o setOptions, msg string) {
	last := ""
	for i := 0; i < len(args); i++ {
		switch opt := lower(args[i]); opt {
		case "nx":
			o.nx = true
		case "xx":
			o.xx = true
		case "get":
			o.get = true
		case "keepttl", "persist":
			if o.any && last != opt {
				return o, errSyntax
			}
			o.any, last, o.ttl, o.persist = true, opt, linear.KeepTTL, opt == "persist"
		case "ex", "px", "exat", "pxat":
			if o.any && last != opt || i+1 >= len(args) {
				return o, errSyntax
			}
			i++
			o.any, last, o.ttlText, o.unit = true, opt, args[i], opt
		default:
			return o, errSyntax
		}
	}
	if o.nx && o.xx {
		return o, errSyntax
	}
	return o, ""
}

// expires reads the time that the options give, if they do.
func (o *setOptions) expires(name string) (msg string) {
	if o.unit != "" {
		o.ttl, o.past, msg = lifetime(o.ttlText, o.unit, name)
	}
	return msg
}

// lifetime reads a time to live: seconds or milliseconds from now, or since 1970.
// It is linear.MaxTTL at most.
func lifetime(arg []byte, unit, name string) (d time.Duration, past bool, msg string) {
	n, ok := integer(arg)
	if !ok {
		return 0, false, errInteger
	}
	bad := strings.Replace(errExpire, "%s", name, 1)
	now, scale := time.Now().UnixMilli(), int64(1)
	if unit[0] == 'e' {
		scale = 1000
	}
	if n <= 0 || n > math.MaxInt64/scale {
		return 0, false, bad
	}
	if n *= scale; !strings.HasSuffix(unit, "at") {
		if n > math.MaxInt64-now {
			return 0, false, bad
		}
		n += now
	}
	left := n - now
	return time.Duration(min(left, linear.MaxTTL.Milliseconds()) * int64(time.Millisecond)), left <= 0, ""
}

func set(x kv, args [][]byte, w *resp.Writer) {
	o, msg := parseSet(args[3:])
	if msg != "" || o.persist {
		w.Error(first(msg, errSyntax))
		return
	}
	if msg = o.expires("set"); msg != "" {
		w.Error(msg)
		return
	}
	var e linear.Entry[string]
	if o.nx || o.xx || o.get || o.ttl == linear.KeepTTL {
		var ok bool
		if e, ok = x.get(args[1]); !ok {
			return
		}
	}
	done := !(o.nx && e.Exists || o.xx && !e.Exists)
	switch {
	case done && o.past:
		x.del(args[1])
	case done:
		x.put(args[1], string(args[2]), o.ttl)
	}
	switch {
	case o.get:
		value(e, w)
	case done:
		w.SimpleString("OK")
	default:
		w.Null()
	}
}

func setEx(x kv, args [][]byte, w *resp.Writer) {
	name := lower(args[0])
	unit := "ex"
	if name[0] == 'p' {
		unit = "px"
	}
	d, _, msg := lifetime(args[2], unit, name)
	if msg != "" {
		w.Error(msg)
		return
	}
	x.put(args[1], string(args[3]), d)
	w.SimpleString("OK")
}

func setNX(x kv, args [][]byte, w *resp.Writer) {
	e, ok := x.get(args[1])
	switch {
	case !ok:
	case e.Exists:
		w.Int(0)
	default:
		x.put(args[1], string(args[2]), 0)
		w.Int(1)
	}
}

func getSet(x kv, args [][]byte, w *resp.Writer) {
	if e, ok := x.get(args[1]); ok {
		x.put(args[1], string(args[2]), 0)
		value(e, w)
	}
}

func getDel(x kv, args [][]byte, w *resp.Writer) {
	if e, ok := x.get(args[1]); ok {
		if e.Exists {
			x.del(args[1])
		}
		value(e, w)
	}
}

func getEx(x kv, args [][]byte, w *resp.Writer) {
	o, msg := parseSet(args[2:])
	if msg != "" || o.nx || o.xx || o.get || o.ttl == linear.KeepTTL && !o.persist {
		w.Error(first(msg, errSyntax))
		return
	}
	e, ok := x.get(args[1])
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
			x.put(args[1], e.Value, 0)
		}
	case o.past:
		x.del(args[1])
	default:
		x.put(args[1], e.Value, o.ttl)
	}
	value(e, w)
}

// unpaired answers for a key without a value.
func unpaired(args [][]byte, w *resp.Writer) bool {
	if len(args)%2 == 0 {
		w.Error("ERR wrong number of arguments for '" + lower(args[0]) + "' command")
	}
	return len(args)%2 == 0
}

func mset(x kv, args [][]byte, w *resp.Writer) {
	if unpaired(args, w) {
		return
	}
	for i := 1; i < len(args); i += 2 {
		x.put(args[i], string(args[i+1]), 0)
	}
	w.SimpleString("OK")
}

func msetNX(x kv, args [][]byte, w *resp.Writer) {
	if unpaired(args, w) {
		return
	}
	for i := 1; i < len(args); i += 2 {
		e, ok := x.get(args[i])
		if !ok {
			return
		}
		if e.Exists {
			w.Int(0)
			return
		}
	}
	for i := 1; i < len(args); i += 2 {
		x.put(args[i], string(args[i+1]), 0)
	}
	w.Int(1)
}

func del(x kv, args [][]byte, w *resp.Writer) {
	n := int64(0)
	for _, key := range args[1:] {
		e, ok := x.get(key)
		if !ok {
			return
		}
		if e.Exists {
			x.del(key)
			n++
		}
	}
	w.Int(n)
}

func appendTo(x kv, args [][]byte, w *resp.Writer) {
	e, ok := x.get(args[1])
	if !ok {
		return
	}
	v := e.Value + string(args[2])
	x.put(args[1], v, linear.KeepTTL)
	w.Int(int64(len(v)))
}

// integer reads what Redis takes for one: no sign plus, no spaces, no zeros in front.
func integer(b []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil || len(b) > 1 && (b[0] == '+' || b[0] == '0') || len(b) > 2 && b[0] == '-' && b[1] == '0' {
		return 0, false
	}
	return n, string(b) != "-0"
}

func lower(b []byte) string { return strings.ToLower(string(b)) }
