package redis

import (
	"sync"
)

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
