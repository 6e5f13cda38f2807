package freshet_test

import (
	"context"
	"fmt"

	"github.com/freshet-cache/freshet/linear"
	"github.com/freshet-cache/freshet/store/memory"
)

// A cache of prices. With a store that lasts, open store/pebble instead.
func Example() {
	ctx := context.Background()
	prices, err := linear.New(linear.Options[int]{Store: memory.New(memory.Options{}), Codec: linear.JSON[int]()})
	if err != nil {
		panic(err)
	}
	defer prices.Close(ctx)

	_ = prices.Set(ctx, "tea", 250)
	_, err = prices.Update(ctx, []string{"tea"}, func(tx *linear.Tx[int]) error {
		tea, err := tx.Get("tea") // nobody writes it until this is committed
		if err != nil {
			return err
		}
		return tx.Set("tea", tea.Value+30)
	})
	cents, found, _ := prices.Get(ctx, "tea") // from memory, and never stale
	fmt.Println(cents, found, err)
	// Output: 280 true <nil>
}
