package mesh_test

import (
	"strconv"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/freshet-cache/freshet/causal/mesh"
)

// transact is what transactions do; they are sessions of their own.
func (s *story) transact(t *testing.T, d *datadriven.TestData, at int) {
	who := arg(t, d, "by")
	tx, ask := s.txs[who], func(kind string, in func(*mesh.Tx) mesh.Input) {
		s.op++
		s.calls[s.op] = call{session: who, keys: list(d, "keys"), tx: kind}
		s.step(at, in(s.txs[who]))
	}
	switch d.Cmd {
	case "begin":
		s.txs[who] = &mesh.Tx{Session: *s.session(arg(t, d, "of"))}
		ask("begin", func(tx *mesh.Tx) mesh.Input { return tx.Begin(s.op) })
	case "look":
		ask("look", func(tx *mesh.Tx) mesh.Input { return tx.Look(s.op, list(d, "keys")...) })
	case "set":
		tx.Set(mesh.Mut{Key: arg(t, d, "key"), Value: []byte(arg(t, d, "value"))})
	case "commit":
		ask("commit", func(tx *mesh.Tx) mesh.Input { return tx.Commit(s.op) })
	case "branch":
		s.txs[arg(t, d, "as")] = tx.Fork()
	case "merge":
		tx.Join(s.txs[arg(t, d, "with")])
	default:
		d.Fatalf(t, "nothing is known of %q", d.Cmd)
	}
}

// committed is an answer to a transaction.
func (s *story) committed(c call, r mesh.Reply) {
	tx := s.txs[c.session]
	switch c.tx {
	case "begin":
		tx.Began(r)
		s.say("%s reads from %v", c.session, r.At.Set)
	case "look":
		items, _ := tx.Looked(r, c.keys...)
		for i, k := range c.keys {
			s.say("%s reads %s = %v", c.session, k, items[i])
		}
	case "commit":
		tx.Took(r)
		s.say("%s wrote %v", c.session, r.Write)
	}
}

func incarnations(t *testing.T, d *datadriven.TestData, name string) (out []mesh.Incarnation) {
	for _, v := range list(d, name) {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, mesh.Incarnation(n))
	}
	return out
}

func arg(t *testing.T, d *datadriven.TestData, name string) (v string) {
	d.MaybeScanArgs(t, name, &v)
	return v
}

func list(d *datadriven.TestData, name string) []string {
	for _, a := range d.CmdArgs {
		if a.Key == name {
			return a.Vals
		}
	}
	return nil
}
