package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freshet-cache/freshet/internal/packed"
	"github.com/freshet-cache/freshet/internal/testkit"
	"github.com/freshet-cache/freshet/peer"
	"github.com/freshet-cache/freshet/redis/tracking"
	"github.com/freshet-cache/freshet/resp"
)

// answeredBy asks a node as another node does, and returns the kind of the answer and the rest.
func answeredBy(t *testing.T, n *Node, over *tracking.Asker, frame []byte) (kind byte, rest string) {
	t.Helper()
	b := n.serve(t.Context(), frame, over)
	if len(b) == 0 {
		t.Fatalf("%q has no answer", frame)
	}
	return b[0], string(b[1:])
}

func frameOf(kind byte, rest string) []byte {
	return append([]byte{frameVersion, kind}, rest...)
}

// A node answers others about keys that it owns. About other keys it says which version of the
// routing table it has, so that the asker finds out whose table is old.
func TestNodesAnswerForWhatTheyOwn(t *testing.T) {
	p, mine, theirs := twoNodes(t, nil)
	n, own, other := p.nodes[0], mine[0], theirs[0]
	c := dial(t, n.addr)
	c.answers("OK", "SET", own, "value")
	version := n.shard.Table().Version
	for _, kind := range []byte{frameRead, frameTrack} {
		answer, rest := answeredBy(t, n, nil, frameOf(kind, own))
		e, err := decodeEntry([]byte(rest))
		if answer != answerDone || err != nil || e.Value != "value" || !e.Exists || !e.Hit {
			t.Errorf("%c: an own key is answered with %d, %+v, %v", kind, answer, e, err)
		}
		answer, rest = answeredBy(t, n, nil, frameOf(kind, other))
		s := packed.Read([]byte(rest))
		if answer != answerNotOwner || s.Uint() != version || s.Bad() {
			t.Errorf("%c: another node's key is answered with %d, %q", kind, answer, rest)
		}
	}
	answer, rest := answeredBy(t, n, nil, frameOf(frameRead, mine[1])) // which is not in memory
	if e, err := decodeEntry([]byte(rest)); answer != answerDone || err != nil || e.Exists || e.Hit {
		t.Errorf("an own key that does not exist is answered with %d, %+v, %v", answer, e, err)
	}
	e, _ := n.cache.Peek(own)
	answer, rest = answeredBy(t, n, nil, frameOf(frameStamp, own))
	if s := (packed.Read([]byte(rest)[1:])); answer != answerDone || rest[0] != 1 || s.Uint() != e.Version {
		t.Errorf("the version of an own key is answered with %d, %q", answer, rest)
	}
	if answer, rest = answeredBy(t, n, nil, frameOf(frameStamp, mine[2])); answer != answerDone || rest[0] != 0 {
		t.Errorf("the version of a key that does not exist is answered with %d, %q", answer, rest)
	}
	if answer, _ = answeredBy(t, n, nil, frameOf(frameStamp, other)); answer != answerNotOwner {
		t.Errorf("the version of another node's key is answered with %d", answer)
	}
	job := func(keys ...string) []byte {
		j := &job{proto: 2}
		args := [][]byte{[]byte("DEL")}
		for _, k := range keys {
			args = append(args, []byte(k))
		}
		j.cmds = append(j.cmds, args)
		return j.append(nil)
	}
	if answer, _ = answeredBy(t, n, nil, job(other)); answer != answerNotOwner {
		t.Errorf("a command on another node's key is answered with %d", answer)
	}
	if answer, rest = answeredBy(t, n, nil, job(own, other)); answer != answerError || !strings.HasPrefix(rest, "CROSSSLOT") {
		t.Errorf("a command on keys of two owners is answered with %d, %q", answer, rest)
	}
	if answer, rest = answeredBy(t, n, nil, job(own)); answer != answerDone || rest != ":1\r\n" {
		t.Errorf("a command on an own key is answered with %d, %q", answer, rest)
	}
}

