// Permissions is a service that answers "may this person read that document?", of
// workspaces with nested groups and nested folders, from memory: seven queries build the
// answers of a workspace, and none is asked again until something in it changes. An
// answer is never older than the last change that was acknowledged.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/store/postgres"
)

//go:embed schema.sql
var schema string

// Workspace is all that is cached of one: a few maps, ready for questions.
type Workspace struct {
	Owner   string
	Groups  map[string][]string        // of a person or group: the groups it is in
	Folders map[string]string          // of a document or folder: the folder it is in
	Grants  map[string]map[string]bool // of an object: "subject may"
}

// May reports whether person may do something with an object: by a grant to them, or to
// a group they are in at any depth, on the object or a folder around it at any depth.
func (w *Workspace) May(person, what, object string) bool {
	if w.Owner == person {
		return true
	}
	subjects := w.all(person, map[string]bool{})
	for depth := 0; object != "" && depth < 100; depth++ {
		for s := range subjects {
			if w.Grants[object][s+" "+what] {
				return true
			}
		}
		object = w.Folders[object]
	}
	return false
}

// all adds a subject and the groups it is in, directly or not.
func (w *Workspace) all(subject string, found map[string]bool) map[string]bool {
	if !found[subject] {
		found[subject] = true
		for _, g := range w.Groups[subject] {
			w.all(g, found)
		}
	}
	return found
}

// Service answers, and changes what it answers from.
type Service struct {
	tables *postgres.Tables
	view   *linear.View[*Workspace, pgx.Tx]
}

// Open makes a service over the tables of schema.sql. peers are the other processes of
// the service; nil if there is one.
func Open(ctx context.Context, s *postgres.Store, peers linear.Peers) (*Service, error) {
	tables, err := s.Tables(ctx, nil)
	if err != nil {
		return nil, err
	}
	view, err := linear.NewView(tables, load, linear.Options[*Workspace]{Codec: linear.JSON[*Workspace](), Peers: peers})
	return &Service{tables, view}, err
}

// Close ends the service.
func (s *Service) Close(ctx context.Context) error { return s.view.Close(ctx) }

func key(workspace int) string { return fmt.Sprintf("workspace:%d", workspace) }

// May answers a question, from memory nearly always.
func (s *Service) May(ctx context.Context, workspace int, person, what, object string) (bool, error) {
	w, ok, err := s.view.Get(ctx, key(workspace))
	if err != nil || !ok {
		return false, err
	}
	return w.May(person, what, object), nil
}

// MayAsking answers it as a service without a cache does.
func (s *Service) MayAsking(ctx context.Context, workspace int, person, what, object string) (may bool, err error) {
	_, err = s.tables.Snapshot(ctx, key(workspace), func(ctx context.Context, tx pgx.Tx) error {
		w, ok, err := load(ctx, tx, key(workspace))
		may = ok && w.May(person, what, object)
		return err
	})
	return may, err
}

// Change runs statements on rows of a workspace, in one transaction.
func (s *Service) Change(ctx context.Context, workspace int, statements ...string) error {
	return s.view.Update(ctx, []string{key(workspace)}, func(ctx context.Context, tx pgx.Tx) error {
		for _, q := range statements {
			if _, err := tx.Exec(ctx, q); err != nil {
				return err
			}
		}
		return nil
	})
}

// load builds what is cached of a workspace; all its queries see one instant.
func load(ctx context.Context, tx pgx.Tx, key string) (*Workspace, bool, error) {
	var id int
	if _, err := fmt.Sscanf(key, "workspace:%d", &id); err != nil {
		return nil, false, fmt.Errorf("permissions: %q is no key of a workspace: %w", key, err)
	}
	w := &Workspace{Groups: map[string][]string{}, Folders: map[string]string{}, Grants: map[string]map[string]bool{}}
	err := tx.QueryRow(ctx, "SELECT owner FROM workspaces WHERE id = $1", id).Scan(&w.Owner)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	in := func(child, parent string) { w.Groups[child] = append(w.Groups[child], parent) }
	inside := func(child, parent string) { w.Folders[child] = parent }
	known := map[string]bool{}
	for _, q := range []struct {
		sql string
		row func(a, b string)
	}{
		{"SELECT name, name FROM groups WHERE workspace = $1", func(a, _ string) { known[a] = true }},
		{"SELECT person, name FROM members WHERE workspace = $1", in},
		{"SELECT child, name FROM subgroups WHERE workspace = $1", in},
		{"SELECT name, parent FROM folders WHERE workspace = $1", inside},
		{"SELECT name, folder FROM documents WHERE workspace = $1", inside},
		{"SELECT object, subject || ' ' || may FROM grants WHERE workspace = $1", func(object, grant string) {
			if w.Grants[object] == nil {
				w.Grants[object] = map[string]bool{}
			}
			w.Grants[object][grant] = true
		}},
	} {
		rows, err2 := tx.Query(ctx, q.sql, id)
		if err2 != nil {
			return nil, false, err2
		}
		var a, b string
		_, err2 = pgx.ForEachRow(rows, []any{&a, &b}, func() error { q.row(a, b); return nil })
		err = errors.Join(err, err2)
	}
	for child, groups := range w.Groups { // a group that is gone grants nothing
		kept := groups[:0]
		for _, g := range groups {
			if known[g] {
				kept = append(kept, g)
			}
		}
		w.Groups[child] = kept
	}
	return w, err == nil, err
}
