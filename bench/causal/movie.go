package causal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freshet-cache/freshet/bench/causalbase"
	"github.com/freshet-cache/freshet/bench/kit"
)

// movieSystems are the systems that can run it. hydro-con cannot, because it must know the reads in
// advance.
var movieSystems = []string{"freshet", "freshet-tcc", "hydro-opt", "faastcc", "dax", "none"}

// publishedMovie has the figures of section 9.5.
var publishedMovie = map[string]publishedBeside{
	"hydro-opt": {"2 times", "up to 64 % lower"},
	"faastcc":   {"2 times", "up to 64 % lower"},
}

func movieSizesOf(o kit.Options) microSizes {
	switch {
	case o.Preset == "tiny":
		return microSizes{50, []float64{200}, 100 * time.Millisecond, 8, 1}
	case o.Preset == "paper":
		return microSizes{1000, []float64{500, 1000, 1500, 2500}, 10 * time.Second, 128, 5}
	}
	return microSizes{1000, []float64{300, 900}, 500 * time.Millisecond, 128, 3}
}

const (
	movieServers = 3
	movieList    = 10 // reviews in the list of a movie and of a user
	movieFirst   = 5  // reviews in the lists at the start
)

// movieRows returns movies and users with lists of reviews, and these reviews.
func movieRows(n int, seed uint64) map[string]string {
	rows, r := map[string]string{}, kit.Stream(seed, 77)
	text := strings.Repeat("a fine film. ", 20)
	for i := range n {
		for _, kind := range []string{"movie.", "user."} {
			var ids []string
			for j := range movieFirst {
				id := fmt.Sprint("old", (i*movieFirst+j+r.IntN(n*movieFirst))%(n*movieFirst))
				ids = append(ids, id)
				rows["review."+id] = causalbase.Initial(text)
			}
			rows[kind+strconv.Itoa(i)] = causalbase.Initial(strings.Join(ids, ","))
		}
	}
	return rows
}

// movie is a mix: half of the workflows compose a review, the other half show the reviews of a
// movie.
func movie(n int, seed uint64) causalLoad {
	text := strings.Repeat("what a film! ", 20)
	return causalLoad{servers: movieServers, rows: movieRows(n, seed), seed: seed, next: func(i int, r *rand.Rand, number func() int64) workflow {
		var places []int
		for range 9 {
			places = append(places, r.IntN(movieServers))
		}
		film, user := "movie."+strconv.Itoa(r.IntN(n)), "user."+strconv.Itoa(r.IntN(n))
		if r.IntN(2) == 0 {
			return showMovie(places, film)
		}
		return workflow{places: places, body: func(ctx context.Context, f *causalbase.Recorded) error {
			return compose(ctx, f, places, []string{user, film}, text, number)
		}}
	}}
}

// compose writes a review of a movie by a user. Four parallel functions make its parts, which the
// workflow carries. One function assembles them, one stores the review, and two parallel functions
// add it to the lists.
func compose(ctx context.Context, f *causalbase.Recorded, places []int, lists []string, text string, number func() int64) error {
	if err := f.Siblings(places[1:5], func(int, *causalbase.Recorded) error { return nil }); err != nil {
		return err
	}
	if err := f.Move(places[5]); err != nil {
		return err
	}
	if err := f.Move(places[6]); err != nil {
		return err
	}
	id := strconv.FormatInt(number(), 10)
	if err := f.Write(ctx, "review."+id, causalbase.Fresh(number(), text)); err != nil {
		return err
	}
	return f.Siblings(places[7:9], func(i int, f *causalbase.Recorded) error {
		got, err := f.Read(ctx, lists[i])
		if err != nil {
			return err
		}
		ids := append(strings.Split(causalbase.Text(got[0]), ","), id)
		ids = ids[max(0, len(ids)-movieList):]
		return f.Write(ctx, lists[i], causalbase.Fresh(number(), strings.Join(ids, ",")))
	})
}

// showMovie reads the list of a movie and then, at another server, every review on it. Every review
// must exist.
func showMovie(places []int, film string) workflow {
	missing := false
	return workflow{places: places, body: func(ctx context.Context, f *causalbase.Recorded) error {
		got, err := f.Read(ctx, film)
		if err != nil {
			return err
		}
		if err := f.Move(places[1]); err != nil {
			return err
		}
		var keys []string
		for id := range strings.SplitSeq(causalbase.Text(got[0]), ",") {
			keys = append(keys, "review."+id)
		}
		slices.Sort(keys)
		reviews, err := f.Read(ctx, slices.Compact(keys)...)
		missing = slices.Contains(reviews, "")
		return err
	}, done: func(r *causalRun) {
		if missing {
			r.missing.Add(1)
		}
	}}
}

// causalMovie reproduces figure 16.
func causalMovie(ctx context.Context, opt kit.Options) (*kit.Report, error) {
	sizes := movieSizesOf(opt)
	l := &loops{opt: opt, sizes: sizes, load: func(seed uint64) causalLoad { return movie(sizes.keys, seed) }, compared: publishedMovie}
	r, err := l.run(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range opt.Systems {
		v := l.verdicts[s]
		r.Rows = append(r.Rows, kit.Row{"system": s, "workflows": v.flows, "missing": v.missing, "anomalous": v.anomalous})
		r.Headline[s+"_missing"] = float64(v.missing)
		r.Anomalies[s] = max(v.anomalous, v.missing)
		if strings.HasPrefix(s, "freshet") {
			r.Goal(s+": pages that list a review which is not there", "0", "-", v.missing, v.missing == 0)
		}
	}
	r.Set("list", movieList)
	return r, nil
}

func movieTables(r *kit.Report) []kit.Table {
	return append(loopTables(r), kit.Table{Title: "What users would see", Rows: r.With("missing"),
		Columns: kit.Columns("system", "system", "workflows", "workflows", "missing", "pages with a review that is not there", "anomalous", "workflows with any anomaly")})
}