// What a node cannot read, or may not do, is answered with an error and changes nothing.
func TestNodesRefuseWhatTheyCannotRead(t *testing.T) {
	p, mine, _ := twoNodes(t, nil)
	n := p.nodes[1] // which does not lead alone
	for what, frame := range map[string][]byte{
		"nothing": {}, "no kind": {frameVersion}, "another version": {frameVersion + 1, frameHello}, "an unknown kind": {frameVersion, '?'},
		"a job cut short":                    (&job{proto: 2, cmds: [][][]byte{{[]byte("GET")}}}).append(nil)[:5],
		"a job of no key":                    (&job{proto: 2, cmds: [][][]byte{{[]byte("PING")}}}).append(nil),
		"two commands outside a transaction": (&job{proto: 2, cmds: [][][]byte{{[]byte("DEL"), []byte(mine[0])}, {[]byte("DEL"), []byte(mine[0])}}}).append(nil),
		"too few arguments":                  (&job{proto: 2, cmds: [][][]byte{{[]byte("SET"), []byte(mine[0])}}}).append(nil),
		"too many arguments":                 (&job{proto: 2, cmds: [][][]byte{{[]byte("GET"), []byte(mine[0]), []byte("x")}}}).append(nil),
		"prefixes of nobody":                 {frameVersion, tracking.Follow, 0}, "half an invalidation": {frameVersion, tracking.Invalid, 0}, "half an announcement": {frameVersion, tracking.Acquired, 9},
	} {
		if kind, rest := answeredBy(t, n, nil, frame); kind != answerError || !strings.HasPrefix(rest, "ERR ") {
			t.Errorf("%s is answered with %d, %q", what, kind, rest)
		}
	}
	for kind, want := range map[byte]string{frameHello: p.cluster, frameState: `{"id":"n2"`, frameMembers: `{"members":[`} {
		testkit.True(t, fmt.Sprintf("a question of kind %c is answered with %s", kind, want), func() bool {
			got, rest := answeredBy(t, n, nil, frameOf(kind, ""))
			return got == answerDone && strings.HasPrefix(rest, want)
		})
	}
	for _, kind := range []byte{frameWho, frameLiving} {
		testkit.True(t, fmt.Sprintf("a question of kind %c names both nodes", kind), func() bool {
			got, rest := answeredBy(t, n, nil, frameOf(kind, ""))
			return got == answerDone && strings.Contains(rest, p.nodes[0].addr) && strings.Contains(rest, p.nodes[1].addr)
		})
	}
}

// FR.VERSION of another node's key is answered from that node's memory, and counted there; the store
// is not asked.
func TestVersionsComeFromTheOwner(t *testing.T) {
	p, mine, theirs := twoNodes(t, nil)
	c := dial(t, p.nodes[0].addr)
	c.answers("OK", "SET", theirs[0], "v")
	c.answers("OK", "SET", mine[0], "v")
	e, _ := p.nodes[1].cache.Peek(theirs[0])
	far := func() float64 { return metric(t, p.nodes[1], "freshet_reads_total", "source", "memory", "for", "node") }
	forwarded := func() float64 { return metric(t, p.nodes[0], "freshet_forwarded_total", "kind", "read") }
	served, sent, missed := far(), forwarded(), p.nodes[0].m.missed.Load()
	for range 5 {
		c.answers(fmt.Sprintf("[%d 1]", e.Version), "FR.VERSION", theirs[0])
	}
	if far() != served+5 || forwarded() != sent+5 || p.nodes[0].m.missed.Load() != missed {
		t.Errorf("the owner has served %v, %v were forwarded, and %d were missed", far()-served, forwarded()-sent, p.nodes[0].m.missed.Load()-missed)
	}
	near := metric(t, p.nodes[0], "freshet_reads_total", "source", "memory", "for", "client")
	e, _ = p.nodes[0].cache.Peek(mine[0])
	c.answers(fmt.Sprintf("[%d 1]", e.Version), "FR.VERSION", mine[0])
	if forwarded() != sent+5 || metric(t, p.nodes[0], "freshet_reads_total", "source", "memory", "for", "client") != near+1 {
		t.Error("the version of an own key does not come from memory here")
	}
	c.answers("[0 0]", "FR.VERSION", theirs[1])
}

