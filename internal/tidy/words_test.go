package tidy

import (
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// retired are words that once had a meaning of their own here, and the term of the field that
// stands in their place (docs/glossary.md). A reader should not have to learn ours first.
var retired = map[string]string{
	"life":             "incarnation, of a process; TTL, of a key",
	"origin":           "incarnation",
	"origins":          "incarnations",
	"dotted":           "versioned rows, or journal",
	"bury":             "collect tombstones",
	"buries":           "collects tombstones",
	"buried":           "collected, or replaced by a tombstone",
	"letgo":            "truncate, of a journal; release",
	"let go":           "truncate, of a journal; release",
	"lets go":          "truncates, of a journal; releases",
	"hardened":         "durable",
	"unsettled":        "unresolved",
	"lap":              "stability round",
	"laps":             "stability rounds",
	"greeting":         "resync",
	"greetings":        "resyncs",
	"loan":             "cross-owner transaction",
	"loans":            "cross-owner transactions",
	"lend":             "lock",
	"lends":            "locks",
	"lent":             "locked",
	"borrower":         "coordinator",
	"borrow":           "lock",
	"heir":             "successor",
	"heirs":            "successors",
	"bequeath":         "transfer",
	"inherit":          "take over",
	"inherits":         "takes over",
	"inherited":        "transferred",
	"keeper":           "leader",
	"keepers":          "leaders",
	"desk":             "coordinator",
	"clerk":            "assigner process",
	"misfortune":       "fault",
	"misfortunes":      "faults",
	"introduction":     "takeover announcement",
	"sabotage":         "mutant",
	"sabotages":        "mutants",
	"stands over":      "covers, or is in force for",
	"stand over":       "cover",
	"stood over":       "covered",
	"of the day":       "current",
	"what is there":    "the stored value",
	"past the cache":   "an external write",
	"past every cache": "an external write",
	"past freshet":     "an external write",
}

// Former names stand where a schema is upgraded from the format that had them and where a page
// tells of a renaming. The origin of data is another word.
var formerNames = []string{"store/postgres/schema/", "store/postgres/format_test.go", "store/postgres/journal_test.go",
	"store/postgres/mutants.txt", "internal/tidy/", "docs/decisions/082-", "docs/decisions/084-", "CHANGELOG.md", "bench/linear/testdata/"}

// spared are retired words that stay, by file: a stream of random numbers is named so, and seeds that
// found something would run in another way.
var spared = map[string]string{"sim/stormcrossowner.go": "loans"}

// camel splits an identifier into words, in small letters.
func camel(name string) (words []string) {
	from := 0
	for i, r := range name {
		if i > from && (unicode.IsUpper(r) && !unicode.IsUpper(rune(name[i-1])) || r == '_') {
			words, from = append(words, strings.ToLower(strings.Trim(name[from:i], "_"))), i
		}
	}
	return append(words, strings.ToLower(strings.Trim(name[from:], "_")))
}

// Retired words are in no identifier, comment or text of the code, in no mutant and story, and
// on no page.
func TestRetiredWords(t *testing.T) {
	var list []string
	for w := range retired {
		list = append(list, w)
	}
	phrase := regexp.MustCompile(`(?i)\b(` + strings.Join(list, "|") + `)\b`)
	say := func(where, word string) {
		t.Errorf("%s: %q; the field says: %s", where, word, retired[strings.ToLower(word)])
	}
	out, err := exec.Command("git", "-C", root, "ls-files", "*.go", "*.md", "*.txt", "*.sql").Output()
	if err != nil {
		t.Skip("not a git checkout: ", err)
	}
	for _, name := range strings.Fields(string(out)) {
		former := false
		for _, p := range formerNames {
			former = former || strings.HasPrefix(name, p)
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		switch {
		case os.IsNotExist(err), former:
			continue
		case err != nil:
			t.Fatal(err)
		case strings.HasSuffix(name, ".go"):
			retiredInGo(name, text, phrase, func(where, word string) {
				if strings.ToLower(word) != spared[name] {
					say(where, word)
				}
			})
		default:
			for _, w := range phrase.FindAllString(string(text), -1) {
				say(name, w)
			}
		}
	}
}

func retiredInGo(name string, text []byte, phrase *regexp.Regexp, say func(where, word string)) {
	set := token.NewFileSet()
	file := set.AddFile(name, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	for {
		pos, kind, lit := s.Scan()
		switch kind {
		case token.EOF:
			return
		case token.COMMENT, token.STRING:
			for _, w := range phrase.FindAllString(lit, -1) {
				say(set.Position(pos).String(), w)
			}
		case token.IDENT:
			for _, w := range camel(lit) {
				if retired[w] != "" {
					say(set.Position(pos).String()+": "+lit, w)
				}
			}
		}
	}
}
