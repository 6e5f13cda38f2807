package causalbase

import (
	"reflect"
	"testing"
)

// What baselines say comes back as it was, and what a commit needs of itself has its number.
func TestMessagesComeBack(t *testing.T) {
	needs := deps{{"a", 7}, {"k", 300}, {"l", 300}}
	v := &version{"value", 300, needs}
	all := []*version{v, nil, {value: "", seq: 1 << 40}}
	if got := read(appendVersions(nil, all)).versions(3); !reflect.DeepEqual(got, all) {
		t.Errorf("%v came back as %v", all, got)
	}
	if got := read(appendBody(nil, v.value, deps{{"a", 7}, {"k", 1<<64 - 1}, {"l", 1<<64 - 1}}, 1<<64-1)).body(300); !reflect.DeepEqual(got, v) {
		t.Errorf("%v came back as %v", v, got)
	}
	c := cut{[]setting{{"k", &version{value: "v", seq: 300}}}, needs}
	if got := read(c.append(nil)).cut(); !reflect.DeepEqual(got, c) {
		t.Errorf("%v came back as %v", c, got)
	}
	if keys := []string{"", "b", "ccc"}; !reflect.DeepEqual(read(appendTexts(nil, keys)).texts(), keys) {
		t.Error("keys did not come back")
	}
}

// The feed tells what a cache lacks, and who sees one write of a commit needs the others.
func TestFeed(t *testing.T) {
	w, err := NewWorld(1, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r := newRows(w, map[string]string{"a": "-0"})
	r.put([]setting{{"a", &version{value: "1"}}}, nil)
	r.put([]setting{{"c", &version{value: "2"}}, {"b", &version{value: "3"}}}, deps{{"a", 1}})
	feed, upto := r.since(1)
	want := []setting{{"c", &version{"2", 2, deps{{"a", 1}, {"b", 2}, {"c", 2}}}}, {"b", &version{"3", 2, deps{{"a", 1}, {"b", 2}, {"c", 2}}}}}
	if got := told(feed); upto != 2 || !reflect.DeepEqual(got, want) {
		t.Errorf("told of %v up to %d", got, upto)
	}
	if got, at := r.get([]string{"a", "x"}); at != 2 || got[0].value != "1" || got[0].seq != 1 || got[1] != nil {
		t.Errorf("read %v at %d", got, at)
	}
	r.trim(1)
	if feed, _ := r.since(0); len(told(feed)) != 2 {
		t.Error("trimmed too much, or too little")
	}
}
