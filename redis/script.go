package redis

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"

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

const (
	errScript   = "ERR this script is not known: there is no Lua here, only the scripts of common locks and counters, which docs/clients.md lists; use WATCH, MULTI and EXEC, or FR.CAS, instead"
	errNoScript = "NOSCRIPT No matching script. Please use EVAL."
)

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

// known finds the script that EVAL or EVALSHA names, and checks what it is given. It
// has the arguments name the script as every node knows it.
// If it is nil, the answer is an error.
func known(args [][]byte, w *resp.Writer) *script {
	sha, missing := Lower(args[1]), errNoScript
	if Lower(args[0]) == "eval" {
		missing = errScript
		sha, _ = scriptCache.load(args[1])
	}
	name := scriptCache.name(sha)
	s, ok := scripts[name]
	keys, number := Integer(args[2])
	switch {
	case !number:
		w.Error(ErrInteger)
	case keys < 0:
		w.Error("ERR Number of keys can't be negative")
	case keys > int64(len(args)-3):
		w.Error("ERR Number of keys can't be greater than number of args")
	case !ok:
		w.Error(missing)
	case s.many && keys < 1 || int64(len(args)) < 3+keys+int64(s.values):
		w.Error("ERR this script takes a key, and more arguments than these")
	case !s.many && keys != 1:
		w.Error("ERR this script takes one key, and more arguments than these")
	default:
		args[0], args[1] = []byte("evalsha"), []byte(name)
		return &s
	}
	return nil
}

// KnownScript checks what EVAL or EVALSHA is given, and reports whether the script is one of those
// that freshet knows; otherwise it answers with an error. It has the arguments name the script as
// every node knows it.
func KnownScript(args [][]byte, w *resp.Writer) bool { return known(args, w) != nil }

func fingerprint(text []byte) string {
	sum := sha1.Sum(text)
	return hex.EncodeToString(sum[:])
}

func eval(x KV, args [][]byte, w *resp.Writer) {
	if s := known(args, w); s != nil {
		n, _ := Integer(args[2])
		s.run(&lua{x: x, keys: args[3 : 3+n], arg: args[3+n:], w: w})
	}
}

// Scripting answers SCRIPT.
func Scripting(args [][]byte, w *resp.Writer) {
	switch sub := strings.ToLower(string(args[1])); {
	case sub == "load" && len(args) == 3:
		sha, ok := scriptCache.load(args[2])
		if !ok {
			w.Error(errScript)
			return
		}
		w.BulkString(sha)
	case sub == "exists" && len(args) > 2:
		w.Array(len(args) - 2)
		for _, name := range args[2:] {
			w.Int(int64(number01(scriptCache.has(Lower(name)))))
		}
	case sub == "flush" && len(args) <= 3:
		scriptCache.flush()
		w.SimpleString("OK")
	default:
		w.Error("ERR unknown subcommand or wrong number of arguments for SCRIPT; LOAD, EXISTS and FLUSH are known")
	}
}
