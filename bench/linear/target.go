package linear

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/freshet-cache/freshet/bench/baseline"
	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/linear/clink"
	"github.com/freshet-cache/freshet/store/postgres"
)

// cacheBytes is the memory of every cache.
const cacheBytes = 256 << 20

// target is a system as a workload uses it.
type target interface {
	// read reads the rows of a request and returns the version of each. whole reports that the read
	// needed nothing from the store.
	read(ctx context.Context, a *ask, versions []uint64) (whole bool, err error)
	write(ctx context.Context, a *ask, value string) (version uint64, err error)
	close() error
}

// opened is a system with its instances. Each client uses one instance.
type opened struct {
	instances []target
	queries   func() int64 // requests that the store has answered
	first     uint64       // no row has had an older version
}

func (o *opened) close() (err error) {
	for _, t := range o.instances {
		if e := t.close(); e != nil {
			err = e
		}
	}
	return err
}

// rowwise is a system that keeps rows. It composes values at each read.
type rowwise struct {
	baseline.System
	rows []tableRow
}

func (t rowwise) read(ctx context.Context, a *ask, versions []uint64) (bool, error) {
	var few [8]baseline.Reading
	var names [8]string
	out, keys := few[:], names[:0]
	if len(a.reads) > len(few) {
		out, keys = make([]baseline.Reading, len(a.reads)), make([]string, 0, len(a.reads))
	}
	for _, i := range a.reads {
		keys = append(keys, t.rows[i].key)
	}
	if err := t.Get(ctx, keys, out[:len(keys)]); err != nil {
		return false, err
	}
	whole := true
	for i, r := range out[:len(keys)] {
		versions[i] = r.Version
		whole = whole && r.Hit
	}
	return whole, nil
}

func (t rowwise) write(ctx context.Context, a *ask, value string) (uint64, error) {
	return t.Set(ctx, t.rows[a.write].key, value)
}

func (t rowwise) close() error { return t.Close() }

// composed is a value that consists of several rows, with their versions.
type composed struct {
	versions []uint64
	text     string
}

// composedCodec encodes a composed value.
type composedCodec struct{}

// Append implements linear.Codec.
func (composedCodec) Append(b []byte, v composed) ([]byte, error) {
	b = binary.BigEndian.AppendUint64(b, uint64(len(v.versions)))
	for _, n := range v.versions {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return append(b, v.text...), nil
}

// Decode implements linear.Codec.
func (composedCodec) Decode(b []byte) (v composed, err error) {
	n := binary.BigEndian.Uint64(b)
	for i := range n {
		v.versions = append(v.versions, binary.BigEndian.Uint64(b[8+8*i:]))
	}
	v.text = string(b[8+8*n:])
	return v, nil
}

// Size implements linear.Codec.
func (composedCodec) Size(v composed) int { return 8*len(v.versions) + len(v.text) }

// viewed is linear.View over the rows of uc. It keeps composed values, and a write names all values
// that show the row. The rows are in a table of the application.
type viewed struct {
	view  *linear.View[composed, pgx.Tx]
	rows  []tableRow
	shape catalogue
	table string
}

func openViewed(ctx context.Context, st *postgres.Store, table string, w *workload, shape catalogue, calls linear.Recorder) (*viewed, error) {
	tables, err := st.Tables(ctx, nil)
	if err != nil {
		return nil, err
	}
	query := "SELECT t.version, t.value FROM unnest($1::text[]) WITH ORDINALITY k(key, at) JOIN " + table + " t USING (key) ORDER BY k.at"
	load := func(ctx context.Context, tx pgx.Tx, key string) (v composed, ok bool, err error) {
		keys := []string{key}
		if strings.HasPrefix(key, "table:") {
			keys = parts(key)
		}
		rows, err := tx.Query(ctx, query, keys)
		if err != nil {
			return v, false, err
		}
		var text strings.Builder
		_, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (struct{}, error) {
			var version uint64
			var value []byte
			err := r.Scan(&version, &value)
			v.versions = append(v.versions, version)
			text.Write(value)
			return struct{}{}, err
		})
		v.text = text.String()
		return v, len(v.versions) == len(keys), err
	}
	view, err := linear.NewView(tables, load, linear.Options[composed]{Codec: composedCodec{}, MaxBytes: cacheBytes, Recorder: calls})
	return &viewed{view, w.rows, shape, table}, err
}

func (t *viewed) read(ctx context.Context, a *ask, versions []uint64) (bool, error) {
	_, leaf, _ := strings.Cut(t.rows[a.reads[3]].key, ":")
	e, err := t.view.GetEntry(ctx, "table:"+leaf)
	if err != nil || !e.Exists {
		return false, fmt.Errorf("the value of %s, which is there: %v: %w", leaf, e.Exists, err)
	}
	n := copy(versions[:min(len(a.reads), len(e.Value.versions))], e.Value.versions)
	last := t.rows[a.reads[len(a.reads)-1]].key
	if !strings.HasPrefix(last, "groups:") {
		return e.Hit, nil
	}
	g, err := t.view.GetEntry(ctx, last)
	if err != nil || !g.Exists {
		return false, fmt.Errorf("%s, which is there: %v: %w", last, g.Exists, err)
	}
	versions[min(n, len(a.reads)-1)] = g.Value.versions[0]
	return e.Hit && g.Hit, nil
}

func (t *viewed) write(ctx context.Context, a *ask, value string) (version uint64, err error) {
	key := t.rows[a.write].key
	err = t.view.Update(ctx, t.shape.shown(key), func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, "UPDATE "+t.table+" SET value = $2, version = version + 1 WHERE key = $1 RETURNING version", key, []byte(value)).Scan(&version)
	})
	return version, err
}

func (t *viewed) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return t.view.Close(ctx)
}

// calls counts the requests of linear to its store.
type calls struct{ n atomic.Int64 }

func (*calls) Miss(linear.MissCause)                              {}
func (*calls) Event(clink.EventKind)                              {}
func (c *calls) StoreCall(linear.StoreCall, time.Duration, error) { c.n.Add(1) }
func (*calls) SteppedAside()                                      {}
