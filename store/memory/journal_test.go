package memory_test

import (
	"testing"

	"github.com/freshet-cache/freshet/store/memory"
	"github.com/freshet-cache/freshet/store/storetest"
)

func TestJournal(t *testing.T) {
	storetest.RunJournal(t, func(*testing.T) storetest.Journal { return memory.NewJournal(memory.Options{}) })
	storetest.RunLog(t, memory.NewJournal(memory.Options{}))
}
