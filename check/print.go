package check

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

const (
	shown  = 40 // operations of a witness that are printed
	across = 60 // columns of a timeline
)

// Print writes the verdict for people. A violation comes with a timeline of the
// operations that contradict each other.
func (v Verdict) Print(w io.Writer) {
	fmt.Fprintf(w, "%s: %d operations on %d keys, %d of them searched\n", v.Finding, v.Ops, v.Keys, v.Searched)
	if v.Finding == Linearizable {
		return
	}
	fmt.Fprintf(w, "key %q: %s\n", v.Key, v.Reason)
	timeline(w, v.Witness[:min(len(v.Witness), shown)])
	if n := len(v.Witness) - shown; n > 0 {
		fmt.Fprintf(w, "  and %d more\n", n)
	}
}

// timeline draws one line for each operation. It keeps the order of the starts
// and ends, not the distances, so that overlaps can be seen.
func timeline(w io.Writer, ops []Op) {
	var times []int64
	for _, o := range ops {
		if times = append(times, o.Start); o.Outcome == OK {
			times = append(times, o.End)
		}
	}
	slices.Sort(times)
	times = slices.Compact(times)
	width := min(2*len(times), across)
	column := func(t int64) int {
		i, _ := slices.BinarySearch(times, t)
		return i * width / len(times)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, o := range ops {
		from, to, end := column(o.Start), width, ">"
		if o.Outcome == OK {
			to, end = column(o.End), "|"
		}
		bar := strings.Repeat(" ", from) + "|" + strings.Repeat("-", max(0, to-from-1)) + end
		fmt.Fprintf(t, "  client %d\t%s\t%s\t%s\n", o.Client, o.what(), bar, o.when())
	}
	_ = t.Flush() // who prints to a broken pipe learns it elsewhere
}