// A read by way of another node says if that node does not own the key, with the version of its
// table, or that nothing could be read; then the store is asked.
func TestReadsFromAnotherNode(t *testing.T) {
	p, mine, theirs := twoNodes(t, nil)
	n := p.nodes[0]
	dial(t, n.addr).answers("OK", "SET", theirs[0], "v")
	ctx := t.Context()
	if e, err := n.readFrom(ctx, p.nodes[1].addr, []byte(theirs[0]), nil, nil); err != nil || e.Value != "v" || !e.Hit {
		t.Errorf("the owner answers %+v, %v", e, err)
	}
	var not notOwner
	if _, err := n.readFrom(ctx, p.nodes[1].addr, []byte(mine[0]), nil, nil); !errors.As(err, &not) || not.version != p.nodes[1].shard.Table().Version {
		t.Errorf("a node that does not own the key answers %v", err)
	}
	if _, err := n.readFrom(ctx, "127.0.0.1:1", []byte(mine[0]), nil, nil); !errors.Is(err, peer.ErrUnreached) {
		t.Errorf("a node that is not there answers %v", err)
	}
	if n.newer(ctx, n.shard.Table().Version-1) != true {
		t.Error("a table that has come is waited for")
	}
	if n.newer(ctx, n.shard.Table().Version) {
		t.Error("a table comes though nothing changes")
	}
	for _, c := range []struct {
		keys  []string
		owned int
		want  error
	}{{mine[:2], 2, errCrossOwner}, {theirs[:2], 0, nil}, {[]string{mine[0], theirs[0]}, 1, errCrossOwner}} {
		if n.owned(c.keys) != c.owned {
			t.Errorf("of %q %d are owned, want %d", c.keys, n.owned(c.keys), c.owned)
		}
		if err := n.elsewhere(c.keys); errors.Is(err, errCrossOwner) != (c.owned == 1) {
			t.Errorf("why %q cannot be written here: %v", c.keys, err)
		}
	}
}

// breakLink breaks a link, and waits until that is known.
func breakLink(t *testing.T, x *peer.Peers, to string, in peer.Lane) {
	t.Helper()
	l, err := x.Link(t.Context(), to, in)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	<-l.Done()
}

// Requests take a link that is opened once and opened anew when it has broken. After the end nothing is
// reached.
func TestLinksAreOpenedAnew(t *testing.T) {
	p, _, _ := twoNodes(t, nil)
	to := p.nodes[1].addr
	x := peer.New(peer.Options{Version: frameVersion, Message: func([]byte) {}, Request: func(context.Context, []byte) []byte { return nil }})
	first, err := x.Link(t.Context(), to, peer.Reads)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := x.Link(t.Context(), to, peer.Reads); err != nil || again != first {
		t.Errorf("a link that stands is opened again: %v", err)
	}
	if other, err := x.Link(t.Context(), to, peer.Writes); err != nil || other == first {
		t.Errorf("two lanes share a link: %v", err)
	}
	if b, err := x.Call(t.Context(), to, peer.Control, frameOf(frameHello, "")); err != nil || string(b) != "\x00"+p.cluster {
		t.Errorf("a request is answered with %q, %v", b, err)
	}
	if b, err := x.CallHeard(t.Context(), to, frameOf(frameRead, "k")); err != nil || len(b) == 0 {
		t.Errorf("a read is answered with %q, %v", b, err)
	}
	first.Close()
	<-first.Done()
	if again, err := x.Link(t.Context(), to, peer.Reads); err != nil || again == first {
		t.Errorf("a link that has broken is used again: %v", err)
	}
	if _, err := x.Call(t.Context(), "127.0.0.1:1", peer.Control, frameOf(frameHello, "")); !errors.Is(err, peer.ErrUnreached) {
		t.Errorf("nobody is there: %v", err)
	}
	x.Close()
	if _, err := x.Link(t.Context(), to, peer.Reads); !errors.Is(err, peer.ErrUnreached) || !x.Closed() {
		t.Errorf("after the end a link is opened: %v", err)
	}
}

