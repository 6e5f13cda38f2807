package node

import (
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/link"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/resp"
)

// standIn makes the requests of a node to another one, in one lane, go to a function. It returns how
// many there were.
func standIn(t *testing.T, from *Node, to string, in peer.Lane, answer func(frame []byte) []byte) *atomic.Int64 {
	t.Helper()
	var asked atomic.Int64
	ours, theirs := net.Pipe()
	l := link.New(ours, nil, link.Options{})
	far := link.New(theirs, nil, link.Options{Message: func([]byte) {}, Request: func(_ context.Context, f []byte) []byte {
		asked.Add(1)
		return answer(f)
	}})
	t.Cleanup(func() { far.Close(); l.Close() })
	from.peers.Use(to, in, l)
	return &asked
}

func entryOf(value string) linear.Entry[string] {
	return linear.Entry[string]{Exists: true, Value: value}
}

func always(b ...byte) func([]byte) []byte { return func([]byte) []byte { return b } }

// What an owner answers that cannot be read, or that it cannot answer, is read from the store, and the owner is asked
// once. So is the version of a key.
func TestAnOwnerThatCannotAnswerARead(t *testing.T) {
	p, _, theirs := twoNodes(t, func(c *Config) { c.Timeout = 20 * time.Second })
	n, c := p.nodes[0], dial(t, p.nodes[0].addr)
	c.answers("OK", "SET", theirs[0], "stored")
	version := c.do("FR.VERSION", theirs[0]).String()
	now := n.shard.Table().Version
	lie := appendEntry([]byte{answerError}, entryOf("lie"))
	for what, b := range map[string][]byte{
		"nothing": {}, "an answer cut short": {answerDone}, "an error": lie, "an entry cut short": {answerDone, 3},
		"an old table": binary.AppendUvarint([]byte{answerNotOwner}, now-1), "the same table": binary.AppendUvarint([]byte{answerNotOwner}, now),
		"a table that never comes": binary.AppendUvarint([]byte{answerNotOwner}, now+1), "no version of the table": {answerNotOwner},
	} {
		asked := standIn(t, n, p.nodes[1].addr, peer.Reads, always(b...))
		if r := c.do("GET", theirs[0]); r.Text != "stored" || asked.Load() != 1 {
			t.Errorf("%s: GET answers %v, and the owner was asked %d times", what, r, asked.Load())
		}
	}
	stamp := func(kind, exists byte, rest ...byte) []byte { return append([]byte{kind, exists}, rest...) }
	for what, b := range map[string][]byte{
		"nothing": {}, "an answer cut short": {answerDone}, "no version": stamp(answerDone, 1), "a version cut short": stamp(answerDone, 1, 0x80),
		"an error": stamp(answerError, 1, 7), "not the owner": stamp(answerNotOwner, 1, 7),
	} {
		asked := standIn(t, n, p.nodes[1].addr, peer.Reads, always(b...))
		if r := c.do("FR.VERSION", theirs[0]); r.String() != version || asked.Load() != 1 {
			t.Errorf("%s: FR.VERSION answers %v, want %s, and the owner was asked %d times", what, r, version, asked.Load())
		}
	}
	for exists, want := range map[byte]string{0: "[7 0]", 1: "[7 1]", 2: "[7 0]"} {
		standIn(t, n, p.nodes[1].addr, peer.Reads, always(stamp(answerDone, exists, 7)...))
		c.answers(want, "FR.VERSION", theirs[0])
	}
}

// A replica that does not serve a key any more sends the read to the owner, not to another replica or the store.
func TestAReplicaThatRefusesARead(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes, c.Lease = 4, time.Hour })
	copies, owner := replicate(t, p, "hot", 2)
	outside := p.nodes[0]
	for _, n := range p.nodes {
		if n != owner && n != copies[0] && n != copies[1] {
			outside = n
		}
	}
	c := dial(t, outside.addr)
	c.answers("OK", "SET", "hot", "v")
	var refused int64
	var refusals []*atomic.Int64
	for _, n := range copies {
		refusals = append(refusals, standIn(t, outside, n.addr, peer.Reads, always(answerNotOwner, 0)))
	}
	missed, own := outside.m.missed.Load(), metric(t, owner, "freshet_reads_total", "source", "memory", "for", "node")
	for range 12 {
		c.answers("v", "GET", "hot")
	}
	for _, r := range refusals {
		refused += r.Load()
	}
	if served := metric(t, owner, "freshet_reads_total", "source", "memory", "for", "node") - own; refused != 8 || served != 12 || outside.m.missed.Load() != missed {
		t.Errorf("of 12 reads the replicas refused %d, the owner served %v, and the store %d", refused, served, outside.m.missed.Load()-missed)
	}
}

