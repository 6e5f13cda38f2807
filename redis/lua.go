package redis

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
)

// plain is a Lua script as the table of scripts has it: without comments, with one space
// between tokens, strings in double quotes, and names of commands in lower case. Scripts
// that differ only in these are one. A text that is not complete has none.
func plain(text string) (string, bool) {
	var out []string
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ';':
			i++
		case strings.HasPrefix(text[i:], "--[["):
			end := strings.Index(text[i:], "]]")
			if end < 0 {
				return "", false
			}
			i += end + 2
		case strings.HasPrefix(text[i:], "--"):
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case c == '"' || c == '\'':
			end := strings.IndexByte(text[i+1:], c)
			if end < 0 {
				return "", false
			}
			s := text[i+1 : i+1+end]
			if strings.ContainsAny(s, "\\\"'\n") {
				return "", false // no script of the table has such a string
			}
			if n := len(out); n > 3 && out[n-1] == "(" && (out[n-2] == "call" || out[n-2] == "pcall") {
				s = strings.ToLower(s)
			}
			out = append(out, `"`+s+`"`)
			i += end + 2
		case word(c):
			j := i
			for j < len(text) && word(text[j]) {
				j++
			}
			out = append(out, text[i:j])
			i = j
		default:
			n := 1
			for _, op := range []string{"==", "~=", "<=", ">=", ".."} {
				if strings.HasPrefix(text[i:], op) {
					n = 2
				}
			}
			out = append(out, text[i:i+n])
			i += n
		}
	}
	return strings.Join(out, " "), true
}

func word(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
}

func fingerprint(text []byte) string {
	sum := sha1.Sum(text)
	return hex.EncodeToString(sum[:])
}
