package redis

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/resp"
)

func setRange(x KV, args [][]byte, w *resp.Writer) {
	at, ok := Integer(args[2])
	switch {
	case !ok:
		w.Error(ErrInteger)
		return
	case at < 0:
		w.Error(errOffset)
		return
	}
	e, ok := x.Get(args[1])
	switch {
	case !ok:
		return
	case len(args[3]) == 0:
		w.Int(int64(len(e.Value)))
		return
	case at > int64(x.Limit()-len(args[3])):
		w.Error(ErrTooLong)
		return
	}
	v := make([]byte, max(len(e.Value), int(at)+len(args[3])))
	copy(v, e.Value)
	copy(v[at:], args[3])
	x.Set(args[1], string(v), linear.KeepTTL)
	w.Int(int64(len(v)))
}

func incr(x KV, args [][]byte, w *resp.Writer) {
	by := int64(1)
	if len(args) == 3 {
		var ok bool
		if by, ok = Integer(args[2]); !ok {
			w.Error(ErrInteger)
			return
		}
	}
	if Lower(args[0])[0] == 'd' {
		if by == math.MinInt64 {
			w.Error("ERR decrement would overflow")
			return
		}
		by = -by
	}
	e, ok := x.Get(args[1])
	if !ok {
		return
	}
	n := int64(0)
	if e.Exists {
		if n, ok = Integer([]byte(e.Value)); !ok {
			w.Error(ErrInteger)
			return
		}
	}
	if by > 0 && n > math.MaxInt64-by || by < 0 && n < math.MinInt64-by {
		w.Error(errOverflow)
		return
	}
	x.Set(args[1], strconv.FormatInt(n+by, 10), linear.KeepTTL)
	w.Int(n + by)
}

func expire(x KV, args [][]byte, w *resp.Writer) {
	name := Lower(args[0])
	unit := strings.TrimPrefix(name, "p") // expire or expireat: the first letter says seconds
	if name[0] == 'p' {
		unit = name
	}
	var nx, xx, gt, lt bool
	for _, a := range args[3:] {
		switch Lower(a) {
		case "nx":
			nx = true
		case "xx":
			xx = true
		case "gt":
			gt = true
		case "lt":
			lt = true
		default:
			w.Error("ERR Unsupported option " + string(a))
			return
		}
	}
	switch {
	case nx && (xx || gt || lt):
		w.Error("ERR NX and XX, GT or LT options at the same time are not compatible")
		return
	case gt && lt:
		w.Error("ERR GT and LT options at the same time are not compatible")
		return
	}
	n, ok := Integer(args[2])
	if !ok {
		w.Error(ErrInteger)
		return
	}
	var d time.Duration
	var msg string
	past := n <= 0
	switch {
	case !past:
		d, past, msg = lifetime(args[2], unit, name)
	case n < math.MinInt64/1000 && name[0] == 'e':
		msg = strings.Replace(errExpire, "%s", name, 1)
	}
	if msg != "" {
		w.Error(msg)
		return
	}
	e, ok := x.Get(args[1])
	if !ok {
		return
	}
	refuse := !e.Exists || nx && e.TTL != 0 || xx && e.TTL == 0 || gt && (e.TTL == 0 || d <= e.TTL) || lt && e.TTL != 0 && d >= e.TTL
	switch {
	case refuse:
		w.Int(0)
		return
	case past:
		x.Delete(args[1])
	default:
		x.Set(args[1], e.Value, d)
	}
	w.Int(1)
}

func persist(x KV, args [][]byte, w *resp.Writer) {
	e, ok := x.Get(args[1])
	switch {
	case !ok:
	case !e.Exists || e.TTL == 0:
		w.Int(0)
	default:
		x.Set(args[1], e.Value, 0)
		w.Int(1)
	}
}