// What the owner of a key says to a write is what the client reads. If the owner has done nothing, the write goes there
// again.
func TestWhatAnOwnerSaysToAWrite(t *testing.T) {
	p, _, theirs := twoNodes(t, nil)
	c, to := dial(t, p.nodes[0].addr), p.nodes[1].addr
	for says, b := range map[string][]byte{"OOM full": append([]byte{answerError}, "OOM full"...), "7": append([]byte{answerDone}, ":7\r\n"...)} {
		asked := standIn(t, p.nodes[0], to, peer.Writes, always(b...))
		if c.answers(says, "INCR", theirs[0]); asked.Load() != 1 {
			t.Errorf("%s: the owner was asked %d times", says, asked.Load())
		}
	}
	for what, b := range map[string][]byte{"not the owner": {answerNotOwner}, "nothing": {}, "what cannot be read": {99}} {
		answers := 0
		asked := standIn(t, p.nodes[0], to, peer.Writes, func([]byte) []byte {
			if answers++; answers < 3 {
				return b
			}
			return append([]byte{answerDone}, ":8\r\n"...)
		})
		if c.answers("8", "INCR", theirs[0]); asked.Load() != 3 {
			t.Errorf("%s: the owner was asked %d times", what, asked.Load())
		}
	}
	asked := standIn(t, p.nodes[0], to, peer.Writes, always(answerNotOwner))
	if c.answers("TRYAGAIN nothing was written", "INCR", theirs[0]); asked.Load() < 2 {
		t.Errorf("the owner was asked %d times", asked.Load())
	}
}

// A transaction of a client that tracks says to the owner who it is and, if the transaction reads, that the client is to be
// told of writes. When the link breaks, the client forgets what it has read over it.
func TestTransactionsOfClientsThatTrack(t *testing.T) {
	p, _, theirs := twoNodes(t, nil)
	n, to := p.nodes[0], p.nodes[1].addr
	var flags atomic.Int64
	answer := func(f []byte) []byte {
		if f[1] == frameRun {
			flags.Store(int64(f[3]))
			return append([]byte{answerDone}, "*1\r\n:1\r\n"...)
		}
		return nil
	}
	c := tracker(t, n.addr)
	for _, x := range []struct {
		who   *wire
		does  string
		flags int64
	}{{c, "STRLEN", jobMulti | jobTrack | jobBy}, {c, "INCR", jobMulti | jobBy}, {dial(t, n.addr), "STRLEN", jobMulti}} {
		for _, lane := range []peer.Lane{peer.Tracked, peer.Writes} {
			standIn(t, n, to, lane, answer)
		}
		x.who.answers("OK", "MULTI")
		x.who.answers("QUEUED", x.does, theirs[0])
		if x.who.answers("[1]", "EXEC"); flags.Load() != x.flags {
			t.Errorf("%s: the owner is sent the flags %b, want %b", x.does, flags.Load(), x.flags)
		}
		if x.flags&jobTrack != 0 {
			c.hears()
			breakLink(t, n.peers, to, peer.Tracked)
			told := ""
			testkit.True(t, "the client forgets what it has read", func() bool { told += strings.Join(c.told(), ""); return told != "" })
			if told != "[invalidate ["+theirs[0]+"]]" {
				t.Errorf("told %s", told)
			}
		}
	}
}

// A client that tracks is told at once to forget what its owner did not answer: nobody would tell it of a write.
func TestATrackedReadThatItsOwnerDoesNotAnswer(t *testing.T) {
	p, _, _ := twoNodes(t, nil)
	n, to, keys := p.nodes[0], p.nodes[1].addr, keysByNode(t, p, 5)[1]
	c := tracker(t, n.addr)
	for what, b := range map[string][]byte{"nothing": {}, "an error": appendEntry([]byte{answerError}, entryOf("lie")), "an entry cut short": {answerDone, 3}, "not the owner": {answerNotOwner, 0}} {
		key := keys[0]
		keys = keys[1:]
		dial(t, n.addr).answers("OK", "SET", key, "stored")
		asked := standIn(t, n, to, peer.Tracked, func(f []byte) []byte {
			if f[1] != frameTrack {
				t.Errorf("the owner is asked with %q", f)
			}
			return b
		})
		if c.answers("stored", "GET", key); asked.Load() != 1 {
			t.Errorf("%s: the owner was asked %d times", what, asked.Load())
		}
		c.hears("[invalidate [" + key + "]]")
	}
	standIn(t, n, to, peer.Tracked, always(appendEntry([]byte{answerDone}, entryOf("of the owner"))...))
	c.answers("of the owner", "GET", keys[0])
	c.hears()
}

