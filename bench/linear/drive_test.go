package linear

import (
	"context"
	"errors"
	"io"
	"testing"
)

// behind is a target that answers with an older version than it has acknowledged.
type behind struct{ written uint64 }

func (*behind) read(_ context.Context, _ *ask, versions []uint64) (bool, error) {
	versions[0] = 1
	return true, nil
}

func (b *behind) write(context.Context, *ask, string) (uint64, error) {
	b.written++
	return 1 + b.written, nil
}

func (*behind) close() error { return nil }

// A system that serves what was overwritten is found out, and its hits are counted.
func TestTheDriverJudges(t *testing.T) {
	b := build("test", 0)
	row := b.row("k", 10)
	b.read(row)
	b.write(row, 10)
	b.read(row)
	d := newDriver(b.w, &opened{instances: []target{&behind{}}, queries: func() int64 { return 0 }, first: 1})
	for at := range b.w.asks {
		p, err := d.run(t.Context(), at, at+1, 0)
		if err != nil {
			t.Fatal(err)
		}
		if p.hits != p.read || p.reads.Count()+p.writes.Count() != 1 {
			t.Errorf("request %d: %+v", at, p)
		}
	}
	if reads, stale := d.judge.Counts(); reads != 2 || stale != 1 {
		t.Errorf("%d reads, %d stale", reads, stale)
	}
	d.filling = true
	if p, err := d.run(t.Context(), 0, 3, 1000); err != nil || p.read != 2 || p.writes.Count() != 0 {
		t.Error("a write is sent while caches are filled:", p, err)
	}
}

// What failed is counted, and too much of it is an error.
type failing struct{ behind }

func (*failing) read(context.Context, *ask, []uint64) (bool, error) {
	return false, io.ErrUnexpectedEOF
}

func TestFailuresAreCounted(t *testing.T) {
	b := build("test", 0)
	b.read(b.row("k", 10))
	d := newDriver(b.w, &opened{instances: []target{&failing{}}, queries: func() int64 { return 0 }})
	if _, err := d.run(t.Context(), 0, 20, 0); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}
