package redis

import (
	"strings"

	"github.com/freshet-cache/freshet/resp"
)

const (
	errScript   = "ERR this script is not known: there is no Lua here, only the scripts of common locks and counters, which docs/clients.md lists; use WATCH, MULTI and EXEC, or FR.CAS, instead"
	errNoScript = "NOSCRIPT No matching script. Please use EVAL."
)

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
