package check

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
)

// Op is one operation of a client, a line of a history.
type Op struct {
	Client  int     `json:"client"`
	Kind    Kind    `json:"kind"`
	Key     string  `json:"key"`
	Value   string  `json:"value,omitempty"`   // read: what was found; write, cas: what was written; add: the result
	Found   bool    `json:"found,omitempty"`   // read: there was a value
	Was     string  `json:"was,omitempty"`     // cas: what had to be there
	Delta   int64   `json:"delta,omitempty"`   // add
	Version uint64  `json:"version,omitempty"` // of what was read or written, if the system tells
	Start   int64   `json:"start"`             // nanoseconds on one clock for the whole history
	End     int64   `json:"end"`
	Outcome Outcome `json:"outcome"`
}

// Kind of an operation.
type Kind string

// The kinds.
const (
	Read   Kind = "read"
	Write  Kind = "write"
	Delete Kind = "delete"
	CAS    Kind = "cas" // write Value if Was is there
	Add    Kind = "add" // add Delta to the number there; absence counts as 0
)

// Outcome is what the client was told.
type Outcome string

// The outcomes.
const (
	OK      Outcome = "ok"      // it happened
	No      Outcome = "no"      // it did not and will not
	Unknown Outcome = "unknown" // it may have, or may still
)

// never is when an operation ends that has no answer.
const never = math.MaxInt64

// check says what is wrong with an operation.
func (o *Op) check() error {
	switch {
	case o.Kind != Read && o.Kind != Write && o.Kind != Delete && o.Kind != CAS && o.Kind != Add:
		return fmt.Errorf("kind %q is none of read, write, delete, cas, add", o.Kind)
	case o.Outcome != OK && o.Outcome != No && o.Outcome != Unknown:
		return fmt.Errorf("outcome %q is none of ok, no, unknown", o.Outcome)
	case o.Outcome == OK && o.End < o.Start:
		return fmt.Errorf("it ends at %d, before it starts at %d", o.End, o.Start)
	case o.Start < 0:
		return fmt.Errorf("it starts at %d; times are not negative", o.Start)
	}
	return nil
}

// String is the operation for people.
func (o Op) String() string {
	what := ""
	switch o.Kind {
	case Read:
		what = "found nothing"
		if o.Found {
			what = fmt.Sprintf("found %q", o.Value)
		}
	case Write:
		what = fmt.Sprintf("%q", o.Value)
	case CAS:
		what = fmt.Sprintf("%q for %q", o.Value, o.Was)
	case Add:
		what = fmt.Sprintf("%+d makes %s", o.Delta, o.Value)
	}
	end := "no answer"
	if o.Outcome == OK {
		end = fmt.Sprintf("%d ns", o.End)
	}
	version := ""
	if o.Version != 0 {
		version = fmt.Sprintf(" version %d", o.Version)
	}
	return fmt.Sprintf("%d ns .. %s  client %d: %s %s %s%s (%s)", o.Start, end, o.Client, o.Kind, o.Key, what, version, o.Outcome)
}

// maxLine bounds a line of a history, in bytes.
const maxLine = 64 << 20

// ReadAll reads a history of JSON lines. Empty lines are skipped; an error names
// its line.
func ReadAll(r io.Reader) ([]Op, error) {
	var ops []Op
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), maxLine)
	line := 0
	for sc.Scan() {
		line++
		if len(sc.Bytes()) == 0 {
			continue
		}
		var o Op
		err := json.Unmarshal(sc.Bytes(), &o)
		if err == nil {
			err = o.check()
		}
		if err != nil {
			return nil, fmt.Errorf("check: line %d: %w", line, err)
		}
		ops = append(ops, o)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("check: line %d: %w", line+1, err)
	}
	return ops, nil
}

// Writer records a history. It is safe for concurrent use.
type Writer struct {
	mu  sync.Mutex
	buf *bufio.Writer
	enc *json.Encoder
	err error
}

// NewWriter returns a writer of JSON lines to w.
func NewWriter(w io.Writer) *Writer {
	buf := bufio.NewWriterSize(w, 1<<20)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	return &Writer{buf: buf, enc: enc}
}

// Add records an operation. The first error is kept for Flush.
func (w *Writer) Add(o Op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = errors.Join(w.err, w.enc.Encode(o))
}

// Flush hands on what is buffered, and returns the errors so far.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = errors.Join(w.err, w.buf.Flush())
	return w.err
}
