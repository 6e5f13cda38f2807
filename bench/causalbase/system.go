package causalbase

import (
	"context"
	"fmt"
	"time"
)

// Names are the systems.
var Names = []string{"freshet", "freshet-tcc", "hydro-con", "hydro-opt", "faastcc", "dax", "none"}

// New returns a system over rows, with filled caches.
func New(ctx context.Context, name string, w *World, rows map[string]string) (System, error) {
	w.quick.Store(true)
	defer w.quick.Store(false)
	switch name {
	case "freshet":
		return newRing(ctx, w, rows, false)
	case "freshet-tcc":
		return newRing(ctx, w, rows, true)
	case "none":
		return &uncached{w, newRows(w, rows)}, nil
	case "dax":
		return newDax(w, rows, time.Millisecond), nil
	case "hydro-con", "hydro-opt":
		return newHydro(w, rows, name == "hydro-con"), nil
	case "faastcc":
		return newFaas(w, rows), nil
	}
	return nil, fmt.Errorf("causalbase: there is no system %q", name)
}
