package memory_test

import (
	"testing"

	"github.com/freshet-cache/freshet/store/memory"
	"github.com/freshet-cache/freshet/store/storetest"
)

func TestDotted(t *testing.T) {
	storetest.RunDotted(t, func(*testing.T) storetest.Dotted { return memory.NewDotted(memory.Options{}) })
	storetest.RunLog(t, memory.NewDotted(memory.Options{}))
}
