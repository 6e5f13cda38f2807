package tracking

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A client that has read a key is notified of the next write of it, once, wherever it has read it; one
// that follows a prefix is notified of every write of such a key.
func TestClientsHearOfWrites(t *testing.T) {
	inCluster(t, 2, 0, func(c *cluster) {
		for _, key := range []string{"a:1", "b:1"} {
			for _, at := range c.order {
				reader, other, follower := c.dial(at, ""), c.dial(at, ""), c.dial(at, "BCAST", "PREFIX", key[:2])
				reader.do("GET " + key)
				reader.do("GET " + key)
				writer := c.dial("a")
				if got := writer.do("SET " + key + " v"); got != "OK" {
					t.Errorf("SET: %s", got)
				}
				what := "a read of " + key + " at " + at
				reader.hears(what, "invalidate "+key)
				follower.hears("its follower", "invalidate "+key)
				other.hears("a client that read nothing", "")
				writer.hears("a client that does not track", "")
				writer.do("SET " + key + " w")
				reader.hears(what+" is forgotten", "")
				follower.hears("its follower", "invalidate "+key)
				follower.do("CLIENT TRACKING OFF")
				writer.do("SET " + key + " x")
				follower.hears("a follower no more", "")
			}
		}
	})
}

// A client hears of its own writes behind their answers, unless it has said NOLOOP; what it reads in the
// transaction that writes it may keep.
func TestClientsHearOfTheirOwnWrites(t *testing.T) {
	inCluster(t, 1, 0, func(c *cluster) {
		own, noloop := c.dial("a", ""), c.dial("a", "NOLOOP")
		for _, x := range []*client{own, noloop} {
			x.do("GET a:1")
		}
		if got := own.do("SET a:1 v"); got != "OK" {
			t.Errorf("before its answer the client hears %q", got)
		}
		own.hears("its own write", "invalidate a:1")
		noloop.hears("another's", "invalidate a:1")
		noloop.do("GET a:1")
		noloop.do("SET a:1 w")
		noloop.hears("its own write", "")
		own.do("GET a:1")
		own.do("MULTI")
		own.do("GET a:2")
		own.do("SET a:1 x")
		own.do("SET a:2 x")
		own.do("EXEC")
		noloop.do("SET a:2 y")
		own.hears("writes of a transaction, of which the client keeps what it has read, and the next one", "invalidate a:1 | invalidate a:2 | invalidate a:2")
	})
}

// Up to 16 keys are pushed one by one, more of them together, and no more than 1000 at once.
func TestManyKeysAreToldTogether(t *testing.T) {
	inCluster(t, 1, 0, func(c *cluster) {
		x := c.dial("a", "")
		w := c.dial("a")
		for n, pushes := range map[int]int{1: 1, togetherMax: togetherMax, togetherMax + 1: 1, chunk: 1, chunk + 1: 2} {
			var keys []string
			for i := range n {
				keys = append(keys, fmt.Sprintf("a:%d", i))
			}
			for _, k := range keys {
				x.do("GET " + k)
			}
			before := c.nodes["a"].track.Counts().Pushes
			w.do("DEL " + strings.Join(keys, " "))
			if got := strings.Count(x.told(), "a:"); got != n {
				t.Errorf("of %d keys the client hears of %d", n, got)
			}
			if got := int(c.nodes["a"].track.Counts().Pushes - before); got != pushes {
				t.Errorf("%d keys take %d pushes, want %d", n, got, pushes)
			}
		}
		follower := c.dial("a", "BCAST")
		w.do("DEL a:1 a:2 a:3")
		if before := follower.told(); strings.Count(before, "invalidate") != 1 || strings.Count(before, "a:") != 3 {
			t.Errorf("a follower hears %q", before)
		}
	})
}

