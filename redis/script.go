package redis

import (
	"github.com/freshet-cache/freshet/resp"
)

// script is what a Lua script of a client does, done by commands we have. Its
// arguments are one key, or several, and then at least values others.
type script struct {
	values int
	many   bool // several keys may be given
	run    func(l *lua)
}

// on is a script of one key.
func on(run func(x KV, key []byte, arg [][]byte, w *resp.Writer)) func(*lua) {
	return func(l *lua) { run(l.x, l.keys[0], l.arg, l.w) }
}

// scripts are those of rueidislock and rueidisaside, by the SHA-1 of their text, and
// those of listing, by that of their plain text. There is no Lua here: others are
// refused, and say so.
var scripts = map[string]script{
	"9eb62214c9af87ae5f9a9f12bb4520281c0d2ae1": {values: 1, run: on(release)},
	"7726c7be95e2a0ed082ec1da1e26b562f5c8903f": {values: 1, run: on(release)},
	"852ba6ec6104340ced36643283c856d4698569e4": {values: 2, run: on(extend)},
	"fa3d1aaa7e4145457755016a3d5daf72fa7a11bf": {values: 2, run: on(acquire("NX", "PX"))},
	"3875d208d9e377969d2022550302cc83ad17b584": {values: 2, run: on(acquire("NX", "PXAT"))},
	"4384ed08baff4dd7071b6c78c516a2fded4ee3e7": {values: 2, run: on(acquire("PX"))},
	"c10e8119872659b926e8e28002d9b7fccbf15617": {values: 2, run: on(acquire("PXAT"))},
	"3913f9de2aab2b98021c6f9b04f7293af86e2c61": {values: 3, run: on(replace)},
	"fb80ce0e2c4327e6b8b4818dcf4591eec0ebbc2c": {values: 2, run: on(claim)},
}

// holds reports whether a key exists with a value.
func holds(x KV, key, value []byte) (yes, ok bool) {
	e, ok := x.Get(key)
	return e.Exists && e.Value == string(value), ok
}

// release removes a key that has the value.
func release(x KV, key []byte, arg [][]byte, w *resp.Writer) {
	switch yes, ok := holds(x, key, arg[0]); {
	case !ok:
	case yes:
		x.Delete(key)
		w.Int(1)
	default:
		w.Int(0)
	}
}

// extend moves the deadline of a key that has the value.
func extend(x KV, key []byte, arg [][]byte, w *resp.Writer) {
	switch yes, ok := holds(x, key, arg[0]); {
	case !ok:
	case yes:
		expire(x, [][]byte{[]byte("pexpireat"), key, arg[1]}, w)
	default:
		w.Int(0)
	}
}

// acquire sets a key to the first value, with options whose last one takes the second.
func acquire(options ...string) func(KV, []byte, [][]byte, *resp.Writer) {
	return func(x KV, key []byte, arg [][]byte, w *resp.Writer) {
		args := [][]byte{[]byte("set"), key, arg[0]}
		for _, o := range options {
			args = append(args, []byte(o))
		}
		set(x, append(args, arg[1]), w)
	}
}

// replace sets a key that has the first value to the second, for milliseconds.
func replace(x KV, key []byte, arg [][]byte, w *resp.Writer) {
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
func claim(x KV, key []byte, arg [][]byte, w *resp.Writer) {
	e, ok := x.Get(key)
	if !ok {
		return
	}
	tmp := resp.NewWriter(w.Proto())
	acquire("NX", "PX")(x, key, arg, tmp)
	if b := tmp.Bytes(); len(b) > 0 && b[0] == '-' {
		w.Raw(b)
		return
	}
	Value(e, w)
}

// lua is a run of a script: its keys, its other arguments, and where its answer goes.
type lua struct {
	x         KV
	keys, arg [][]byte
	w         *resp.Writer
}
