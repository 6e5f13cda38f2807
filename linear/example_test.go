package linear_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/store/memory"
	"github.com/freshet-cache/freshet/store/pebble"
)

// A value that does not exist is made once, however many ask for it at the same time.
func ExampleCache_GetOrLoad() {
	ctx := context.Background()
	pages, err := linear.New(linear.Options[string]{Store: memory.New(memory.Options{}), Codec: linear.String(), TTL: time.Hour})
	if err != nil {
		panic(err)
	}
	defer pages.Close(ctx)

	render := func(ctx context.Context, key string) (string, error) { return "<h1>" + key + "</h1>", nil }
	page, err := pages.GetOrLoad(ctx, "home", render)
	fmt.Println(page, err)
	// Output: <h1>home</h1> <nil>
}

// Several keys are read with one call; those that do not exist are left out.
func ExampleCache_GetMany() {
	ctx := context.Background()
	prices, err := linear.New(linear.Options[int]{Store: memory.New(memory.Options{}), Codec: linear.JSON[int]()})
	if err != nil {
		panic(err)
	}
	defer prices.Close(ctx)

	_ = prices.SetAll(ctx, map[string]int{"tea": 250, "milk": 120})
	found, err := prices.GetMany(ctx, "tea", "milk", "caviar")
	fmt.Println(found, err)
	// Output: map[milk:120 tea:250] <nil>
}

// An update decides from the latest values of its keys, which nobody else writes meanwhile.
func ExampleCache_Update() {
	ctx := context.Background()
	accounts, err := linear.New(linear.Options[int]{Store: memory.New(memory.Options{}), Codec: linear.JSON[int]()})
	if err != nil {
		panic(err)
	}
	defer accounts.Close(ctx)

	_ = accounts.SetAll(ctx, map[string]int{"ann": 100, "bob": 0})
	_, err = accounts.Update(ctx, []string{"ann", "bob"}, func(tx *linear.Tx[int]) error {
		ann, err := tx.Get("ann")
		if err != nil || ann.Value < 30 {
			return fmt.Errorf("ann has %d: %w", ann.Value, err)
		}
		bob, err := tx.Get("bob")
		if err != nil {
			return err
		}
		_ = tx.Set("ann", ann.Value-30)
		return tx.Set("bob", bob.Value+30)
	})
	found, _ := accounts.GetMany(ctx, "ann", "bob")
	fmt.Println(found, err)
	// Output: map[ann:70 bob:30] <nil>
}

// A store that lasts: store/pebble keeps rows in a directory of this process.
func ExampleNew_pebble() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "freshet")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for range 2 { // the second time it is there already
		rows, err := pebble.Open(dir, pebble.Options{})
		if err != nil {
			panic(err)
		}
		visits, err := linear.New(linear.Options[int]{Store: rows, Codec: linear.JSON[int]()})
		if err != nil {
			panic(err)
		}
		_, _ = visits.Update(ctx, []string{"home"}, func(tx *linear.Tx[int]) error {
			home, err := tx.Get("home")
			if err != nil {
				return err
			}
			return tx.Set("home", home.Value+1)
		})
		n, _, _ := visits.Get(ctx, "home")
		fmt.Println(n)
		_ = visits.Close(ctx)
		_ = rows.Close()
	}
	// Output:
	// 1
	// 2
}