// When the link breaks through which a client has read, the client hears that what it read may be old,
// and a follower that everything may be. The owner is asked again for the prefixes. The owner, if it
// reaches the other node, says so besides.
func TestClientsHearOfBrokenLinks(t *testing.T) {
	for _, reached := range []bool{false, true} {
		inCluster(t, 2, 0, func(c *cluster) {
			reader, follower := c.dial("b", ""), c.dial("b", "BCAST", "PREFIX", "a:")
			reader.do("GET a:1")
			reader.do("GET b:1")
			b := c.nodes["b"].track
			if n, m := c.nodes["a"].track.Counts(), b.Counts(); n.PeerKeys != 1 || m.Links != 1 || m.Prefixes != 1 {
				t.Fatalf("a remembers %+v, b %+v", n, m)
			}
			c.reach("b", reached)
			c.breaks("b", "a")
			synctest.Wait()
			reader.hears("the reader", "invalidate a:1")
			if got := follower.told(); !strings.Contains(got, "invalidate everything") {
				t.Errorf("the follower hears %q", got)
			}
			if n := b.Counts(); !reached && n.Links != 0 {
				t.Errorf("%d links are watched that are broken", n.Links)
			}
			time.Sleep(2 * seekingInterval)
			if got := follower.told(); !reached && got != "invalidate everything" {
				t.Errorf("when the owner follows again the follower hears %q", got)
			}
			c.heard("a", Follow)
			time.Sleep(4 * seekingInterval)
			if n := c.heard("a", Follow); n != 0 {
				t.Errorf("an owner that follows is asked %d times more", n)
			}
			w := c.dial("a")
			w.do("SET a:1 v")
			follower.hears("a write after the link stands again", "invalidate a:1")
			w.do("SET b:1 v")
			reader.hears("a write of a key that was read here", "invalidate b:1")
		})
	}
}

// Owners are asked for prefixes when these change, and for what is left when a client has gone. What
// clients have read is forgotten with the last of them. No node asks itself.
func TestOwnersAreAskedWhenPrefixesChange(t *testing.T) {
	inCluster(t, 3, 0, func(c *cluster) {
		asked := func(what string, want int) {
			t.Helper()
			if b, c := c.heard("b", Follow), c.heard("c", Follow); b != want || c != want {
				t.Errorf("%s: the owners are asked %d and %d times, want %d", what, b, c, want)
			}
		}
		x, y, z := c.dial("a", ""), c.dial("a", "BCAST", "PREFIX", "b:"), c.dial("a", "BCAST", "PREFIX", "b:")
		asked("two clients of one prefix", 1)
		x.do("GET a:1")
		z.nc.Close()
		asked("one of them goes", 0)
		y.do("CLIENT TRACKING OFF")
		asked("nobody follows anything", 1)
		track := c.nodes["a"].track
		if n := track.Counts(); n.Prefixes != 0 || n.Keys != 1 || n.Clients != 1 {
			t.Errorf("a client is left: %+v", n)
		}
		c.dial("b").do("SET b:1 v")
		y.hears("a follower no more", "")
		x.nc.Close()
		asked("the last one goes", 0)
		if n := track.Counts(); n.Clients != 0 || n.Keys != 0 || !track.Idle() {
			t.Errorf("nobody is left: %+v", n)
		}
		if c.nodes["a"].links["a"] != nil {
			t.Error("a node asks itself")
		}
	})
}

// An owner that cannot be reached is asked for the prefixes until it can, whereupon followers forget what
// they keep; once nobody follows anything, it is not asked any more.
func TestOwnersThatCannotBeReached(t *testing.T) {
	inCluster(t, 2, 0, func(c *cluster) {
		c.reach("a", false)
		follower := c.dial("b", "BCAST", "PREFIX", "a:")
		time.Sleep(10 * seekingInterval)
		follower.hears("while the owner is away", "")
		c.reach("a", true)
		time.Sleep(2 * seekingInterval)
		follower.hears("when it is back", "invalidate everything")
		c.dial("a").do("SET a:1 v")
		follower.hears("a write", "invalidate a:1")
		c.reach("a", false)
		c.breaks("b", "a")
		synctest.Wait()
		follower.do("CLIENT TRACKING OFF")
		time.Sleep(2 * seekingInterval)
		track := c.nodes["b"].track
		track.mu.Lock()
		defer track.mu.Unlock()
		if len(track.seeking) != 0 {
			t.Error("an owner is sought though nobody follows anything")
		}
	})
}

// A read while the owner cannot be reached is not kept.
func TestReadsWithoutAnOwner(t *testing.T) {
	inCluster(t, 2, 0, func(c *cluster) {
		x := c.dial("b", "")
		c.reach("a", false)
		x.do("GET a:1")
		x.hears("a read without an owner", "invalidate a:1")
	})
}