// Whoever asks again and again stops when its time is over, and at once if the node need not be there.
// Whoever sends messages hears when a link stands and when it breaks, and nothing after the end.
func TestMessagesHearOfTheirLinks(t *testing.T) {
	p, _, _ := twoNodes(t, nil)
	to := p.nodes[1].addr
	x := peer.New(peer.Options{Version: frameVersion, Message: func([]byte) {}, Request: func(context.Context, []byte) []byte { return nil }})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Insist(gone, "127.0.0.1:1", frameOf(frameHello, ""), true); !errors.Is(err, peer.ErrUnreached) {
		t.Errorf("a node that surely runs is not asked until the time is over: %v", err)
	}
	if _, err := x.Insist(t.Context(), "127.0.0.1:1", frameOf(frameHello, ""), false); !errors.Is(err, peer.ErrUnreached) {
		t.Errorf("a node that is not there is asked for ever: %v", err)
	}
	broken := func() { breakLink(t, x, to, peer.Control) }
	stands := make(chan bool, 10)
	x.Send(to, frameOf(frameLease, ""), func(s bool) { stands <- s })
	if !<-stands {
		t.Error("a link that stands is called broken")
	}
	x.Send(to, frameOf(frameLease, ""), func(s bool) { t.Error("of a link that stood before it is told again") })
	x.Tell(to, frameOf(frameMember, ""))
	if !x.Stands(to, peer.Control) {
		t.Error("a link that stands has failed")
	}
	broken()
	if <-stands {
		t.Error("a link that broke is said to stand")
	}
	x.Tell(to, frameOf(frameMember, "")) // opens a link, for the next message
	testkit.True(t, "the link stands again", func() bool { return x.Stands(to, peer.Control) })
	if x.Closed() {
		t.Error("it is over before the end")
	}
	x.Close()
	x.Send(to, frameOf(frameLease, ""), func(bool) { t.Error("after the end a link stands") })
	x.Tell(to, frameOf(frameMember, ""))
}

// What commands do inside of a transaction that need no key, and which cannot be there.
func TestCommandsOfATransactionWithoutKeys(t *testing.T) {
	for args, want := range map[string]string{
		"PING": "+PONG\r\n", "ping hi": "$2\r\nhi\r\n", "echo hi": "$2\r\nhi\r\n", "unwatch": "+OK\r\n",
		"ping a b": "-ERR wrong number of arguments for 'ping' command\r\n", "subscribe a": "-ERR subscribe is not possible inside a transaction\r\n", "echo": "-ERR echo is not possible inside a transaction\r\n",
	} {
		w := resp.NewWriter(2)
		(&Node{}).one(nil, bytes.Split([]byte(args), []byte(" ")), w)
		if got := string(w.Bytes()); got != want {
			t.Errorf("%s is answered with %q, want %q", args, got, want)
		}
	}
}

// Of several nodes that serve a key each is asked in its turn, the owner as well.
func TestReplicasAreAskedInTurn(t *testing.T) {
	p := start(t, func(c *Config) { c.Nodes, c.Timeout = 3, time.Second })
	copies, owner := replicate(t, p, "hot", 1)
	outside := p.nodes[0]
	for _, n := range p.nodes {
		if n != owner && n != copies[0] {
			outside = n
		}
	}
	asked := map[string]int{}
	for range 20 {
		r, _ := outside.shard.Table().Find("hot")
		was := r.Addr
		copied := outside.roundRobin(&r)
		if copied != (r.Addr != was) {
			t.Errorf("a replica at %s: %v", r.Addr, copied)
		}
		asked[r.Addr]++
	}
	if asked[owner.addr] != 10 || asked[copies[0].addr] != 10 {
		t.Errorf("asked are %v, the owner is %s and the replica %s", asked, owner.addr, copies[0].addr)
	}
	r, _ := copies[0].shard.Table().Find("hot")
	for range 4 {
		if copies[0].roundRobin(&r) || r.Addr != owner.addr {
			t.Errorf("a replica asks itself at %s", r.Addr)
		}
	}
	if r, _ = outside.shard.Table().Find("cold"); outside.roundRobin(&r) {
		t.Error("a key without replicas has one")
	}
}
