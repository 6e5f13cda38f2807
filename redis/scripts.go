package redis

import (
	"time"

	"github.com/freshet-cache/freshet/linear"
)

// Script is a Lua script that is recognized by its text, and done without Lua.
type Script struct {
	Text   string
	Many   bool // it takes one key or more; else one
	Values int  // how many arguments it has besides, at least
}

// Scripts are those of everyday locks and counters that are recognized by their texts.
func Scripts() (out []Script) {
	for _, s := range listing {
		out = append(out, Script{s.text, s.many, s.values})
	}
	return out
}

// listed is a script of the table.
type listed struct {
	text   string
	many   bool // it takes one key or more; else one
	values int
	run    func(l *lua)
}

// listing are the scripts of everyday locks and counters, beside those that are known by
// their SHA-1. docs/clients.md says whose they are; a test runs each of them here and in
// Redis.
var listing = []listed{
	// Locks: release what is one's own.
	{text: `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`, values: 1, run: released(0, 0)},
	{text: `local token = redis.call("get", KEYS[1]) if not token or token ~= ARGV[1] then return 0 end redis.call("del", KEYS[1]) return 1`, values: 1, run: released(0, 0)},
	{text: `local val = redis.call("get", KEYS[1]) if val == ARGV[1] then return redis.call("del", KEYS[1]) elseif val == false then return -1 else return 0 end`, values: 1, run: released(-1, 0)},
	{text: `local count = 0 for i, key in ipairs(KEYS) do if redis.call("get", key) == ARGV[1] then redis.pcall("del", key) count = count + 1 end end return count`, values: 1, many: true, run: releasedAll},
	// Locks: let it last.
	{text: `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) else return 0 end`, values: 2, run: extended("pexpire")},
	{text: `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("expire", KEYS[1], ARGV[2]) else return 0 end`, values: 2, run: extended("expire")},
	{text: `local token = redis.call("get", KEYS[1]) if not token or token ~= ARGV[1] then return 0 end local expiration = redis.call("pttl", KEYS[1])
		if not expiration then expiration = 0 end if expiration < 0 then return 0 end local newttl = ARGV[2] if ARGV[3] == "0" then newttl = ARGV[2] + expiration end
		redis.call("pexpire", KEYS[1], newttl) return 1`, values: 3, run: prolonged},
	{text: `local token = redis.call("get", KEYS[1]) if not token or token ~= ARGV[1] then return 0 end redis.call("pexpire", KEYS[1], ARGV[2]) return 1`, values: 2, run: extended("pexpire")},
	{text: `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) elseif redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2], "NX")
		then return 1 else return 0 end`, values: 2, run: touched},
	{text: `for i, key in ipairs(KEYS) do if redis.call("get", key) ~= ARGV[1] then return 0 end end
		for i, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "PX", ARGV[2]) end return #KEYS`, values: 2, many: true, run: setAllIf(true)},
	// Locks: take it, and how long it lasts.
	{text: `return redis.call("set", KEYS[1], ARGV[1], "NX", "PX", ARGV[2])`, values: 2, run: func(l *lua) { acquire("NX", "PX")(l.x, l.keys[0], l.arg, l.w) }},
	{text: `for i, key in ipairs(KEYS) do if redis.call("exists", key) == 1 then return 0 end end
		for i, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "PX", ARGV[2]) end return #KEYS`, values: 2, many: true, run: setAllIf(false)},
	{text: `if redis.call("set", KEYS[1], ARGV[1], "NX", "PX", ARGV[3]) then return redis.status_reply("OK") end local offset = tonumber(ARGV[2])
		if redis.call("getrange", KEYS[1], 0, offset-1) == string.sub(ARGV[1], 1, offset) then return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[3]) end`, values: 3, run: obtained},
	{text: `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pttl", KEYS[1]) else return -3 end`, values: 1, run: remaining(-3, false)},
	{text: `if redis.call("get", KEYS[1]) == ARGV[1] then local pttl = redis.call("pttl", KEYS[1]) return (pttl > 0) and pttl or 0 else return 0 end`, values: 1, run: remaining(0, true)},
	// Counters.
	{text: `local exists = redis.call("exists", KEYS[1]) if (exists == 1) then return redis.call("incrby", KEYS[1], ARGV[1]) else return false end`, values: 1, run: func(l *lua) {
		if e, ok := l.x.Get(l.keys[0]); ok && !e.Exists {
			l.w.Null()
		} else if ok {
			l.answer("incrby", l.keys[0], l.arg[0])
		}
	}},
	{text: `return redis.call("incrby", KEYS[1], ARGV[1])`, values: 1, run: func(l *lua) { l.answer("incrby", l.keys[0], l.arg[0]) }},
	{text: `local current current = redis.call("incr", KEYS[1]) if current == 1 then redis.call("expire", KEYS[1], ARGV[1]) end return current`, values: 1, run: counted},
	{text: `local current current = redis.call("incr", KEYS[1]) if tonumber(current) == 1 then redis.call("expire", KEYS[1], ARGV[1]) end return current`, values: 1, run: counted},
	{text: `local current = redis.call("incr", KEYS[1]) if current == 1 then redis.call("expire", KEYS[1], ARGV[1]) end return current`, values: 1, run: counted},
	{text: `local current = redis.call("incr", KEYS[1]) if tonumber(current) == 1 then redis.call("expire", KEYS[1], ARGV[1]) end return current`, values: 1, run: counted},
	{text: `local current current = redis.call("incrby", KEYS[1], ARGV[2]) if tonumber(current) == tonumber(ARGV[2]) then redis.call("expire", KEYS[1], ARGV[1]) end return current`, values: 2, run: counted},
	{text: `local current local amount = tonumber(ARGV[2]) current = redis.call("incrby", KEYS[1], amount) if tonumber(current) == amount then
		redis.call("expire", KEYS[1], ARGV[1]) end return current`, values: 2, run: counted},
	{text: `local key = KEYS[1] local count = tonumber(ARGV[1]) local ttl = tonumber(ARGV[2]) local ret = redis.call("incrby", key, ARGV[1]) if ret == count then
		if ttl > 0 then redis.call("pexpire", key, ARGV[2]) end return {ret, ttl} end ttl = redis.call("pttl", key) return {ret, ttl}`, values: 2, run: countedWithTTL},
	{text: `local key = KEYS[1] local v = redis.call("get", key) if v == false then return {0, 0} end local ttl = redis.call("pttl", key) return {tonumber(v), ttl}`, run: peeked},
	{text: `local windowMs = tonumber(ARGV[1]) local timeToExpire = redis.call("pttl", KEYS[1]) if timeToExpire <= 0 then redis.call("set", KEYS[1], 1, "PX", windowMs)
		return { 1, windowMs } end local totalHits = redis.call("incr", KEYS[1]) return { totalHits, timeToExpire }`, values: 1, run: window},
	{text: `local totalHits = redis.call("get", KEYS[1]) local timeToExpire = redis.call("pttl", KEYS[1]) return { totalHits, timeToExpire }`, run: func(l *lua) {
		if e, ok := l.x.Get(l.keys[0]); ok {
			l.w.Array(2)
			Value(e, l.w)
			l.w.Int(ttlOf(e))
		}
	}},
	{text: `redis.call("set", KEYS[1], 0, "EX", ARGV[2], "NX") local consumed = redis.call("incrby", KEYS[1], ARGV[1]) local ttl = redis.call("pttl", KEYS[1])
		if ttl == -1 then redis.call("expire", KEYS[1], ARGV[2]) ttl = 1000 * ARGV[2] end return {consumed, ttl}`, values: 2, run: consumed},
}

