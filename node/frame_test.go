package node

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/linear"
)

var someJobs = []*job{
	{proto: 2, cmds: [][][]byte{{[]byte("SET"), []byte("k"), []byte("v\x00\xff")}}},
	{proto: 3, multi: true, watch: []watched{{"k", 7}}, cmds: [][][]byte{{[]byte("GET"), []byte("k")}, {[]byte("INCR"), []byte("")}}},
}

func TestJobsReturnAsSent(t *testing.T) {
	for _, j := range someJobs {
		b := j.append(nil)
		got, err := decodeJob(b)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.append(nil), b) || got.multi != j.multi || !reflect.DeepEqual(got.watch, j.watch) {
			t.Errorf("%+v came back as %+v", j, got)
		}
		for i := range b {
			if _, err := decodeJob(b[:i]); err == nil {
				t.Errorf("a job cut to %d of %d bytes was accepted", i, len(b))
			}
		}
	}
	e := linear.Entry[string]{Value: "v", Exists: true, Hit: true, Version: 9, TTL: time.Second}
	if got, err := decodeEntry(appendEntry(nil, e)); err != nil || !reflect.DeepEqual(got, e) {
		t.Errorf("%+v came back as %+v, %v", e, got, err)
	}
}

// FuzzJob: no bytes make a node panic, and what it accepts has one meaning.
func FuzzJob(f *testing.F) {
	for _, j := range someJobs {
		f.Add(j.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		j, err := decodeJob(b)
		if err != nil {
			return
		}
		again, err := decodeJob(j.append(nil))
		if err != nil || !bytes.Equal(again.append(nil), j.append(nil)) {
			t.Fatalf("%x does not survive encoding: %v", b, err)
		}
		_, _ = decodeEntry(b)
	})
}
