package node

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// told sends PING and returns what came before its answer.
func (c *wire) told() (out []string) {
	c.t.Helper()
	_ = c.nc.SetDeadline(time.Now().Add(20 * time.Second))
	c.send("ping", "mark")
	for {
		r := c.reply()
		if r.Text == "mark" || len(r.Elems) == 2 && r.Elems[1].Text == "mark" {
			return out
		}
		out = append(out, r.String())
	}
}

// talk sends commands of several clients, "client: command", and returns what each
// was answered and what all were told afterwards. $id stands for the connection of
// the client called so.
func talk(t *testing.T, addr string, db string, lines []string) (out []string) {
	t.Helper()
	clients, ids := map[string]*wire{}, map[string]string{}
	var order []string
	queues := map[string]bool{}
	for _, line := range lines {
		who, said, _ := strings.Cut(line, ": ")
		c := clients[who]
		if c == nil {
			c = dial(t, addr)
			clients[who], order = c, append(order, who)
			if db != "" {
				c.do("select", db)
			}
			ids[who] = c.do("client", "id").Text
		}
		if said == "gone" {
			c.nc.Close()
			delete(clients, who)
			waitGone(t, dial(t, addr), ids[who])
			out = append(out, line)
			continue
		}
		for name, id := range ids {
			said = strings.ReplaceAll(said, "$"+name, id)
		}
		r := c.do(strings.Fields(said)...)
		text := fmt.Sprintf("%c%s", r.Kind, r)
		for name, id := range ids {
			if strings.Contains(said, "getredir") || strings.Contains(said, "trackinginfo") {
				text = strings.ReplaceAll(text, id, "$"+name)
			}
		}
		if strings.HasPrefix(said, "hello") || strings.HasPrefix(said, "client id") {
			text = ""
		}
		out = append(out, line+" -> "+text)
		queues[who] = said == "multi" || queues[who] && said != "exec" // a PING would be queued
		for _, name := range order {
			if c := clients[name]; c != nil && !queues[name] {
				for _, text := range c.told() {
					for other, id := range ids {
						text = strings.ReplaceAll(text, "tracking-redir-broken "+id, "tracking-redir-broken $"+other)
					}
					out = append(out, "    "+name+" hears "+text)
				}
			}
		}
	}
	return out
}

func waitGone(t *testing.T, c *wire, id string) {
	t.Helper()
	for strings.Contains(c.do("client", "list").Text, "id="+id+" ") {
		c.do("ping")
	}
}

