// Package eventlog writes a log that programs can read: every line has an event, a node
// and a cluster, and an event that repeats takes one line a minute, with a count.
//
// A [Handler] is a slog.Handler. Its level, and whether it writes text or JSON, can be
// changed while it is in use. The events are those of the catalogue; a line of another
// such source has the event "message".
package eventlog

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	window      = time.Minute
	maxSubjects = 1024 // that are counted apart; the rest of an event are one
)

// Options configure a Handler.
type Options struct {
	Out io.Writer // where lines go; nil: to Next
	// Next takes the lines instead of Out, in a format of its own.
	Next   slog.Handler
	Level  string // debug, info (the default), warn or error
	Format string // text (the default) or json
	Node   string // for lines that do not say whose they are
}

// Handler writes lines. It is safe for concurrent use.
type Handler struct {
	*shared
	text, json slog.Handler
	node       bool // a logger made of this one says the node by itself
}

// shared is what all handlers made of one another have in common.
type shared struct {
	level   slog.LevelVar
	asJSON  atomic.Bool
	node    string
	cluster atomic.Pointer[string]

	mu       sync.Mutex
	subjects map[string]*subject
	due      time.Time // nothing is swept before
}

// subject is what the limit knows of one subject in the current minute.
type subject struct {
	began  time.Time
	lines  int
	missed int         // lines not written since
	last   slog.Record // of them
	by     *Handler
}

// New returns a handler. An error says which option is wrong.
func New(opt Options) (*Handler, error) {
	h := &Handler{shared: &shared{node: opt.Node, subjects: map[string]*subject{}}}
	if err := h.SetLevel(orDefault(opt.Level, "info")); err != nil {
		return nil, err
	}
	if err := h.SetFormat(orDefault(opt.Format, "text")); err != nil {
		return nil, err
	}
	switch {
	case opt.Out != nil:
		o := &slog.HandlerOptions{Level: slog.Level(-128), ReplaceAttr: nameFatal} // the level is asked for before
		h.text, h.json = slog.NewTextHandler(opt.Out, o), slog.NewJSONHandler(opt.Out, o)
	case opt.Next != nil:
		h.text, h.json = opt.Next, opt.Next
	default:
		h.text, h.json = slog.DiscardHandler, slog.DiscardHandler
	}
	return h, nil
}

func orDefault(s, d string) string {
	if s == "" {
		return d
	}
	return s
}

func nameFatal(_ []string, a slog.Attr) slog.Attr {
	if l, ok := a.Value.Any().(slog.Level); ok && a.Key == slog.LevelKey && l >= LevelFatal {
		a.Value = slog.StringValue("FATAL")
	}
	return a
}

// Levels and Formats are what SetLevel and SetFormat take.
var (
	Levels  = []string{"debug", "info", "warn", "error"}
	Formats = []string{"text", "json"}
)

// SetLevel changes which lines are written from here on.
func (s *shared) SetLevel(name string) error {
	if !slices.Contains(Levels, name) {
		return fmt.Errorf("log level %q is not known; use %s", name, strings.Join(Levels, ", "))
	}
	return s.level.UnmarshalText([]byte(name))
}

// SetFormat changes how lines are written from here on.
func (s *shared) SetFormat(name string) error {
	if !slices.Contains(Formats, name) {
		return fmt.Errorf("log format %q is not known; use %s", name, strings.Join(Formats, " or "))
	}
	s.asJSON.Store(name == "json")
	return nil
}

// Level and Format are what is in force.
func (s *shared) Level() string { return strings.ToLower(s.level.Level().String()) }

// Format is "text" or "json".
func (s *shared) Format() string {
	if s.asJSON.Load() {
		return "json"
	}
	return "text"
}

// SetCluster gives the name of the cluster that lines have from here on.
func (s *shared) SetCluster(name string) { s.cluster.Store(&name) }

// Enabled implements slog.Handler.
func (h *Handler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	out := &Handler{shared: h.shared, text: h.text.WithAttrs(attrs), json: h.json.WithAttrs(attrs), node: h.node}
	out.node = out.node || slices.ContainsFunc(attrs, func(a slog.Attr) bool { return a.Key == "node" })
	return out
}

// WithGroup implements slog.Handler. What follows stays ungrouped: event, node and
// cluster are found at the same place in every line.
func (h *Handler) WithGroup(string) slog.Handler { return h }

// Handle implements slog.Handler.
func (h *Handler) Handle(_ context.Context, r slog.Record) error {
	k, key := classify(r)
	h.mu.Lock()
	h.sweep(r.Time)
	if len(h.subjects) >= maxSubjects && h.subjects[key] == nil {
		key = k.Name
	}
	s := h.subjects[key]
	if s == nil {
		s = &subject{began: r.Time}
		h.subjects[key] = s
	}
	if s.lines++; s.lines > k.Burst {
		s.missed, s.last, s.by = s.missed+1, r.Clone(), h
		h.mu.Unlock()
		return nil
	}
	h.mu.Unlock()
	return h.write(r, 0)
}

// Sweep writes what was counted in minutes that are over. Handle does so too; it is for
// when nothing else is logged.
func (h *Handler) Sweep(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sweep(now)
}

func (s *shared) sweep(now time.Time) {
	if now.Before(s.due) {
		return
	}
	s.due = now.Add(window / 60)
	var due []*subject
	for key, x := range s.subjects {
		if now.Sub(x.began) < window {
			continue
		}
		if x.missed == 0 {
			delete(s.subjects, key)
			continue
		}
		due = append(due, &subject{missed: x.missed, last: x.last, by: x.by})
		x.began, x.lines, x.missed = now, 1, 0 // the line with the count is the first of the next minute
		x.last, x.by = slog.Record{}, nil
	}
	slices.SortFunc(due, func(a, b *subject) int { return a.last.Time.Compare(b.last.Time) })
	for _, x := range due {
		_ = x.by.write(x.last, x.missed)
	}
}

// classify finds the kind of a line, and what the limit knows it by.
func classify(r slog.Record) (k *Kind, key string) {
	k = &message
	fields := map[string]string{slog.MessageKey: r.Message}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "event" {
			if known := catalogue[a.Value.String()]; known != nil {
				k = known
			}
		}
		fields[a.Key] = a.Value.String()
		return true
	})
	parts := []string{k.Name}
	for _, f := range k.Per {
		parts = append(parts, fields[f])
	}
	if fields["node"] != "" {
		parts = append(parts, fields["node"])
	}
	return k, strings.Join(parts, "\x00")
}

// write writes a line, with event, node and cluster first.
func (h *Handler) write(r slog.Record, count int) error {
	out := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	event, node := "message", h.node
	var rest []slog.Attr
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "event":
			event = a.Value.String()
			return true
		case "node":
			node = true
		}
		rest = append(rest, a)
		return true
	})
	out.AddAttrs(slog.String("event", event))
	if !node {
		out.AddAttrs(slog.String("node", h.shared.node))
	}
	cluster := ""
	if c := h.cluster.Load(); c != nil {
		cluster = *c
	}
	out.AddAttrs(slog.String("cluster", cluster))
	out.AddAttrs(rest...)
	if count > 0 {
		out.AddAttrs(slog.Int("count", count))
	}
	if h.asJSON.Load() {
		return h.json.Handle(context.Background(), out)
	}
	return h.text.Handle(context.Background(), out)
}

// Names are the events' names, sorted.
func Names() []string { return slices.Sorted(maps.Keys(catalogue)) }
