package redis

import "strings"

// glob matches as Redis does: * ? [a-z] [^a] and \ before a character. It takes
// time in proportion to the product of the lengths at most.
func Match(pattern, s string) bool {
	star, back := -1, 0
	p, i := 0, 0
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			star, back = p, i
			p++
			continue
		}
		if n := one(pattern[p:], s[i]); n > 0 {
			p += n
			i++
			continue
		}
		if star < 0 {
			return false
		}
		back++
		p, i = star+1, back
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// one matches one character; the result is the length of the pattern used.
func one(pattern string, c byte) int {
	switch {
	case pattern == "":
		return 0
	case pattern[0] == '?':
		return 1
	case pattern[0] == '[':
		n, ok := class(pattern[1:], c)
		if !ok {
			return 0
		}
		return n + 1
	case pattern[0] == '\\' && len(pattern) > 1:
		if pattern[1] == c {
			return 2
		}
		return 0
	case pattern[0] == c:
		return 1
	}
	return 0
}

// class matches the inside of brackets, n bytes with the closing one. Without a
// closing one it goes to the end of the pattern, and characters are signed: both
// as in Redis.
func class(pattern string, c byte) (n int, ok bool) {
	not := strings.HasPrefix(pattern, "^")
	if not {
		n++
	}
	for ; n < len(pattern) && pattern[n] != ']'; n++ {
		switch rest := pattern[n:]; {
		case rest[0] == '\\' && len(rest) > 1:
			n++
			ok = ok || rest[1] == c
		case len(rest) > 2 && rest[1] == '-':
			n += 2
			low, high := int8(rest[0]), int8(rest[2])
			ok = ok || min(low, high) <= int8(c) && int8(c) <= max(low, high)
		default:
			ok = ok || rest[0] == c
		}
	}
	return min(n+1, len(pattern)), ok != not
}
