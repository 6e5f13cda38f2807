package causalspace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/freshet-cache/freshet/causal"
	"github.com/freshet-cache/freshet/resp"
)

// The commands of sessions and transactions over causal spaces. Each takes a token and
// answers the next one, first of what it answers; a token can be used twice, which is a
// fork.
var commands = []resp.Command{
	{Name: "fr.begin", Arity: 2, Flags: []string{"fast"}, Group: "freshet", Summary: "FR.BEGIN space: answers the token of a session that knows nothing.", Since: "0.1.0"},
	{Name: "fr.cget", Arity: 3, Flags: []string{"readonly", "fast"}, FirstKey: 2, LastKey: 2, Step: 1, Group: "freshet", Summary: "FR.CGET token key: answers the next token, and the value as the session sees it.", Since: "0.1.0"},
	{Name: "fr.cmget", Arity: -3, Flags: []string{"readonly", "fast"}, FirstKey: 2, LastKey: -1, Step: 1, Group: "freshet", Summary: "FR.CMGET token key...: answers the next token, and the values from one causal cut.", Since: "0.1.0"},
	{Name: "fr.cset", Arity: -4, Flags: []string{"write", "denyoom"}, FirstKey: 2, LastKey: 2, Step: 1, Group: "freshet", Summary: "FR.CSET token key value [REPLACE]: sets a key and answers the next token. Where the space merges, the value is merged with what the session sees, or replaces that.", Since: "0.1.0"},
	{Name: "fr.cdel", Arity: 3, Flags: []string{"write"}, FirstKey: 2, LastKey: 2, Step: 1, Group: "freshet", Summary: "FR.CDEL token key: removes a key and answers the next token.", Since: "0.1.0"},
	{Name: "fr.token", Arity: -1, Flags: []string{"fast"}, Group: "freshet", Summary: "FR.TOKEN [token]: answers the token of this connection's session in the selected causal space, or has the session know what another token knows.", Since: "0.1.0"},
	{Name: "fr.cjoin", Arity: -3, Flags: []string{"fast"}, Group: "freshet", Summary: "FR.CJOIN token token...: answers the token of a session that knows what all of them know.", Since: "0.1.0"},
	{Name: "fr.tbegin", Arity: 2, Flags: []string{"fast"}, Group: "freshet", Summary: "FR.TBEGIN token: answers the token of a transaction of a session.", Since: "0.1.0"},
	{Name: "fr.tmget", Arity: -3, Flags: []string{"readonly", "fast"}, FirstKey: 2, LastKey: -1, Step: 1, Group: "freshet", Summary: "FR.TMGET tx key...: answers the transaction's next token, and values from its snapshot; STALE if that is gone: begin again.", Since: "0.1.0"},
	{Name: "fr.tset", Arity: -4, Flags: []string{"write", "denyoom"}, FirstKey: 2, LastKey: 2, Step: 1, Group: "freshet", Summary: "FR.TSET tx key value [REPLACE]: has the commit set a key, and answers the transaction's next token.", Since: "0.1.0"},
	{Name: "fr.tdel", Arity: 3, Flags: []string{"write"}, FirstKey: 2, LastKey: 2, Step: 1, Group: "freshet", Summary: "FR.TDEL tx key: has the commit remove a key, and answers the transaction's next token.", Since: "0.1.0"},
	{Name: "fr.tfork", Arity: 2, Flags: []string{"fast"}, Group: "freshet", Summary: "FR.TFORK tx: answers the transaction's next token, and that of a branch.", Since: "0.1.0"},
	{Name: "fr.tjoin", Arity: 3, Flags: []string{"fast"}, Group: "freshet", Summary: "FR.TJOIN tx branch: answers the transaction's next token, with what the branch has read and is to write.", Since: "0.1.0"},
	{Name: "fr.tcommit", Arity: 2, Flags: []string{"write", "denyoom"}, Group: "freshet", Summary: "FR.TCOMMIT tx: writes everything at once, and answers the token of a session that knows of it.", Since: "0.1.0"},
}

type (
	session = causal.Session[[]byte]
	tx      = causal.Tx[[]byte]
)

// sessionOf finds the space that a token belongs to, and resumes its session.
func (n *node) sessionOf(token []byte) (*session, error) {
	err := causal.ErrToken
	for _, c := range n.all {
		s, e := c.space.Resume(look(token))
		if e == nil {
			return s, nil
		}
		if !errors.Is(e, causal.ErrOtherSpace) || len(n.all) == 1 {
			err = e
		}
	}
	return nil, err
}

