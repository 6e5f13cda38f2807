package redis

import (
	"strconv"
	"strings"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/resp"
)

// answer runs a command whose answer is that of the script.
func (l *lua) answer(name string, args ...[]byte) {
	if b, ok := l.call(name, args...); ok {
		l.w.Raw(b)
	}
}

// call runs a command. If its answer is an error, that is the script's, and ok is false.
func (l *lua) call(name string, args ...[]byte) (answer []byte, ok bool) {
	run := writes[name]
	if run == nil {
		run = reads[name]
	}
	tmp := resp.NewWriter(l.w.Proto())
	run(l.x, append([][]byte{[]byte(name)}, args...), tmp)
	b := tmp.Bytes()
	if len(b) > 0 && b[0] == '-' {
		l.w.Raw(b)
	}
	return b, len(b) > 0 && b[0] != '-'
}

// number is call for what answers an integer.
func (l *lua) number(name string, args ...[]byte) (n int64, ok bool) {
	b, ok := l.call(name, args...)
	if !ok || b[0] != ':' {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b[1:])), 10, 64)
	return n, err == nil
}

func number(n int64) []byte { return strconv.AppendInt(nil, n, 10) }

// mine reports whether the key exists with the first argument as its value; there says
// that it exists.
func (l *lua) mine(key []byte) (e linear.Entry[string], yes, ok bool) {
	e, ok = l.x.Get(key)
	return e, ok && e.Exists && e.Value == string(l.arg[0]), ok
}