func init() {
	for _, s := range listing {
		text, ok := plain(s.text)
		if !ok {
			panic("redis: a script of the table cannot be read: " + s.text)
		}
		scripts[fingerprint([]byte(text))] = script{values: s.values, many: s.many, run: s.run}
	}
}

// ttlOf is what PTTL answers.
func ttlOf(e linear.Entry[string]) int64 {
	switch {
	case !e.Exists:
		return -2
	case e.TTL == 0:
		return -1
	}
	return int64((e.TTL + time.Millisecond - 1) / time.Millisecond)
}

// released removes a key that is the caller's, and answers what is asked where it does
// not exist or is another's.
func released(absent, other int64) func(*lua) {
	return func(l *lua) {
		switch e, mine, ok := l.mine(l.keys[0]); {
		case !ok:
		case mine:
			l.x.Delete(l.keys[0])
			l.w.Int(1)
		case e.Exists:
			l.w.Int(other)
		default:
			l.w.Int(absent)
		}
	}
}

func releasedAll(l *lua) {
	n := int64(0)
	for _, k := range l.keys {
		_, mine, ok := l.mine(k)
		if !ok {
			return
		}
		if mine {
			l.x.Delete(k)
			n++
		}
	}
	l.w.Int(n)
}

// extended has a key that is the caller's live for the time of the second argument.
func extended(by string) func(*lua) {
	return func(l *lua) {
		switch _, mine, ok := l.mine(l.keys[0]); {
		case !ok:
		case mine:
			l.answer(by, l.keys[0], l.arg[1])
		default:
			l.w.Int(0)
		}
	}
}