// stories are what clients do and hear, and the same beside Redis.
var stories = map[string]string{
	"what was read": `x: hello 3
x: client tracking on
x: get k
y: set k 1
y: set k 2
x: mget k k2 k3
y: mset k 1 k2 2 k4 4
x: exists k k2
y: del k k2 nothing
x: strlen k
y: append k x
x: ttl k
y: expire k 1000
x: strlen k
y: persist k
x: getrange k 0 1
y: incrby n 1
y: setrange k 0 y
x: type k
y: getdel k
x: touch k
y: setnx k 1
y: setnx k 1
x: get k
y: getset k 2
x: get k
y: getex k
y: getex k ex 1000
x: get k
y: set k 1 nx
y: set k 1 xx
x: get k
y: multi
y: set k 1
y: set k 2
y: get k3
y: exec
x: set k 3
x: get n
x: incr n
x: client tracking off
y: incr n`,
	"its own writes": `x: hello 3
x: client tracking on
x: get k
x: set k 1
x: multi
x: get k
x: set k 2
x: get k
x: exec
y: set k 3
x: client tracking on noloop
x: get k
x: set k 1
x: get k
y: set k 1
x: client trackinginfo
x: multi
x: set k 2
x: get k
x: exec
y: set k 3`,
	"optin": `x: hello 3
x: client tracking on optin
x: get k
y: set k 1
x: client caching yes
x: client trackinginfo
x: get k
x: get k2
y: mset k 1 k2 2
x: client caching yes
x: multi
x: get k
x: get k2
x: exec
x: get k3
y: mset k 1 k2 2 k3 3
x: client caching no
x: client caching maybe
x: client tracking on optout
x: client tracking on
x: client trackinginfo`,
	"optout": `x: hello 3
x: client tracking on optout
x: get k
x: client caching no
x: client trackinginfo
x: get k2
x: get k3
y: mset k 1 k2 2 k3 3
x: client caching yes
x: client tracking on optin
x: client tracking on optin optout
x: client tracking on bcast`,
	"prefixes": `x: hello 3
x: client tracking on bcast prefix a: prefix b:
x: client tracking on bcast prefix a:b
x: client tracking on bcast prefix c prefix cd
x: client tracking on bcast prefix d:
x: client tracking on
x: client tracking on bcast optin
x: client trackinginfo
y: set a:1 1
y: mset a:1 2 a:2 2 z 2
x: set b:1 1
y: set d:1 1
y: del d:1
y: del d:1
x: client tracking off
x: client tracking on bcast
y: set z 1
x: client tracking on bcast noloop
x: set z 2
y: set z 3
x: client tracking off
y: set z 4
x: client tracking on
x: get z
y: set z 5`,
	"RESP2 hears on another connection": `s: subscribe __redis__:invalidate
s: ping
s: get k
s: client id
x: client tracking on redirect $s
x: client getredir
x: client trackinginfo
x: get k
y: set k 1
x: get k
x: set k 2
s: unsubscribe
s: unsubscribe
x: get k
y: set k 3
s: subscribe __redis__:invalidate
x: get k
s: gone
y: set k 4
x: client trackinginfo
x: client tracking on redirect 0
x: client tracking on redirect 987654
x: client tracking on redirect x
x: client tracking on
x: client trackinginfo`,
	"RESP3 hears on another connection": `s: hello 3
x: hello 3
x: client tracking on redirect $s
x: get k
y: set k 1
x: get k
s: gone
y: set k 2
x: client trackinginfo
x: get k
y: set k 3`,
	"the dialect changes": `x: hello 3
x: client tracking on
x: get k
x: hello 2
y: set k 1
x: hello 3
y: set k 2
x: get k
x: reset
y: set k 3
x: client trackinginfo
x: client getredir`,
	"what is wrong": `x: client tracking
x: client tracking maybe
x: client tracking on nonsense
x: client tracking on redirect
x: client tracking on prefix a
x: client tracking off prefix a
x: client tracking off nonsense
x: client caching yes
x: client caching
x: client caching yes no
x: client trackinginfo x
x: client getredir x
x: client getredir
x: client trackinginfo
x: subscribe
x: hello 3
x: subscribe __redis__:invalidate
x: get k
x: unsubscribe
x: unsubscribe foo`,
}

// Clients hear what they would hear from Redis, when they would.
func TestSamePushesAsRedis(t *testing.T) {
	addr := realRedis(t)
	for name, story := range stories {
		t.Run(name, func(t *testing.T) {
			p := start(t, nil)
			listen, _ := p.Addr(0)
			dial(t, addr).do("flushall")
			theirs, ours := talk(t, addr, "", strings.Split(story, "\n")), talk(t, listen, "", strings.Split(story, "\n"))
			same(t, theirs, ours)
		})
	}
}

func same(t *testing.T, theirs, ours []string) {
	t.Helper()
	for i := range max(len(theirs), len(ours)) {
		var a, b string
		if i < len(theirs) {
			a = theirs[i]
		}
		if i < len(ours) {
			b = ours[i]
		}
		if a != b {
			t.Fatalf("after\n%s\n Redis   %s\n freshet %s", strings.Join(ours[max(0, min(len(ours), i)-6):min(len(ours), i)], "\n"), a, b)
		}
	}
}