func (n *node) txOf(token []byte) (*tx, error) {
	err := causal.ErrToken
	for _, c := range n.all {
		t, e := c.space.ResumeTx(look(token))
		if e == nil {
			return t, nil
		}
		if !errors.Is(e, causal.ErrOtherSpace) || len(n.all) == 1 {
			err = e
		}
	}
	return nil, err
}

// look looks at bytes as a string for as long as they do not change.
func look(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Run implements promise.Member: it runs a command of a session or a transaction.
func (n *node) Run(ctx context.Context, name string, args [][]byte, w *resp.Writer) {
	run := sessionCommands[name]
	if run == nil {
		run = txCommands[name]
	}
	switch {
	case name == "fr.token":
		w.Error("ERR FR.TOKEN is about the session of a causal space's database: SELECT one first (--space NAME=causal,db=NUMBER)")
		return
	case len(n.all) == 0 || run == nil:
		w.Error("ERR no causal space is open; start freshet serve with --space NAME=causal")
		return
	}
	out := resp.NewWriter(w.Proto())
	if err := run(n, ctx, args, out); err != nil {
		w.Error(errorText(err))
		return
	}
	w.Raw(out.Bytes())
}

// errorText is what a client reads.
func errorText(err error) string {
	code := "ERR "
	for _, k := range []struct {
		err  error
		code string
	}{
		{causal.ErrUntold, "UNKNOWN "}, {causal.ErrOutcomeUnknown, "UNKNOWN "}, {causal.ErrToken, "BADTOKEN "}, {causal.ErrForged, "BADTOKEN "}, {causal.ErrOtherSpace, "BADTOKEN "}, {causal.ErrClockAhead, "BADTOKEN "},
		{causal.ErrBusy, "TRYAGAIN "}, {causal.ErrBehind, "TRYAGAIN "}, {causal.ErrJoining, "TRYAGAIN "}, {causal.ErrExpelled, "TRYAGAIN "},
		{causal.ErrStale, "STALE "}, {context.DeadlineExceeded, "TRYAGAIN "},
	} {
		if errors.Is(err, k.err) {
			code = k.code
			break
		}
	}
	return code + err.Error()
}

type workflowCommand func(n *node, ctx context.Context, args [][]byte, w *resp.Writer) error

var sessionCommands = map[string]workflowCommand{
	"fr.begin": func(n *node, ctx context.Context, args [][]byte, w *resp.Writer) error {
		c := n.find(string(args[1]))
		if c == nil {
			return fmt.Errorf("no causal space is called %.110q; see --space", args[1])
		}
		if !c.keyed {
			if err := c.ring.Keyed(ctx); err != nil { // the node has just started
				return err
			}
		}
		return tell(w, c.space.Begin())
	},
	"fr.cget": func(n *node, ctx context.Context, args [][]byte, w *resp.Writer) error {
		s, err := n.sessionOf(args[1])
		if err != nil {
			return err
		}
		v, ok, err := s.Get(ctx, string(args[2]))
		if err != nil {
			return err
		}
		w.Array(2)
		err = tell(w, s)
		bulk(w, v, ok)
		return err
	},
	"fr.cmget": func(n *node, ctx context.Context, args [][]byte, w *resp.Writer) error {
		s, err := n.sessionOf(args[1])
		if err != nil {
			return err
		}
		items, err := s.GetMany(ctx, texts(args[2:])...)
		if err != nil {
			return err
		}
		w.Array(2)
		err = tell(w, s)
		bulks(w, items)
		return err
	},
	"fr.cset": func(n *node, ctx context.Context, args [][]byte, w *resp.Writer) error {
		s, err := n.sessionOf(args[1])
		if err == nil {
			err = written(ctx, args, func(key string, value []byte) error { return s.Set(ctx, key, value) }, s.Update)
		}
		if err != nil {
			return err
		}
		return tellWrite(ctx, w, s)
	},
	"fr.cdel": func(n *node, ctx context.Context, args [][]byte, w *resp.Writer) error {
		s, err := n.sessionOf(args[1])
		if err == nil {
			err = s.Delete(ctx, string(args[2]))
		}
		if err != nil {
			return err
		}
		return tellWrite(ctx, w, s)
	},
	"fr.cjoin": func(n *node, _ context.Context, args [][]byte, w *resp.Writer) error {
		s, err := n.sessionOf(args[1])
		for _, token := range args[2:] {
			var o *session
			if err == nil {
				o, err = n.sessionOf(token)
			}
			if err == nil && !s.SameSpace(o) {
				err = causal.ErrOtherSpace
			}
			if err != nil {
				return err
			}
			s.Join(o)
		}
		if err != nil {
			return err
		}
		return tell(w, s)
	},
	"fr.tbegin": func(n *node, ctx context.Context, args [][]byte, w *resp.Writer) error {
		s, err := n.sessionOf(args[1])
		if err != nil {
			return err
		}
		t, err := s.BeginTx(ctx)
		if err != nil {
			return err
		}
		return tell(w, t)
	},
}

var txCommands = map[string]workflowCommand{
	"fr.tmget": func(n *node, ctx context.Context, args [][]byte, w *resp.Writer) error {
		t, err := n.txOf(args[1])
		if err != nil {
			return err
		}
		items, err := t.GetMany(ctx, texts(args[2:])...)
		if err != nil {
			return err
		}
		w.Array(2)
		err = tell(w, t)
		bulks(w, items)
		return err
	},
	"fr.tset": func(n *node, ctx context.Context, args [][]byte, w *resp.Writer) error {
		t, err := n.txOf(args[1])
		if err == nil {
			err = written(ctx, args, t.Set, t.Update)
		}
		if err != nil {
			return err
		}
		return tell(w, t)
	},
	"fr.tdel": func(n *node, _ context.Context, args [][]byte, w *resp.Writer) error {
		t, err := n.txOf(args[1])
		if err == nil {
			err = t.Delete(string(args[2]))
		}
		if err != nil {
			return err
		}
		return tell(w, t)
	},
	"fr.tfork": func(n *node, _ context.Context, args [][]byte, w *resp.Writer) error {
		t, err := n.txOf(args[1])
		if err != nil {
			return err
		}
		f := t.Fork()
		w.Array(2)
		return errors.Join(tell(w, t), tell(w, f))
	},
	"fr.tjoin": func(n *node, _ context.Context, args [][]byte, w *resp.Writer) error {
		t, err := n.txOf(args[1])
		var f *tx
		if err == nil {
			f, err = n.txOf(args[2])
		}
		if err != nil {
			return err
		}
		if err := t.Join(f); err != nil {
			return err
		}
		return tell(w, t)
	},
	"fr.tcommit": func(n *node, ctx context.Context, args [][]byte, w *resp.Writer) error {
		t, err := n.txOf(args[1])
		if err != nil {
			return err
		}
		s, err := t.Commit(ctx)
		if err != nil {
			return err
		}
		return tellWrite(ctx, w, s)
	},
}

// written sets the key to the value of a command, or replaces the present one if REPLACE
// follows.
func written(ctx context.Context, args [][]byte, set func(key string, value []byte) error,
	update func(ctx context.Context, key string, f func([]byte, bool) ([]byte, error)) error) error {
	key, value := string(args[2]), append([]byte{}, args[3]...)
	switch {
	case len(args) == 4:
		return set(key, value)
	case len(args) == 5 && strings.EqualFold(string(args[4]), "replace"):
		return update(ctx, key, func([]byte, bool) ([]byte, error) { return value, nil })
	}
	return errors.New("after the value there may be REPLACE, nothing else")
}

// tell writes a token.
func tell(w *resp.Writer, s interface{ Token() (string, error) }) error {
	token, err := s.Token()
	w.BulkString(token)
	return err
}

// tellWrite writes the token of a session that has written. That is done whether or not it can be told.
func tellWrite(ctx context.Context, w *resp.Writer, s *session) error {
	err := s.Shrink(ctx, 0)
	if err == nil {
		err = tell(w, s)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", causal.ErrUntold, err)
	}
	return nil
}

func texts(args [][]byte) []string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = string(a)
	}
	return out
}

func bulk(w *resp.Writer, v []byte, ok bool) {
	if ok {
		w.Bulk(v)
	} else {
		w.Null()
	}
}

func bulks(w *resp.Writer, items []causal.Item[[]byte]) {
	w.Array(len(items))
	for _, it := range items {
		bulk(w, it.Value, it.Exists)
	}
}
