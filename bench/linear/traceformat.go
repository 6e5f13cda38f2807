package linear

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// recording is the contents of a trace: the keys in order, and which accesses were writes, if the
// trace says so.
type recording struct {
	keys   []uint32
	writes []bool // nil if the trace does not say
}

// parseTrace reads at most limit accesses, in the format that the name or the first
// bytes show: big-endian uint32 keys, CSV, or what redis-cli MONITOR prints.
func parseTrace(name string, in io.Reader, limit int) (*recording, error) {
	r := bufio.NewReaderSize(in, 1<<16)
	first, _ := r.Peek(4096)
	switch base := strings.TrimSuffix(filepath.Base(name), ".gz"); {
	case monitored.Match(first):
		return parseMonitor(r, limit)
	case strings.HasSuffix(base, ".csv") || strings.HasSuffix(base, ".txt") || !strings.Contains(base, ".be32") && readable(first):
		return parseCSV(r, limit)
	}
	b, err := io.ReadAll(io.LimitReader(r, 4*int64(limit)))
	switch {
	case err != nil:
		return nil, err
	case len(b) == 0 || len(b)%4 != 0:
		return nil, fmt.Errorf("%d bytes are no big-endian uint32s, and no CSV and no output of redis-cli MONITOR either", len(b))
	}
	keys := make([]uint32, len(b)/4)
	_, err = binary.Decode(b, binary.BigEndian, keys)
	return &recording{keys: keys}, err
}

// readable reports whether bytes look like lines of text.
func readable(b []byte) bool {
	return bytes.IndexByte(b, '\n') >= 0 && !bytes.ContainsFunc(b, func(c rune) bool { return c < ' ' && c != '\n' && c != '\r' && c != '\t' })
}

// numbering numbers keys of any form: a part from which values get their sizes, and a count, so
// that no two keys share a number.
type numbering struct {
	numbers map[string]uint32
	*recording
}

const maxKeysOfTrace = 1 << 27

func (n *numbering) add(key string, write bool) error {
	id, ok := n.numbers[key]
	if !ok {
		if len(n.numbers) >= maxKeysOfTrace {
			return errors.New("more than 134 million keys")
		}
		h := fnv.New32a()
		_, _ = io.WriteString(h, key)
		id = h.Sum32()<<27 | uint32(len(n.numbers))
		n.numbers[strings.Clone(key)] = id
	}
	n.keys, n.writes = append(n.keys, id), append(n.writes, write)
	return nil
}

func newNumbering() *numbering { return &numbering{map[string]uint32{}, &recording{}} }

// Words of traces for operations.
var (
	readWords = strings.Fields("get gets read r mget getex exists strlen getrange substr ttl pttl type touch hget hgetall hmget hexists hlen hkeys hvals " +
		"lrange llen lindex smembers sismember smismember scard zrange zrangebyscore zscore zcard zrank getbit bitcount")
	writeWords = strings.Fields("set write w put update add replace cas append prepend delete del unlink incr decr incrby decrby incrbyfloat setex psetex setnx " +
		"getset getdel mset msetnx setrange expire pexpire expireat pexpireat persist hset hmset hsetnx hdel hincrby lpush rpush lpop rpop ltrim lset lrem " +
		"sadd srem spop zadd zrem zincrby setbit")
	keyHeads = []string{"key", "k", "object", "object_id", "obj_id", "id"}
	opHeads  = []string{"op", "operation", "command", "cmd", "verb", "method"}
)