// prolonged adds to the TTL of a key that is the caller's, or replaces it.
func prolonged(l *lua) {
	e, mine, ok := l.mine(l.keys[0])
	switch {
	case !ok:
		return
	case !mine || ttlOf(e) < 0:
		l.w.Int(0)
		return
	}
	fresh := l.arg[1]
	if string(l.arg[2]) == "0" {
		n, ok := Integer(fresh)
		if !ok {
			l.w.Error(ErrInteger)
			return
		}
		fresh = number(n + ttlOf(e))
	}
	if _, ok := l.number("pexpire", l.keys[0], fresh); ok {
		l.w.Int(1)
	}
}

// touched extends a key that is the caller's, or takes one that does not exist.
func touched(l *lua) {
	switch _, mine, ok := l.mine(l.keys[0]); {
	case !ok:
	case mine:
		l.answer("pexpire", l.keys[0], l.arg[1])
	default:
		if b, ok := l.call("set", l.keys[0], l.arg[0], []byte("PX"), l.arg[1], []byte("NX")); ok {
			l.w.Int(int64(number01(b[0] == '+')))
		}
	}
}

// setAllIf sets all keys, if all are the caller's, or none exists.
func setAllIf(mine bool) func(*lua) {
	return func(l *lua) {
		for _, k := range l.keys {
			e, yes, ok := l.mine(k)
			switch {
			case !ok:
				return
			case mine && !yes, !mine && e.Exists:
				l.w.Int(0)
				return
			}
		}
		for _, k := range l.keys {
			if _, ok := l.call("set", k, l.arg[0], []byte("PX"), l.arg[1]); !ok {
				return
			}
		}
		l.w.Int(int64(len(l.keys)))
	}
}

// obtained takes a key that does not exist, or whose value begins as the caller's token.
func obtained(l *lua) {
	b, ok := l.call("set", l.keys[0], l.arg[0], []byte("PX"), l.arg[2], []byte("NX"))
	switch {
	case !ok:
		return
	case b[0] == '+':
		l.w.Raw(b)
		return
	}
	e, ok := l.x.Get(l.keys[0])
	n, number := Integer(l.arg[1])
	token := string(l.arg[0])
	switch {
	case !ok:
	case !number || n < 0:
		l.w.Error(ErrInteger)
	case n == 0 && e.Value != "", n > 0 && head(e.Value, n) != head(token, n):
		l.w.Null()
	default:
		l.answer("set", l.keys[0], l.arg[0], []byte("PX"), l.arg[2])
	}
}

