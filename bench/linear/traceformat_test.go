package linear

import (
	"fmt"
	"strings"
	"testing"
)

// shape is a recording with the keys by the order in which they first come.
func shape(r *recording) string {
	seen := map[uint32]int{}
	var out []string
	for i, k := range r.keys {
		if _, ok := seen[k]; !ok {
			seen[k] = len(seen)
		}
		what := "r"
		switch {
		case r.writes == nil:
			what = ""
		case r.writes[i]:
			what = "w"
		}
		out = append(out, fmt.Sprint(what, seen[k]))
	}
	return strings.Join(out, " ")
}

func TestTraceFormats(t *testing.T) {
	for _, c := range []struct{ name, file, text, want string }{
		{"one column", "a.csv", "user:1\nuser:2\nuser:1\n", "0 1 0"},
		{"a header", "a", "time,op,key\n1,get,a\n2,SET,b\n3,delete,a\n", "r0 w1 w0"},
		{"a header without an operation", "a.csv", "timestamp,object_id,size\n1,77,5\n2,78,6\n", "0 1"},
		{"key and operation", "a", "a,get\nb,set\na,get\n", "r0 w1 r0"},
		{"operation and key", "a", "get,a\nset,b\n", "r0 w1"},
		{"Twitter's", "cluster026", "0,kq1,18,100,1,get,0\n1,kq2,18,100,1,set,900\n", "r0 w1"},
		{"MONITOR", "a", "OK\n1339518083.107412 [0 127.0.0.1:60866] \"keys\" \"*\"\n1339518087.877697 [0 127.0.0.1:60866] \"set\" \"a b\\\"\\x00\" \"v\"\n" +
			"1339518090.420270 [0 lua] \"get\" \"a b\\\"\\x00\"\n1339518096.506257 [3 unix:/x] \"MGET\" \"x\" \"y\"\n1339518099.363765 [0 [::1]:1] \"mset\" \"x\" \"1\" \"z\" \"2\"\n1.1 [0 a] \"ping\"\n", "w0 r0 r1 r2"},
	} {
		r, err := parseTrace(c.file, strings.NewReader(c.text), 100)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := shape(r); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	for name, text := range map[string]string{"a.csv": "", "b.csv": "key,op\na,fly\n", "c.csv": "time,key\n1\n", "d": "1.5 [0 x] \"get\" \"a\n", "e": "1.5 [0 x] \"ping\"\n", "f": "abc"} {
		if r, err := parseTrace(name, strings.NewReader(text), 100); err == nil {
			t.Errorf("%q was read as %v", text, r)
		}
	}
	if r, err := parseTrace("a.csv", strings.NewReader(strings.Repeat("a\n", 100)), 7); err != nil || len(r.keys) != 7 {
		t.Error(r, err)
	}
}

// A trace that says which accesses are writes has just these.
func TestTracesKeepTheirWrites(t *testing.T) {
	r, err := parseTrace("a", strings.NewReader("a,get\nb,set\na,get\n"), 100)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range inject(r, 1, 2, 3) {
		if a.write != (i == 1) {
			t.Errorf("access %d is a write: %v", i, a.write)
		}
	}
}

// FuzzTrace: any text is a trace, or an error.
func FuzzTrace(f *testing.F) {
	f.Add("a,get\nb,set\n")
	f.Add("1.5 [0 x] \"get\" \"a\\x41\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := parseTrace("any", strings.NewReader(text), 50); err == nil && (len(r.keys) == 0 || len(r.keys) > 50 || r.writes != nil && len(r.writes) != len(r.keys)) {
			t.Error(len(r.keys), len(r.writes))
		}
	})
}