// parseCSV reads lines of CSV. A header may name the columns key and op, or a similar word. Without
// a header, the first column is the key and the column with a word for an operation is the
// operation. Seven columns are the format of the traces of Twitter.
func parseCSV(in io.Reader, limit int) (*recording, error) {
	c := csv.NewReader(in)
	c.FieldsPerRecord, c.LazyQuotes, c.ReuseRecord, c.TrimLeadingSpace = -1, true, true, true
	out := newNumbering()
	key, op := 0, -1
	for line := 1; len(out.keys) < limit; line++ {
		f, err := c.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if line == 1 {
			head := func(names []string) int {
				return slices.IndexFunc(f, func(s string) bool { return slices.Contains(names, strings.ToLower(s)) })
			}
			word := func(s string) bool { _, known := isWrite(s); return known }
			if k := head(keyHeads); k >= 0 {
				key, op = k, head(opHeads)
				continue
			}
			if len(f) == 7 && word(f[5]) {
				key, op = 1, 5
			} else if op = slices.IndexFunc(f, word); op == 0 {
				key = 1
			}
		}
		if key >= len(f) || op >= len(f) {
			return nil, fmt.Errorf("line %d has %d columns, and the key or the operation is beyond", line, len(f))
		}
		write := false
		if op >= 0 {
			var known bool
			if write, known = isWrite(f[op]); !known {
				return nil, fmt.Errorf("line %d: the operation %.64q is neither a read nor a write that is known (get, set, delete, ...)", line, f[op])
			}
		}
		if err := out.add(f[key], write); err != nil {
			return nil, err
		}
	}
	if op < 0 {
		out.writes = nil
	}
	return whole(out.recording)
}

func isWrite(word string) (write, known bool) {
	word = strings.ToLower(word)
	write = slices.Contains(writeWords, word)
	return write, write || slices.Contains(readWords, word)
}

func whole(r *recording) (*recording, error) {
	if len(r.keys) == 0 {
		return nil, errors.New("there is no access in it")
	}
	return r, nil
}

// monitored matches the start of a line of redis-cli MONITOR.
var (
	monitored   = regexp.MustCompile(`^(\+?OK\r?\n)?\+?\d+\.\d+ \[\d+ [^\]\n]*\] "`)
	monitorLine = regexp.MustCompile(`^\+?\d+\.\d+ \[\d+ [^\]]*\] (".*)$`)
)

// parseMonitor reads the output of redis-cli MONITOR. It ignores commands without keys.
func parseMonitor(in io.Reader, limit int) (*recording, error) {
	out := newNumbering()
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan() && len(out.keys) < limit; n++ {
		m := monitorLine.FindStringSubmatch(strings.TrimRight(lines.Text(), "\r"))
		if m == nil {
			continue
		}
		args, err := unquote(m[1])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		write, known := isWrite(args[0])
		if !known || len(args) < 2 {
			continue
		}
		step, last := len(args), 2
		switch strings.ToLower(args[0]) {
		case "mget", "del", "unlink", "exists", "touch":
			step, last = 1, len(args)
		case "mset", "msetnx":
			step, last = 2, len(args)
		}
		for i := 1; i < last && len(out.keys) < limit; i += step {
			if err := out.add(args[i], write); err != nil {
				return nil, err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return whole(out.recording)
}

// unquote reads the arguments of a line: in double quotes, with the escapes of Redis.
func unquote(s string) (args []string, err error) {
	var b []byte
	for len(s) > 0 {
		if s[0] != '"' {
			return nil, fmt.Errorf("%.32q does not begin an argument", s)
		}
		b = b[:0]
		i := 1
		for ; i < len(s) && s[i] != '"'; i++ {
			if s[i] != '\\' || i+1 == len(s) {
				b = append(b, s[i])
				continue
			}
			i++
			var x byte
			switch c := s[i]; {
			case c == 'x' && i+2 < len(s):
				if _, err := fmt.Sscanf(s[i+1:i+3], "%02x", &x); err != nil {
					return nil, fmt.Errorf("%.8q is no byte", s[i-1:])
				}
				i += 2
			default:
				x = map[byte]byte{'n': '\n', 'r': '\r', 't': '\t', 'a': '\a', 'b': '\b'}[c]
				if x == 0 {
					x = c
				}
			}
			b = append(b, x)
		}
		if i == len(s) {
			return nil, errors.New("an argument does not end")
		}
		args, s = append(args, string(b)), strings.TrimPrefix(s[i+1:], " ")
	}
	return args, nil
}
