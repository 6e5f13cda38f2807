package redis

import (
	"strings"
	"sync"
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

const (
	maxScript = 16 << 10 // longer texts are none of the table
	maxLoaded = 1024
)

// loaded are the scripts that clients have sent, by the SHA-1 of their texts, and what
// they are in the table. A client whose script was forgotten sends it again.
type loaded struct {
	mu  sync.Mutex
	all map[string]string // to the name in the table
}

var scriptCache loaded

// load finds out which script of the table a text is.
func (l *loaded) load(text []byte) (sha string, ok bool) {
	sha = fingerprint(text)
	if l.has(sha) {
		return sha, true
	}
	if len(text) > maxScript {
		return sha, false
	}
	p, ok := plain(string(text))
	if !ok {
		return sha, false
	}
	name := fingerprint([]byte(p))
	if _, ok := scripts[name]; !ok {
		return sha, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil || len(l.all) >= maxLoaded {
		l.all = map[string]string{}
	}
	l.all[sha] = name
	return sha, true
}

// name is what a script is called in the table, by the SHA-1 of its text.
func (l *loaded) name(sha string) string {
	if _, ok := scripts[sha]; ok {
		return sha
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[sha]
}

func (l *loaded) has(sha string) bool { return l.name(sha) != "" }

// flush forgets what clients have sent.
func (l *loaded) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.all)
}
