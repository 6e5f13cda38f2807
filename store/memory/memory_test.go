package memory_test

import (
	"testing"

	"github.com/freshet-cache/freshet/store/memory"
	"github.com/freshet-cache/freshet/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Store { return memory.New(memory.Options{}) })
}
