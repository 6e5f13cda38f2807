package check

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
)

// Op is one operation of a client, a line of a history.
type Op struct {
	Client   int     `json:"client"`
	Kind     Kind    `json:"kind"`
	Key      string  `json:"key"`
	Value    string  `json:"value,omitempty"`    // read: what was found; write, cas, update: what was written; add: the result
	Found    bool    `json:"found,omitempty"`    // read: there was a value
	Was      string  `json:"was,omitempty"`      // cas: what had to be there; update: what it decided from
	WasFound bool    `json:"wasFound,omitempty"` // update: it decided from a value, not from absence
	Delta    int64   `json:"delta,omitempty"`    // add
	Version  uint64  `json:"version,omitempty"`  // of what was read or written, if the system tells
	Start    int64   `json:"start"`              // nanoseconds on one clock for the whole history
	End      int64   `json:"end"`
	Outcome  Outcome `json:"outcome"`
}

// Kind of an operation.
type Kind string

// The kinds.
const (
	Read   Kind = "read"
	Write  Kind = "write"
	Delete Kind = "delete"
	CAS    Kind = "cas"    // write Value if Was is there
	Update Kind = "update" // write Value, decided from Was, or from absence unless WasFound
	Add    Kind = "add"    // add Delta to the number there; absence counts as 0
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
	case !slices.Contains([]Kind{Read, Write, Delete, CAS, Update, Add}, o.Kind):
		return fmt.Errorf("kind %q is none of read, write, delete, cas, update, add", o.Kind)
	case o.Outcome != OK && o.Outcome != No && o.Outcome != Unknown:
		return fmt.Errorf("outcome %q is none of ok, no, unknown", o.Outcome)
	case o.Outcome == OK && o.End < o.Start:
		return fmt.Errorf("it ends at %d, before it starts at %d", o.End, o.Start)
	case o.Start < 0:
		return fmt.Errorf("it starts at %d; times are not negative", o.Start)
	case o.Kind == Read && !o.Found && o.Value != "":
		return fmt.Errorf("it read %q, but found is not true", o.Value)
	case o.Kind == Update && !o.WasFound && o.Was != "":
		return fmt.Errorf("it decided from %q, but wasFound is not true", o.Was)
	}
	return nil
}

// String is the operation for people.
func (o Op) String() string { return fmt.Sprintf("client %d  %s  %s", o.Client, o.what(), o.when()) }

// what was asked, and answered.
func (o Op) what() string {
	text := string(o.Kind)
	switch {
	case o.Kind == Read && o.Found:
		text += fmt.Sprintf(" found %q", o.Value)
	case o.Kind == Read:
		text += " found nothing"
	case o.Kind == Write:
		text += fmt.Sprintf(" %q", o.Value)
	case o.Kind == Update && !o.WasFound:
		text += fmt.Sprintf(" of nothing to %q", o.Value)
	case o.Kind == CAS || o.Kind == Update:
		text += fmt.Sprintf(" of %q to %q", o.Was, o.Value)
	case o.Kind == Add && o.Outcome == OK:
		text += fmt.Sprintf(" %+d makes %s", o.Delta, o.Value)
	case o.Kind == Add:
		text += fmt.Sprintf(" %+d", o.Delta)
	}
	if o.Version != 0 {
		text += fmt.Sprintf(", version %d", o.Version)
	}
	return text
}

func (o Op) when() string {
	if o.Outcome != OK {
		return fmt.Sprintf("%d ns .. (%s)", o.Start, o.Outcome)
	}
	return fmt.Sprintf("%d ns .. %d ns", o.Start, o.End)
}

// maxLine bounds a line of a history, in bytes.
const maxLine = 64 << 20

// Reader reads a history of JSON lines, one operation at a time.
type Reader struct {
	lines *bufio.Scanner
	line  int
}

// NewReader returns a reader of r.
func NewReader(r io.Reader) *Reader { return newReader(r, maxLine) }

func newReader(r io.Reader, limit int) *Reader {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, min(limit, 64<<10)), limit)
	return &Reader{lines: lines}
}

// Next is the next operation, or io.EOF. Empty lines are skipped; an error names
// its line.
func (r *Reader) Next() (o Op, err error) {
	for r.lines.Scan() {
		r.line++
		if len(r.lines.Bytes()) == 0 {
			continue
		}
		if err = json.Unmarshal(r.lines.Bytes(), &o); err == nil {
			err = o.check()
		}
		if err != nil {
			return Op{}, fmt.Errorf("check: line %d: %w", r.line, err)
		}
		return o, nil
	}
	switch err = r.lines.Err(); {
	case err == nil:
		return Op{}, io.EOF
	case errors.Is(err, bufio.ErrTooLong):
		return Op{}, fmt.Errorf("check: line %d: it is too long for an operation", r.line+1)
	}
	return Op{}, fmt.Errorf("check: line %d: %w", r.line+1, err)
}

// ReadAll reads a whole history. See Reader.
func ReadAll(r io.Reader) (ops []Op, err error) {
	in := NewReader(r)
	for {
		o, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return ops, nil
		case err != nil:
			return nil, err
		}
		ops = append(ops, o)
	}
}

// Writer records a history. It is safe for concurrent use.
type Writer struct {
	mu  sync.Mutex
	buf *bufio.Writer
	enc *json.Encoder
	err error // the first

	closed bool
}

// NewWriter returns a writer of JSON lines to w.
func NewWriter(w io.Writer) *Writer {
	buf := bufio.NewWriterSize(w, 1<<20)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	return &Writer{buf: buf, enc: enc}
}

var errWriterClosed = errors.New("check: an operation was added after Close: it is not in the history")

// Add records an operation. Close says what went wrong.
func (w *Writer) Add(o Op) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
	case w.closed:
		w.err = errWriterClosed
	default:
		w.err = w.enc.Encode(o)
	}
}

// Close hands on what is buffered and returns the first error there was. An
// operation added later is an error of the next Close.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.buf.Flush()
	}
	w.closed = true
	return w.err
}
