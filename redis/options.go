package redis

import (
	"math"
	"strings"
	"time"

	"github.com/freshet-cache/freshet/linear"
)

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
		switch opt := Lower(args[i]); opt {
		case "nx":
			o.nx = true
		case "xx":
			o.xx = true
		case "get":
			o.get = true
		case "keepttl", "persist":
			if o.any && last != opt {
				return o, ErrSyntax
			}
			o.any, last, o.ttl, o.persist = true, opt, linear.KeepTTL, opt == "persist"
		case "ex", "px", "exat", "pxat":
			if o.any && last != opt || i+1 >= len(args) {
				return o, ErrSyntax
			}
			i++
			o.any, last, o.ttlText, o.unit = true, opt, args[i], opt
		default:
			return o, ErrSyntax
		}
	}
	if o.nx && o.xx {
		return o, ErrSyntax
	}
	return o, ""
}

// ParseExpiry reads the options of a command that takes EX, PX, EXAT or PXAT and no others; ttl 0
// never expires. A deadline that is over already is past. A message says what is wrong.
func ParseExpiry(args [][]byte, name string) (ttl time.Duration, past bool, msg string) {
	o, msg := parseSet(args)
	switch {
	case msg != "":
		return 0, false, msg
	case o.nx || o.xx || o.get || o.persist:
		return 0, false, ErrSyntax
	case o.ttl == linear.KeepTTL:
		return 0, false, "ERR " + strings.ToUpper(name) + " takes no KEEPTTL"
	}
	msg = o.expires(name)
	return o.ttl, o.past, msg
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
	n, ok := Integer(arg)
	if !ok {
		return 0, false, ErrInteger
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
