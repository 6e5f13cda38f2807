package pebble

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/freshet-cache/freshet/store"
)

// row is the stored state of a key: a write, or the tombstone of a delete.
type row struct {
	exists  bool
	version store.Version
	writer  store.ID
	written int64 // Unix nanoseconds
	at      int64 // Unix nanoseconds: of a tombstone, when it was made; otherwise when the row expires, 0 never
	value   []byte
}

// The encoding: a version byte, flags, version, writer, written, at, value.
const (
	rowEncoding = 1
	rowHeader   = 1 + 1 + 8 + 16 + 8 + 8
)

func (r row) append(b []byte) []byte {
	flags := byte(0)
	if r.exists {
		flags = 1
	}
	b = append(b, rowEncoding, flags)
	b = binary.BigEndian.AppendUint64(b, uint64(r.version))
	b = append(b, r.writer[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(r.written))
	b = binary.BigEndian.AppendUint64(b, uint64(r.at))
	return append(b, r.value...)
}

// decodeRow decodes a row. Its value is a part of b.
func decodeRow(key string, b []byte) (r row, err error) {
	if len(b) < rowHeader || b[0] != rowEncoding || b[1] > 1 || b[1] == 0 && len(b) > rowHeader {
		return r, fmt.Errorf("pebble: the row of %q is damaged or of a newer version of freshet; restore it, or overwrite the key", key)
	}
	r.exists, r.version = b[1] == 1, store.Version(binary.BigEndian.Uint64(b[2:]))
	copy(r.writer[:], b[10:])
	r.written = int64(binary.BigEndian.Uint64(b[26:]))
	r.at = int64(binary.BigEndian.Uint64(b[34:]))
	r.value = b[rowHeader:]
	return r, nil
}

// expires reports whether the row exists and has a TTL.
func (r row) expires() bool { return r.exists && r.at != 0 }

// seen returns the row as Load returns it at now. Absence after expiry has a version of its own.
func (r row) seen(now int64) store.Row {
	out := store.Row{Exists: r.exists, Version: r.version, Writer: r.writer, Written: time.Unix(0, r.written)}
	if !r.expires() {
		return out
	}
	if out.TTL = time.Duration(r.at - now); out.TTL <= 0 {
		return store.Row{Version: r.version + 1, Writer: r.writer, Written: time.Unix(0, r.at)}
	}
	return out
}

// The keys of the database: rows, the index by time of rows to remove, and the metadata of the
// store.
func rowKey(key string) []byte { return append([]byte{'r'}, key...) }

func timeKey(at int64, key string) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{'t'}, uint64(at)), key...)
}

func metaKey(name string) []byte { return append([]byte{'m'}, name...) }

// appendList and decodeList encode and decode the tablet boundaries.
func appendList(b []byte, list []string) []byte {
	b = append(b, rowEncoding)
	for _, s := range list {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return b
}

func decodeList(b []byte) (list []string, ok bool) {
	if len(b) == 0 || b[0] != rowEncoding {
		return nil, len(b) == 0
	}
	for b = b[1:]; len(b) > 0; {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w) || n == 0 {
			return nil, false
		}
		s := string(b[w : w+int(n)])
		if len(list) > 0 && s <= list[len(list)-1] {
			return nil, false
		}
		list, b = append(list, s), b[w+int(n):]
	}
	return list, true
}
