package baseline

import (
	"context"
	"time"

	"github.com/freshet-cache/freshet/linear"
)

// Freshet is linear.Cache in process, on the instance that owns the keys. The other systems are
// compared with it.
type Freshet struct{ Cache *linear.Cache[string] }

// Get implements System.
func (s Freshet) Get(ctx context.Context, keys []string, out []Reading) error {
	for i, k := range keys {
		e, err := s.Cache.GetEntry(ctx, k)
		if err != nil {
			return err
		}
		if !e.Exists {
			return errAbsent
		}
		out[i] = Reading{e.Value, e.Version, e.Hit}
	}
	return nil
}

// Set implements System.
func (s Freshet) Set(ctx context.Context, key, value string) (uint64, error) {
	return s.Cache.SetTTL(ctx, key, value, 0)
}

// Close implements System.
func (s Freshet) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return s.Cache.Close(ctx)
}