// A client at a node with a replica keeps what it has read until somebody writes the key: its owner knows of it.
func TestATrackedReadBesideAReplicaIsKept(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes, c.Lease = 3, time.Hour })
	copies, owner := replicate(t, p, "hot", 2)
	w := dial(t, owner.addr)
	for _, read := range []string{"GET", "MGET", "STRLEN"} {
		for _, n := range copies {
			w.answers("OK", "SET", "hot", "v")
			c, asked := tracker(t, n.addr), metric(t, n, "freshet_forwarded_total", "kind", "read")
			testkit.True(t, "what was read is kept", func() bool { return c.do(read, "hot").Kind != '-' && len(c.told()) == 0 })
			if metric(t, n, "freshet_forwarded_total", "kind", "read") == asked {
				t.Errorf("%s at %s does not ask the owner", read, n.id)
			}
			w.answers("OK", "SET", "hot", "w")
			c.hears("[invalidate [hot]]")
		}
	}
}

// A node that keeps only versions reads values from the store, and asks the owner for clients that track.
func TestValuesOfANodeThatKeepsVersions(t *testing.T) {
	p, mine, theirs := twoNodes(t, func(c *Config) { c.VersionsOnly = true })
	n := p.nodes[0]
	forwarded := func() float64 { return metric(t, n, "freshet_forwarded_total", "kind", "read") }
	w, was := dial(t, n.addr), forwarded()
	for _, key := range []string{mine[0], theirs[0]} {
		w.answers("OK", "SET", key, "v")
		w.answers("v", "GET", key)
	}
	if got := forwarded() - was; got != 0 {
		t.Errorf("%v reads were forwarded", got)
	}
	c := tracker(t, n.addr)
	for i, key := range []string{mine[0], theirs[0]} {
		c.answers("v", "GET", key)
		if got := forwarded() - was; got != float64(i) {
			t.Errorf("after the tracked read of %s %v reads were forwarded", key, got)
		}
		c.hears()
		w.answers("OK", "SET", key, "w")
		c.hears("[invalidate [" + key + "]]")
	}
}

// A client is told when a key expires that it has read, however it has read it, and from wherever.
func TestExpiryIsToldHoweverAKeyWasRead(t *testing.T) {
	type reads struct {
		c   *wire
		key string
	}
	var all []reads
	for _, only := range []bool{false, true} { // with only versions in memory, values are read from the store
		p, _, _ := twoNodes(t, func(c *Config) { c.VersionsOnly = only })
		w := dial(t, p.nodes[1].addr)
		for _, keys := range keysByNode(t, p, 5) {
			for i, read := range []string{"GET", "MGET", "GET"} {
				w.answers("OK", "SET", keys[i], "v", "PX", "1000")
				c := tracker(t, p.nodes[0].addr)
				all = append(all, reads{c, keys[i]})
				if i < 2 {
					c.do(read, keys[i])
					continue
				}
				if _, err := c.nc.Write(resp.AppendCommand(resp.AppendCommand(nil, read, keys[i]), read, keys[i])); err != nil { // two that arrive together
					t.Fatal(err)
				}
				c.reply()
				c.reply()
			}
			w.answers("OK", "SET", keys[4], "v")
			own := tracker(t, p.nodes[0].addr, "noloop")
			own.answers("OK", "MULTI")
			own.answers("QUEUED", "GET", keys[4])
			own.answers("QUEUED", "PEXPIRE", keys[4], "1000")
			own.answers("[v 1]", "EXEC")
			all = append(all, reads{own, keys[4]})
			w.answers("OK", "SET", keys[3], "v", "PX", "1000")
			c := tracker(t, p.nodes[0].addr)
			c.answers("OK", "MULTI")
			c.answers("QUEUED", "GET", keys[3])
			c.answers("[v]", "EXEC")
			all = append(all, reads{c, keys[3]})
		}
	}
	for _, x := range all {
		_ = x.c.nc.SetDeadline(time.Now().Add(testkit.Limit))
		if r := x.c.reply(); r.String() != "[invalidate ["+x.key+"]]" {
			t.Errorf("told %v", r)
		}
	}
}
