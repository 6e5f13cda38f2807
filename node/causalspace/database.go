package causalspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/freshet-cache/freshet/causal"
	"github.com/freshet-cache/freshet/node/promise"
	"github.com/freshet-cache/freshet/resp"
)

// A connection that has selected the database of a causal space is a session there: plain
// commands read and write as that session, and FR.TOKEN passes it on.

// Select implements promise.Member.
func (n *node) Select(ctx context.Context, db int, state *any, call promise.Call, w *resp.Writer) {
	space := n.selected(db)
	run := inSession[call.Command.Name]
	switch {
	case space == nil:
		w.Error("TRYAGAIN nothing was done: the causal space is not open yet")
		return
	case run == nil:
		w.Error(fmt.Sprintf("ERR %s does not work in the causal space %s: there are GET, SET, DEL, EXISTS, MGET, MSET, STRLEN and FR.TOKEN, and transactions of tokens (FR.TBEGIN); SELECT 0 for all commands", strings.ToUpper(call.Command.Name), space.is.Name))
		return
	case call.Tracks:
		w.Error("ERR CLIENT TRACKING does not work in a causal space: turn it off, or SELECT 0")
		return
	}
	s, err := n.sessionIn(ctx, state, space)
	if err == nil && slices.Contains(call.Command.Flags, "write") {
		err = s.Shrink(ctx, 0) // before it carries more, so that what was done is never answered with an error
	}
	out := resp.NewWriter(w.Proto())
	if err == nil {
		err = run(ctx, n, s, call.Args, out)
	}
	if err != nil {
		w.Error(errorText(err))
		return
	}
	w.Raw(out.Bytes())
}

// selected returns the part of the space whose database has this number, or nil.
func (n *node) selected(db int) *part {
	for _, c := range n.all {
		if c.is.DB == db {
			return c
		}
	}
	return nil
}

// sessionIn is the connection's session in a space. It begins with the first command.
func (n *node) sessionIn(ctx context.Context, state *any, space *part) (*session, error) {
	if s, ok := (*state).(*session); ok {
		return s, nil
	}
	if !space.keyed {
		if err := space.ring.Keyed(ctx); err != nil { // the node has just started
			return nil, err
		}
	}
	s := space.space.Begin()
	*state = s
	return s, nil
}

type plainCommand func(ctx context.Context, n *node, s *session, args [][]byte, w *resp.Writer) error

// inSession are the commands of Redis that work in a causal space, as Redis answers them.
var inSession = map[string]plainCommand{
	"get": func(ctx context.Context, _ *node, s *session, args [][]byte, w *resp.Writer) error {
		v, ok, err := s.Get(ctx, string(args[1]))
		bulk(w, v, ok)
		return err
	},
	"strlen": func(ctx context.Context, _ *node, s *session, args [][]byte, w *resp.Writer) error {
		v, _, err := s.Get(ctx, string(args[1]))
		w.Int(int64(len(v)))
		return err
	},
	"mget": func(ctx context.Context, _ *node, s *session, args [][]byte, w *resp.Writer) error {
		items, err := s.GetMany(ctx, texts(args[1:])...)
		bulks(w, items)
		return err
	},
	"exists": func(ctx context.Context, _ *node, s *session, args [][]byte, w *resp.Writer) error {
		items, err := s.GetMany(ctx, texts(args[1:])...)
		w.Int(existing(items))
		return err
	},
	"set": func(ctx context.Context, _ *node, s *session, args [][]byte, w *resp.Writer) error {
		if len(args) > 3 {
			return errors.New("SET takes no options in a causal space: its keys have no TTL, and nothing is decided from the stored value; SELECT 0 for that")
		}
		w.SimpleString("OK")
		return s.Set(ctx, string(args[1]), append([]byte{}, args[2]...))
	},
	"mset":   writePairs,
	"del":    deleteKeys,
	"unlink": deleteKeys,
	"fr.token": func(ctx context.Context, n *node, s *session, args [][]byte, w *resp.Writer) error {
		switch len(args) {
		case 1:
			if err := s.Shrink(ctx, 0); err != nil {
				return err
			}
			return tell(w, s)
		case 2:
			o, err := n.sessionOf(args[1])
			if err == nil && !s.SameSpace(o) {
				err = causal.ErrOtherSpace
			}
			if err != nil {
				return err
			}
			s.Join(o)
			w.SimpleString("OK")
			return nil
		}
		return errors.New("FR.TOKEN takes one token, or none")
	},
}

// writePairs writes all pairs in one transaction: they become visible together, as in Redis.
func writePairs(ctx context.Context, _ *node, s *session, args [][]byte, w *resp.Writer) error {
	if len(args)%2 == 0 {
		return errors.New("wrong number of arguments for 'mset' command")
	}
	_, err := s.Transact(ctx, func(t *tx) error {
		for i := 1; i < len(args); i += 2 {
			if err := t.Set(string(args[i]), append([]byte{}, args[i+1]...)); err != nil {
				return err
			}
		}
		return nil
	})
	w.SimpleString("OK")
	return err
}

// deleteKeys deletes keys in one transaction, and answers how many there were.
func deleteKeys(ctx context.Context, _ *node, s *session, args [][]byte, w *resp.Writer) error {
	keys := texts(args[1:])
	slices.Sort(keys)
	keys = slices.Compact(keys)
	var there int64
	_, err := s.Transact(ctx, func(t *tx) error {
		items, err := t.GetMany(ctx, keys...)
		there = existing(items)
		for i, it := range items {
			if err == nil && it.Exists {
				err = t.Delete(keys[i])
			}
		}
		return err
	})
	w.Int(there)
	return err
}

func existing(items []causal.Item[[]byte]) (n int64) {
	for _, it := range items {
		if it.Exists {
			n++
		}
	}
	return n
}
