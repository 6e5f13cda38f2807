package linear

import (
	"embed"
	"fmt"
	"strings"

	"github.com/freshet-cache/freshet/bench/kit"
)

//go:embed testdata/lobsters/*.dat
var lobstersData embed.FS

const lobstersSource = "generated from lobste.rs' production statistics of 2018 (trawler, MIT or Apache-2.0): mix of requests, votes and comments by story, user and comment"

// bins reads a histogram of lobsters: how many objects have a number of votes, in bins of a width.
// The probability of an object is proportional to its votes.
func bins(name string, width float64) (*histogram, error) {
	b, err := lobstersData.ReadFile("testdata/lobsters/" + name + ".dat")
	if err != nil {
		return nil, err
	}
	h := &histogram{}
	for line := range strings.Lines(string(b)) {
		var votes float64
		var n int
		if _, err := fmt.Sscan(line, &votes, &n); err != nil {
			return nil, fmt.Errorf("%s.dat: %q: %w", name, line, err)
		}
		h.add(n, float64(n)*(votes+width/2))
	}
	return h, nil
}

// mixOf reads the frequencies of requests in lobsters, in the order of the file.
func mixOf() (names []string, h *histogram, err error) {
	b, err := lobstersData.ReadFile("testdata/lobsters/requests.dat")
	if err != nil {
		return nil, nil, err
	}
	h = &histogram{}
	for line := range strings.Lines(string(b)) {
		var n float64
		var percent, method, path string
		if _, err := fmt.Sscan(line, &n, &percent, &method, &path); err != nil {
			return nil, nil, fmt.Errorf("requests.dat: %q: %w", line, err)
		}
		names = append(names, method+" "+path)
		h.add(1, n)
	}
	return names, h, nil
}

// page is how many rows a page of lobsters with a list shows.
const page = 25

// lobsters makes n requests of a web site over a database. A page is composed of rows. The front
// page shows the 25 stories with the most votes, so a vote for one of them changes the result of
// nearly a third of the requests.
func lobsters(n int, rate float64, seed uint64) (*workload, error) {
	b, r := build("lobsters", rate), kit.Stream(seed, 22)
	b.w.source = lobstersSource + "; the front page reads the rows of 25 stories, lists of the newest stories and comments 25 rows each; a vote, comment or login writes one row; sizes of rows are ours: 1 KB a story, 200 B a user, 300 B a comment"
	kinds, kind, err := mixOf()
	if err != nil {
		return nil, err
	}
	stories, err1 := bins("votes_per_story", 10)
	commented, err2 := bins("comments_per_story", 10)
	users, err3 := bins("votes_per_user", 100)
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			return nil, err
		}
	}
	row := map[string]int{"story": 1000, "new": 1000, "user": 200, "comment": 300}
	one := func(kind string, id int) int32 { return b.row(fmt.Sprintf("%s:%06d", kind, id), row[kind]) }
	list := func(kind string, from int) (out []int32) {
		for i := range page {
			out = append(out, one(kind, from+i))
		}
		return out
	}
	last := stories.first[len(stories.first)-1] + stories.n[len(stories.n)-1] - page
	for range n {
		switch name := kinds[kind.draw(r)]; {
		case name == "GET /":
			b.read(list("story", last)...) // stories are in the order of their votes
		case name == "GET /recent[/X]":
			b.read(list("new", 0)...)
		case name == "GET /comments[/X]":
			b.read(list("comment", 0)...)
		case name == "GET /u/X":
			b.read(one("user", users.draw(r)))
		case strings.HasPrefix(name, "GET"):
			b.read(one("story", stories.draw(r)))
		case name == "POST /stories":
			b.write(one("new", r.IntN(page)), row["new"])
		case name == "POST /login", name == "POST /logout":
			b.write(one("user", users.draw(r)), row["user"])
		case strings.HasPrefix(name, "POST /stories"):
			b.write(one("story", stories.draw(r)), row["story"])
		default: // a comment or a vote for it changes the page of the story
			b.write(one("story", commented.draw(r)), row["story"])
		}
	}
	return b.w, nil
}
