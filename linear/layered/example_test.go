package layered_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/linear/layered"
	"github.com/freshet-cache/freshet/store/memory"
)

// values is a value cache; layered.Redis makes one of a Redis. It may forget what it likes, and may
// answer with what is old.
type values struct {
	mu    sync.Mutex
	items map[string][]byte
}

func (v *values) Get(_ context.Context, key string) ([]byte, bool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	item, ok := v.items[key]
	return item, ok, nil
}

func (v *values) Set(_ context.Context, key string, item []byte, _ time.Duration) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.items[key] = item
	return nil
}

// The versions of keys are in this process and the values elsewhere. A value is served only if its
// version is the latest.
func Example() {
	ctx := context.Background()
	versions, err := linear.New(linear.Options[string]{Store: memory.New(memory.Options{}), Codec: linear.String(), VersionsOnly: true})
	if err != nil {
		panic(err)
	}
	defer versions.Close(ctx)
	users, err := layered.New(layered.Options{Versions: layered.Local(versions), Values: &values{items: map[string][]byte{}}})
	if err != nil {
		panic(err)
	}
	defer users.Close(ctx)

	_ = users.Set(ctx, "user:7", "Ann")
	name, found, err := users.Get(ctx, "user:7")
	fmt.Println(name, found, err)
	// Output: Ann true <nil>
}
