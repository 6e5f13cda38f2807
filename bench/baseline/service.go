package baseline

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"

	"github.com/redis/rueidis"
)

// Local is a Service in this process. The zero value is empty.
type Local struct {
	mu     sync.Mutex
	bounds map[string]int64
	kept   map[string]Dating
}

// Look implements Service.
func (l *Local) Look(_ context.Context, keys []string) ([]Dating, []int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	cached, bounds := make([]Dating, len(keys)), make([]int64, len(keys))
	for i, k := range keys {
		cached[i], bounds[i] = l.kept[k], l.bounds[k]
	}
	return cached, bounds, nil
}

// Raise implements Service.
func (l *Local) Raise(_ context.Context, key string, bound int64) (bool, int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.bounds[key]; b >= bound {
		return false, b, nil
	}
	if l.bounds == nil {
		l.bounds = map[string]int64{}
	}
	l.bounds[key] = bound
	return true, bound, nil
}

// Keep implements Service.
func (l *Local) Keep(_ context.Context, keys []string, rows []Dating) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept == nil {
		l.kept = map[string]Dating{}
	}
	for i, k := range keys {
		if rows[i].At > l.kept[k].At {
			l.kept[k] = rows[i]
		}
	}
	return nil
}

// Close implements Service.
func (*Local) Close() error { return nil }

// Remote is a Service in a redis-server that does not evict. The cache and the bounds are one round
// trip away, as in the paper.
type Remote struct {
	client rueidis.Client
	prefix string
}

// NewRemote returns a Remote. All its names in the redis-server begin with prefix.
func NewRemote(addr, prefix string) (*Remote, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		return nil, fmt.Errorf("baseline: the service: %w", err)
	}
	return &Remote{c, prefix}, nil
}

// Look implements Service.
func (s *Remote) Look(ctx context.Context, keys []string) ([]Dating, []int64, error) {
	names := make([]string, 0, 2*len(keys))
	for _, k := range keys {
		names = append(names, s.prefix+"bound:"+k, s.prefix+"row:"+k)
	}
	found, err := s.client.Do(ctx, s.client.B().Mget().Key(names...).Build()).ToArray()
	if err != nil {
		return nil, nil, fmt.Errorf("baseline: the service: %w", err)
	}
	cached, bounds := make([]Dating, len(keys)), make([]int64, len(keys))
	for i := range keys {
		if text, err := found[2*i].ToString(); err == nil {
			bounds[i], _ = strconv.ParseInt(text, 10, 64) // in the format of Raise
		}
		if text, err := found[2*i+1].ToString(); err == nil {
			cached[i].At = int64(binary.BigEndian.Uint64([]byte(text[:8])))
			cached[i].Row = unpack(text[8:])
		}
	}
	return cached, bounds, nil
}

// raise compares bounds as texts of equal length, because numbers of Lua have too few bits.
var raise = rueidis.NewLuaScript(`local b = redis.call('GET', KEYS[1])
if b and b >= ARGV[1] then return b end
redis.call('SET', KEYS[1], ARGV[1])
return ''`)

// Raise implements Service.
func (s *Remote) Raise(ctx context.Context, key string, bound int64) (bool, int64, error) {
	text, err := raise.Exec(ctx, s.client, []string{s.prefix + "bound:" + key}, []string{fmt.Sprintf("%020d", bound)}).ToString()
	if err != nil {
		return false, 0, fmt.Errorf("baseline: the service: %w", err)
	}
	if text == "" {
		return true, bound, nil
	}
	standing, err := strconv.ParseInt(text, 10, 64)
	return false, standing, err
}

// Keep implements Service. A row that was read before another may take its place: that
// costs a hit, and is checked like any other.
func (s *Remote) Keep(ctx context.Context, keys []string, rows []Dating) error {
	var sets rueidis.Commands
	for i, k := range keys {
		value := string(binary.BigEndian.AppendUint64(nil, uint64(rows[i].At))) + pack(rows[i].Row)
		sets = append(sets, s.client.B().Set().Key(s.prefix+"row:"+k).Value(value).Build())
	}
	for _, r := range s.client.DoMulti(ctx, sets...) {
		if err := r.Error(); err != nil {
			return fmt.Errorf("baseline: the service: %w", err)
		}
	}
	return nil
}

// Close implements Service.
func (s *Remote) Close() error {
	s.client.Close()
	return nil
}

// pack encodes a row as text.
func pack(r Row) string { return string(binary.BigEndian.AppendUint64(nil, r.Version)) + r.Value }

func unpack(text string) Row {
	return Row{text[8:], binary.BigEndian.Uint64([]byte(text[:8]))}
}