// head is the first n bytes of s.
func head(s string, n int64) string { return s[:min(int64(len(s)), n)] }

// remaining answers the TTL of a key that is the caller's, at least 0 if floor.
func remaining(other int64, floor bool) func(*lua) {
	return func(l *lua) {
		switch e, mine, ok := l.mine(l.keys[0]); {
		case !ok:
		case mine && floor:
			l.w.Int(max(0, ttlOf(e)))
		case mine:
			l.w.Int(ttlOf(e))
		default:
			l.w.Int(other)
		}
	}
}

// counted adds the second argument, or one, and has a counter that begins expire after
// the seconds of the first.
func counted(l *lua) {
	by := []byte("1")
	if len(l.arg) > 1 {
		by = l.arg[1]
	}
	n, ok := l.number("incrby", l.keys[0], by)
	if !ok {
		return
	}
	if string(number(n)) == string(by) {
		if _, ok := l.call("expire", l.keys[0], l.arg[0]); !ok {
			return
		}
	}
	l.w.Int(n)
}

// countedWithTTL adds the first argument, has a counter that begins expire after the
// milliseconds of the second, and answers its TTL too.
func countedWithTTL(l *lua) {
	n, ok := l.number("incrby", l.keys[0], l.arg[0])
	if !ok {
		return
	}
	if string(number(n)) != string(l.arg[0]) {
		if e, ok := l.x.Get(l.keys[0]); ok {
			l.pair(n, ttlOf(e))
		}
		return
	}
	ms, ok := Integer(l.arg[1])
	if !ok {
		l.w.Error(ErrInteger)
		return
	}
	if ms > 0 {
		if _, ok := l.call("pexpire", l.keys[0], l.arg[1]); !ok {
			return
		}
	}
	l.pair(n, ms)
}

func (l *lua) pair(a, b int64) {
	l.w.Array(2)
	l.w.Int(a)
	l.w.Int(b)
}

// peeked answers a counter and its TTL.
func peeked(l *lua) {
	e, ok := l.x.Get(l.keys[0])
	if !ok {
		return
	}
	n, number := Integer([]byte(e.Value))
	switch {
	case !e.Exists:
		l.pair(0, 0)
	case !number:
		l.w.Array(0) // as Lua has it, whose tables end at the first nil
	default:
		l.pair(n, ttlOf(e))
	}
}

// window adds one, or begins a counter with a TTL of the milliseconds of the argument.
func window(l *lua) {
	e, ok := l.x.Get(l.keys[0])
	if !ok {
		return
	}
	if left := ttlOf(e); left > 0 {
		if n, ok := l.number("incr", l.keys[0]); ok {
			l.pair(n, left)
		}
		return
	}
	ms, number := Integer(l.arg[0])
	if !number {
		l.w.Error(ErrInteger)
		return
	}
	if _, ok := l.call("set", l.keys[0], []byte("1"), []byte("PX"), l.arg[0]); ok {
		l.pair(1, ms)
	}
}

// consumed adds the first argument to a counter with a TTL of the seconds of the second
// from its beginning on.
func consumed(l *lua) {
	if _, ok := l.call("set", l.keys[0], []byte("0"), []byte("EX"), l.arg[1], []byte("NX")); !ok {
		return
	}
	n, ok := l.number("incrby", l.keys[0], l.arg[0])
	if !ok {
		return
	}
	e, ok := l.x.Get(l.keys[0])
	left := ttlOf(e)
	if !ok {
		return
	}
	if left == -1 {
		if _, ok := l.call("expire", l.keys[0], l.arg[1]); !ok {
			return
		}
		s, _ := Integer(l.arg[1])
		left = 1000 * s
	}
	l.pair(n, left)
}
