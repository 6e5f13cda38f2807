package causal_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"github.com/freshet-cache/freshet/causal"
	"github.com/freshet-cache/freshet/codec"
	"github.com/freshet-cache/freshet/leader/embedded"
	"github.com/freshet-cache/freshet/member"
	"github.com/freshet-cache/freshet/store/memory"
)

// alone is a ring of one node, over a store in memory. With a store that lasts, open the Journal of
// a store/pebble or store/postgres, and give embedded.Open a directory. With several processes, one
// of them has the leader, Ask reaches it over the network, and Dial reaches the other nodes.
// A ring whose spaces merge keeps concurrent writes.
func alone(ctx context.Context, merges bool) (*causal.Ring, func()) {
	coordinator, err := embedded.Open("")
	if err != nil {
		panic(err)
	}
	leader := member.StartLeader(coordinator, member.LeaderOptions{})
	ring, err := causal.Join(causal.Options{
		Settings: causal.Settings{Concurrent: merges},
		Store:    memory.NewJournal(memory.Options{}),
		Addr:     "here",
		Ask: func(_ context.Context, request []byte) ([]byte, error) {
			if answer := leader.Answer(request); answer != nil {
				return answer, nil
			}
			return nil, errors.New("the leader is being elected")
		},
	})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := ring.Ready(ctx); err != nil {
		panic(err)
	}
	return ring, func() {
		ring.Close()
		leader.Close()
		_ = coordinator.Close()
	}
}

// A workflow is a session. Its token goes to the next step, at whichever node that runs.
func Example() {
	ctx := context.Background()
	ring, end := alone(ctx, false)
	defer end()
	feeds, err := causal.NewSpace(ring, causal.SpaceOptions[string]{Codec: codec.String(), Name: "feeds"})
	if err != nil {
		panic(err)
	}

	upload := feeds.Begin()
	_ = upload.Set(ctx, "picture:1", "cat.png")
	_ = upload.Set(ctx, "album:7", "picture:1")
	token, _ := upload.Token()

	show, err := feeds.Resume(token)
	if err != nil {
		panic(err)
	}
	picture, _, _ := show.Get(ctx, "album:7") // never without what it was written after
	url, _, err := show.Get(ctx, picture)
	fmt.Println(picture, url, err)
	// Output: picture:1 cat.png <nil>
}

// Two requests change one cart without knowing of each other; the space's function merges what they
// wrote.
func ExampleSession_Update() {
	ctx := context.Background()
	ring, end := alone(ctx, true)
	defer end()
	union := func(a, b []string) []string {
		return slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(a), b...))))
	}
	carts, err := causal.NewSpace(ring, causal.SpaceOptions[[]string]{Codec: codec.JSON[[]string](), Name: "carts", Merge: union})
	if err != nil {
		panic(err)
	}
	_ = carts.Begin().Set(ctx, "cart:7", []string{"apple"})
	_ = carts.Begin().Set(ctx, "cart:7", []string{"bread"})
	s := carts.Begin()
	err = s.Update(ctx, "cart:7", func(cart []string, _ bool) ([]string, error) {
		return slices.DeleteFunc(cart, func(x string) bool { return x == "apple" }), nil
	})
	cart, _, _ := s.Get(ctx, "cart:7")
	fmt.Println(cart, err)
	// Output: [bread] <nil>
}

// A transaction reads from one snapshot, and all that it writes becomes visible together.
func ExampleSpace_Transact() {
	ctx := context.Background()
	ring, end := alone(ctx, false)
	defer end()
	accounts, err := causal.NewSpace(ring, causal.SpaceOptions[int]{Codec: codec.JSON[int](), Name: "accounts"})
	if err != nil {
		panic(err)
	}
	s, err := accounts.Transact(ctx, func(tx *causal.Tx[int]) error {
		tx.Set("ann", 70)
		tx.Set("bob", 30)
		return nil
	})
	if err != nil {
		panic(err)
	}
	ann, _, _ := s.Get(ctx, "ann")
	bob, _, _ := s.Get(ctx, "bob")
	fmt.Println(ann, bob)
	// Output: 70 30
}

// Handler and RoundTripper carry the session through HTTP requests, in the header Freshet-Session.
func ExampleSpace_Handler() {
	ctx := context.Background()
	ring, end := alone(ctx, false)
	defer end()
	names, err := causal.NewSpace(ring, causal.SpaceOptions[string]{Codec: codec.String(), Name: "names"})
	if err != nil {
		panic(err)
	}
	service := httptest.NewServer(names.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := names.From(r.Context()) // the caller's session
		if r.Method == http.MethodPost {
			_ = s.Set(r.Context(), "user:1", "Ann")
			return
		}
		name, _, _ := s.Get(r.Context(), "user:1")
		fmt.Fprint(w, name)
	})))
	defer service.Close()

	client := &http.Client{Transport: names.RoundTripper(http.DefaultTransport)}
	ctx = names.With(ctx, names.Begin())
	do := func(method string) string {
		request, _ := http.NewRequestWithContext(ctx, method, service.URL, nil)
		response, err := client.Do(request)
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return string(body)
	}
	do(http.MethodPost)
	fmt.Println(do(http.MethodGet))
	// Output: Ann
}
