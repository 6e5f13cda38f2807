package sim

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// meshSeeds have found something once.
var meshSeeds = []uint64{
	881, 2520, // a write that is recalled depends on one that its session carries
	1582,          // a snapshot of nothing is not the present where all that there was has been retired
	6631,          // outside writes leave the journal of an asynchronous space before the store remembers them
	6726,          // what is deleted externally is collected before every server has shown it
	5626,          // of many keys that may go, one too few goes
	303, 461, 950, // a read past the servers finds a write of which the journal has truncated, and with it of its causes
	1027, // a read past the servers finds that what it knows is deleted, and the deletion is collected
	2577, // a server that another ring has left behind reads a journal that has forgotten a cause
}

// TestMeshStorms runs the seeds that have failed once, and then 500, or FRESHET_SEEDS.
func TestMeshStorms(t *testing.T) {
	n := uint64(500)
	if testing.Short() {
		n = 20
	}
	if os.Getenv("FRESHET_SEEDS") != "" {
		n = campaign(t)
	}
	seeds := append([]uint64{}, meshSeeds...)
	for i := range n {
		seeds = append(seeds, i+1)
	}
	seen, events := try(t, seeds, "FRESHET_SEED=%d go test -v -run TestMeshReplay ./sim", func(seed uint64) Result { return RunMesh(seed, NewMeshConfig(seed), false) })
	for _, what := range RareMesh() {
		if seen[what] == 0 && !testing.Short() {
			t.Errorf("never in %d seeds: %s", len(seeds), what)
		}
	}
	t.Logf("%d seeds, %d events", len(seeds), events)
}

// TestMeshReplay prints what happens in one seed.
func TestMeshReplay(t *testing.T) {
	v := os.Getenv("FRESHET_SEED")
	if v == "" {
		t.Skip("set FRESHET_SEED")
	}
	seed, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	res := RunMesh(seed, NewMeshConfig(seed), true)
	t.Logf("%+v\n%s", NewMeshConfig(seed), strings.Join(res.Log, "\n"))
	if res.Err != nil {
		t.Fatal(res.Err)
	}
}

// The same seed gives the same storm.
func TestMeshStormsRepeat(t *testing.T) {
	for seed := range uint64(10) {
		a, b := RunMesh(seed, NewMeshConfig(seed), true), RunMesh(seed, NewMeshConfig(seed), true)
		if a.Events != b.Events || len(a.Log) != len(b.Log) {
			t.Fatalf("seed %d ran in two ways: %d and %d events", seed, a.Events, b.Events)
		}
	}
}
