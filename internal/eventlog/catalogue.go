package eventlog

import (
	"context"
	"log/slog"
	"time"
)

// LevelFatal is the level of events after which the process, or a part of it, does not
// go on as before.
const LevelFatal = slog.Level(12)

// Kind is one kind of event: its name, its level, the fields that every line of it has,
// and how many lines of it one minute may have.
type Kind struct {
	Name   string
	Level  slog.Level
	Fields []string
	// Per names the fields that tell one subject from another: the limit counts for each
	// subject by itself.
	Per   []string
	Burst int // lines of one subject in a minute; the rest are counted
}

// transition is for events that say that something changed; symptom is for events that
// repeat for as long as their cause lasts.
const (
	transition = 60
	symptom    = 1
)

// The events. docs/operating.md lists them too, and a test compares the two lists.
var (
	NodeStarted = kind("node_started", slog.LevelInfo, transition, "", "version", "store", "lease")
	NodeJoined  = kind("node_joined", slog.LevelInfo, transition, "member", "member", "incarnation")
	NodeLeft    = kind("node_left", slog.LevelInfo, transition, "member", "member", "incarnation")
	NodeLost    = kind("node_lost", slog.LevelWarn, transition, "member", "member", "slices", "writable_at")
	NodeBack    = kind("node_back", slog.LevelWarn, transition, "member", "member", "ms")

	DrainBegan      = kind("drain_began", slog.LevelInfo, transition, "", "slices")
	DrainDone       = kind("drain_done", slog.LevelInfo, transition, "", "slices", "ms")
	SliceMoved      = kind("slice_moved", slog.LevelInfo, 4*transition, "", "range", "from", "to", "why", "ms")
	ReplicasChanged = kind("replicas_changed", slog.LevelInfo, transition, "", "slice", "n", "rate")
	LeaderChanged   = kind("leader_changed", slog.LevelInfo, transition, "", "from", "to")
	ConfigChanged   = kind("config_changed", slog.LevelInfo, transition, "name", "name", "by")

	LeaseLate   = kind("lease_late", slog.LevelWarn, symptom, "", "margin_ms")
	StoreSlow   = kind("store_slow", slog.LevelWarn, symptom, "request", "request", "ms")
	StoreAway   = kind("store_away", slog.LevelWarn, transition, "", "request", "ms")
	StoreBack   = kind("store_back", slog.LevelWarn, transition, "", "request", "ms")
	SlowCommand = kind("slow_command", slog.LevelWarn, symptom, "name", "name", "ms", "bytes", "client")
	ClientCut   = kind("client_cut", slog.LevelWarn, symptom, "why", "why")
	ClockJump   = kind("clock_jump", slog.LevelWarn, symptom, "", "ms")
	Denied      = kind("denied", slog.LevelWarn, symptom, "command", "user", "command")

	OutcomeUnknown  = kind("outcome_unknown", slog.LevelError, symptom, "request", "key_hash", "request")
	IncarnationLost = kind("incarnation_lost", slog.LevelError, transition, "space", "space", "incarnation")
	StoreFull       = kind("store_full", slog.LevelError, symptom, "", "request")
	AuditViolation  = kind("audit_violation", slog.LevelError, transition, "space", "space", "promise", "read", "expected")

	SteppedAside = kind("stepped_aside", LevelFatal, transition, "", "rule")
	DataRefused  = kind("data_refused", LevelFatal, transition, "", "why")
)

// message is any other line: a sentence with no event of its own.
var message = Kind{Name: "message", Per: []string{slog.MessageKey}, Burst: 8}

var catalogue = map[string]*Kind{}

func kind(name string, level slog.Level, burst int, per string, fields ...string) *Kind {
	k := &Kind{Name: name, Level: level, Fields: fields, Burst: burst}
	if per != "" {
		k.Per = []string{per}
	}
	catalogue[name] = k
	return k
}

// Kinds are all events that there are, by name.
func Kinds() map[string]*Kind { return catalogue }

// Log writes an event: what happened as a sentence, then its fields as slog takes them.
func (k *Kind) Log(l *slog.Logger, sentence string, fields ...any) {
	if !l.Enabled(context.Background(), k.Level) {
		return
	}
	l.Log(context.Background(), k.Level, sentence, append([]any{"event", k.Name}, fields...)...)
}

// Ms is a duration as the fields named ms have it.
func Ms(d time.Duration) int64 { return d.Milliseconds() }
