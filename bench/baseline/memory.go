package baseline

import (
	"context"
	"sync"
	"time"
)

// Memory is Rows in this process. The zero value is empty.
type Memory struct {
	// Clock is the clock of the store. Default time.Now.
	Clock func() int64

	mu   sync.Mutex
	rows map[string]Row
}

func (m *Memory) now() int64 {
	if m.Clock != nil {
		return m.Clock()
	}
	return time.Now().UnixNano()
}

// Load implements Rows.
func (m *Memory) Load(ctx context.Context, keys []string, _ []uint64) ([]Row, error) {
	rows, _, err := m.LoadAt(ctx, keys)
	return rows, err
}

// LoadAt implements Dated.
func (m *Memory) LoadAt(_ context.Context, keys []string) ([]Row, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Row, len(keys))
	for i, k := range keys {
		r, ok := m.rows[k]
		if !ok {
			return nil, 0, errAbsent
		}
		out[i] = r
	}
	return out, m.now(), nil
}

// Set implements Rows.
func (m *Memory) Set(ctx context.Context, key, value string) (uint64, error) {
	return m.SetBefore(ctx, key, value, 1<<63-1)
}

// SetBefore implements Dated.
func (m *Memory) SetBefore(_ context.Context, key, value string, bound int64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now() >= bound {
		return 0, ErrLate
	}
	if m.rows == nil {
		m.rows = map[string]Row{}
	}
	r := Row{value, m.rows[key].Version + 1}
	m.rows[key] = r
	return r.Version, nil
}