// Keys whose TTLs pass are invalid then, and not before.
func TestTTLsPass(t *testing.T) {
	inCluster(t, 2, 0, func(c *cluster) {
		for _, key := range []string{"a:1", "b:1"} {
			c.ttls[key] = time.Second
		}
		x := c.dial("b", "")
		x.do("GET a:1")
		x.do("GET b:1")
		x.do("GET b:2")
		time.Sleep(time.Second - endsBeat)
		x.hears("before the TTLs have passed", "")
		time.Sleep(2 * endsBeat)
		got := x.told()
		if !strings.Contains(got, "a:1") || !strings.Contains(got, "b:1") || strings.Contains(got, "b:2") {
			t.Errorf("when the TTLs have passed the client hears %q", got)
		}
	})
}

// Of what is remembered too much, a client forgets, here and at other nodes.
func TestKeysThatAreEvicted(t *testing.T) {
	inCluster(t, 2, 2, func(c *cluster) {
		x := c.dial("b", "")
		kept := map[string]bool{}
		for _, key := range []string{"b:1", "b:2", "b:3", "a:1", "a:2", "a:3"} {
			x.do("GET " + key)
			kept[key] = true
			for _, word := range strings.Fields(x.told()) {
				delete(kept, word)
			}
			if len(kept) > 2 {
				t.Fatalf("after %s %v are kept, and 2 are remembered", key, kept)
			}
		}
		if n := c.nodes["b"].track.Counts(); n.Evicted == 0 || n.Keys > 2 || n.Clients != 1 {
			t.Errorf("%+v", n)
		}
	})
}

// A new owner announces itself: clients that have read its keys forget them, others keep what they have.
func TestANewOwnerAnnouncesItself(t *testing.T) {
	inCluster(t, 2, 0, func(c *cluster) {
		x, follower := c.dial("b", ""), c.dial("b", "BCAST", "PREFIX", "c:")
		for _, key := range []string{"a:1", "b:1", "c:1"} {
			if key[0] != 'c' {
				x.do("GET " + key)
			} else {
				x.do("GET b:c")
			}
		}
		c.nodes["a"].track.Acquired(held("b:", "b:2"))
		synctest.Wait()
		x.hears("a slice that has another owner", "invalidate b:1")
		follower.hears("a follower that the owner knew", "")
		c.dial("a").do("SET a:1 v")
		x.hears("a key that stayed", "invalidate a:1")
	})
}

// A node that the assigner has lost tells its clients that everything may be old, at once and when it is
// back, and follows their prefixes again.
func TestANodeThatIsAway(t *testing.T) {
	inCluster(t, 2, 0, func(c *cluster) {
		x, follower := c.dial("b", ""), c.dial("b", "BCAST", "PREFIX", "a:")
		x.do("GET b:1")
		track := c.nodes["b"].track
		track.Back() // it was not away
		synctest.Wait()
		x.hears("before", "")
		track.Away()
		x.hears("away", "invalidate everything")
		follower.hears("away", "invalidate everything")
		track.Back()
		synctest.Wait()
		x.hears("back", "invalidate everything")
		track.Back() // again
		synctest.Wait()
		x.hears("and nothing more", "")
		follower.hears("back", "invalidate everything")
		c.dial("a").do("SET a:1 v")
		follower.hears("a write", "invalidate a:1")
	})
}

// When everything is removed, all clients of all nodes forget everything; whoever asked for it hears of
// it behind the answer.
func TestForgetEverywhere(t *testing.T) {
	inCluster(t, 2, 0, func(c *cluster) {
		x, y := c.dial("a", ""), c.dial("b", "")
		x.do("GET a:1")
		y.do("GET b:1")
		c.nodes["a"].track.ForgetEverywhere(0)
		x.hears("here", "invalidate everything")
		y.hears("there", "invalidate everything")
		if n, m := c.nodes["a"].track.Counts(), c.nodes["b"].track.Counts(); n.Keys+m.Keys != 0 {
			t.Errorf("%d keys are remembered", n.Keys+m.Keys)
		}
		x.do("CLIENT TRACKING OFF")
		c.nodes["a"].track.ForgetEverywhere(0)
		x.hears("a client that does not track", "")
		y.hears("there", "invalidate everything")
		y.nc.Close()
		synctest.Wait()
		if n := c.nodes["b"].track.Counts(); n.Clients != 0 {
			t.Errorf("%d clients are left", n.Clients)
		}
	})
}
