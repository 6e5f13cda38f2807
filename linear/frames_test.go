package linear

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/linear/crossowner"
	"github.com/freshet-cache/freshet/shard/lease"
	"github.com/freshet-cache/freshet/store/memory"
)

// other is a cluster of two, whose other node owns every key and answers as a test says.
type other struct {
	asked []byte
	reply []byte
	err   error
}

func (o *other) Join(Participant)    {}
func (o *other) Owner(string) string { return "there" }
func (o *other) Self() string        { return "here" }
func (o *other) Call(_ context.Context, _ string, request []byte) ([]byte, error) {
	o.asked = request
	return o.reply, o.err
}

// Entries that are handed over arrive as they were sent, or not at all: what is cut short,
// has a byte too many, or a flag that nobody knows, is refused and nothing of it is taken.
func TestOffersAreTakenWhole(t *testing.T) {
	peers := &other{reply: []byte{sayYes}}
	c := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String(), Peers: peers})
	batch := []moved{{Key: "a", Value: []byte("v"), Exists: true, Version: 300}, {Key: "b", Value: []byte{}, Version: 2}, {Key: "c", Value: []byte{}, Exists: true, Bare: true, Version: 1 << 40}}
	for n := range len(batch) + 1 {
		c.offerPeers(t.Context(), "there", 77, batch[:n])
		if peers.asked[0] != askOffer {
			t.Fatalf("%q", peers.asked)
		}
		read := func(b []byte) (lease.Gen, []moved, bool) { f := read(b); return f.offers() }
		after, got, ok := read(peers.asked[1:])
		if !ok || after != 77 || len(got) != n || n > 0 && !reflect.DeepEqual(got, batch[:n]) {
			t.Errorf("%d entries arrive as %+v after %d, %v", n, got, after, ok)
		}
		for i := 1; i < len(peers.asked); i++ {
			if _, _, ok := read(peers.asked[1:i]); ok {
				t.Errorf("%d of %d bytes are taken", i, len(peers.asked))
			}
			if reply := c.serve(t.Context(), peers.asked[:i]); reply[0] != sayError {
				t.Errorf("%d of %d bytes are answered with %q", i, len(peers.asked), reply)
			}
		}
		if _, _, ok := read(append(peers.asked[1:len(peers.asked):len(peers.asked)], 0)); ok {
			t.Error("a byte too many is taken")
		}
		if reply := c.serve(t.Context(), peers.asked); reply[0] != sayYes {
			t.Errorf("answered with %q", reply)
		}
	}
	for flag := range byte(8) {
		f := read([]byte{5, 1, flag, 2, 1, 'k', 0})
		if _, _, ok := f.offers(); ok != (flag < 4) {
			t.Errorf("flag %d: %v", flag, ok)
		}
	}
}

// What an owner answers to a read is taken if it is whole and means something; else the
// store is read.
func TestRepliesOfOwners(t *testing.T) {
	peers := &other{}
	c := open(t, Options[string]{Store: memory.New(memory.Options{}), Codec: String(), Peers: peers})
	row := func(flag byte, version uint64, value string) []byte {
		return append(binary.AppendUvarint([]byte{sayYes, flag}, version), value...)
	}
	for name, r := range map[string]struct {
		reply []byte
		err   error
		want  Entry[string]
		ok    bool
	}{
		"a value":       {row(1, 300, "v"), nil, Entry[string]{Value: "v", Exists: true, Version: 300}, true},
		"absence":       {row(0, 7, ""), nil, Entry[string]{Version: 7}, true},
		"a new flag":    {row(2, 7, "v"), nil, Entry[string]{}, false},
		"no version":    {[]byte{sayYes, 1}, nil, Entry[string]{}, false},
		"half a number": {[]byte{sayYes, 1, 0x80}, nil, Entry[string]{}, false},
		"nothing":       {[]byte{sayYes}, nil, Entry[string]{}, false},
		"no reply":      {nil, nil, Entry[string]{}, false},
		"not the owner": {[]byte{sayNotOwner}, nil, Entry[string]{}, false},
		"busy":          {[]byte{sayBusy}, nil, Entry[string]{}, false},
		"an error":      {[]byte("e why"), nil, Entry[string]{}, false},
		"unreached":     {nil, ErrUnreached, Entry[string]{}, false},
	} {
		peers.reply, peers.err = r.reply, r.err
		e, ok := c.fetch(t.Context(), "k")
		if ok != r.ok || ok && e != r.want || string(peers.asked) != "r\x01k" {
			t.Errorf("%s: %+v, %v (asked %q)", name, e, ok, peers.asked)
		}
	}
	id := clink.ID{1}
	for n, want := range map[int]error{0: errRequest, 31: errRequest, 32: nil, 33: errRequest, 48: errRequest} {
		peers.reply, peers.err = append([]byte{sayYes}, make([]byte, n)...), nil
		for i := range n {
			peers.reply[1+i] = byte(i)
		}
		guards, err := c.askToLock(t.Context(), "there", id, []string{"a", "b"})
		if !errors.Is(err, want) || err == nil && (len(guards) != 2 || guards[0][15] != 15 || guards[1][0] != 16) {
			t.Errorf("%d bytes of guards: %v, %v", n, guards, err)
		}
	}
	for reply, want := range map[string]crossowner.Outcome{"y": crossowner.Unknown, "y\x00": crossowner.Outcome(0), "y\x00\x00": crossowner.Unknown, "y\xff": crossowner.Unknown, "n": crossowner.Unknown, "": crossowner.Unknown,
		fmt.Sprintf("y%c", crossowner.Unknown+1): crossowner.Unknown} {
		peers.reply, peers.err = []byte(reply), nil
		if got := c.askToSettle(t.Context(), "there", id, crossowner.StatusUnknown); got != want {
			t.Errorf("settled with %q: %v, want %v", reply, got, want)
		}
	}
}
