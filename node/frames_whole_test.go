package node

import (
	"reflect"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/redis/tracking"
)

// Every part of a job reaches the node that runs it: who tracks, how long it may take, what was
// watched, and each argument.
func TestJobsReachTheOwnerWhole(t *testing.T) {
	cmds := [][][]byte{{[]byte("SET"), []byte("k"), {}}, {[]byte("GET"), []byte("k")}}
	for _, j := range []*job{
		{proto: 2, cmds: cmds[:1]},
		{proto: 3, track: true, cmds: cmds[1:]},
		{proto: 3, by: 1 << 40, within: 1500 * time.Millisecond, cmds: cmds},
		{proto: 2, multi: true, track: true, by: 7, within: maxWithin * time.Millisecond, watch: []watched{{"", 0}, {"k", 1 << 50}}, cmds: cmds},
	} {
		got, err := decodeJob(j.append(nil))
		if err != nil || !reflect.DeepEqual(got, j) {
			t.Errorf("%+v is read as %+v, %v", j, got, err)
		}
		testkit.Whole(t, "a job", j.append(nil), map[int]byte{0: 1, 1: 1, 3: 0x80}, func(b []byte) error { _, err := decodeJob(b); return err })
	}
	long := &job{proto: 2, within: 10 * maxWithin * time.Millisecond, cmds: cmds}
	if got, err := decodeJob(long.append(nil)); err != nil || got.within != maxWithin*time.Millisecond {
		t.Errorf("a job without end may take %v: %v", got.within, err)
	}
	for _, proto := range []int{1, 4} {
		if _, err := decodeJob((&job{proto: proto, cmds: cmds}).append(nil)); err == nil {
			t.Errorf("protocol %d is taken", proto)
		}
	}
	if _, err := decodeJob((&job{proto: 2, cmds: [][][]byte{{}}}).append(nil)); err == nil {
		t.Error("a command without a name is taken")
	}
}

// A row that another node has read arrives with what is known of it.
func TestEntriesArriveWhole(t *testing.T) {
	for _, e := range []linear.Entry[string]{
		{}, {Version: 300}, {Exists: true}, {Exists: true, Value: "v", Version: 1, TTL: time.Hour}, {Hit: true, Version: 5}, {Exists: true, Hit: true, Value: "long value"},
	} {
		b := appendEntry(nil, e)
		if got, err := decodeEntry(b); err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%+v is read as %+v, %v", e, got, err)
		}
		for i := range len(b) - len(e.Value) {
			if _, err := decodeEntry(b[:i]); err == nil {
				t.Errorf("%+v: the first %d bytes are taken", e, i)
			}
		}
		b[0] += 4
		if _, err := decodeEntry(b); err == nil {
			t.Errorf("%+v: an unknown flag is taken", e)
		}
	}
}

// Each request takes the link that is meant for it, so that neither leases nor what tracking clients
// are told of wait behind large values.
func TestRequestsHaveTheirLanes(t *testing.T) {
	run := func(j job) []byte { j.proto = 2; return j.append(nil) }
	for in, frames := range map[peer.Lane][][]byte{
		peer.Reads:   {{frameVersion, frameRead, 'k'}, {frameVersion, frameStamp, 'k'}},
		peer.Writes:  {run(job{}), run(job{track: true, multi: true})},
		peer.Tracked: {run(job{by: 7}), run(job{by: 7, multi: true, track: true})},
		peer.Control: {{frameVersion, frameLease}, {frameVersion, frameHello}, {frameVersion, frameMembers}, {frameVersion, tracking.Acquired}},
	} {
		for _, f := range frames {
			if got := laneOf(f); got != in {
				t.Errorf("a frame of kind %c takes lane %d, want %d", f[1], got, in)
			}
		}
	}
}
