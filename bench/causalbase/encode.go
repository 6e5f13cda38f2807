package causalbase

import "encoding/binary"

// Baselines encode and decode all messages to each other, to their store and to the next function
// of a workflow, as between machines. Numbers are varints; texts follow their length.

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendTexts(b []byte, all []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, s := range all {
		b = appendText(b, s)
	}
	return b
}

// appendBody appends a version without its number. A dependency with the number own is on the
// commit of the version itself, whose number is not known yet; it is encoded as 0.
func appendBody(b []byte, value string, needs deps, own uint64) []byte {
	return appendDeps(appendText(b, value), needs, own)
}

func appendDeps(b []byte, needs deps, own uint64) []byte {
	b = binary.AppendUvarint(b, uint64(len(needs)))
	for _, d := range needs {
		if d.seq == own {
			d.seq = 0
		}
		b = binary.AppendUvarint(appendText(b, d.key), d.seq)
	}
	return b
}

// appendVersions appends versions with their dependencies, one for each requested key.
func appendVersions(b []byte, all []*version) []byte {
	for _, v := range all {
		if v == nil {
			b = append(b, 0)
			continue
		}
		b = appendBody(binary.AppendUvarint(append(b, 1), v.seq), v.value, v.deps, 0)
	}
	return b
}

// appendSettings appends keys with values and numbers.
func appendSettings(b []byte, all []setting) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, s := range all {
		b = appendText(binary.AppendUvarint(appendText(b, s.key), s.v.seq), s.v.value)
	}
	return b
}

// reader decodes what the functions above have encoded. Its texts share the memory of the message.
type reader struct{ s string }

// read returns a reader of a message.
func read(b []byte) *reader { return &reader{string(b)} }

func (r *reader) uint() (v uint64) {
	for i, shift := 0, 0; ; i, shift = i+1, shift+7 {
		v |= uint64(r.s[i]&0x7f) << shift
		if r.s[i] < 0x80 {
			r.s = r.s[i+1:]
			return v
		}
	}
}

func (r *reader) text() string {
	n := r.uint()
	v := r.s[:n]
	r.s = r.s[n:]
	return v
}

func (r *reader) texts() []string {
	out := make([]string, r.uint())
	for i := range out {
		out[i] = r.text()
	}
	return out
}

// body decodes the version with that number.
func (r *reader) body(seq uint64) *version {
	v := &version{value: r.text(), seq: seq}
	v.deps = r.deps(seq)
	return v
}

func (r *reader) deps(own uint64) deps {
	n := r.uint()
	if n == 0 {
		return nil
	}
	out := make(deps, n)
	for i := range out {
		if out[i] = (dep{r.text(), r.uint()}); out[i].seq == 0 {
			out[i].seq = own
		}
	}
	return out
}

func (r *reader) versions(n int) []*version {
	out := make([]*version, n)
	for i := range out {
		if r.uint() == 1 {
			out[i] = r.body(r.uint())
		}
	}
	return out
}

func (r *reader) settings() []setting {
	n := r.uint()
	if n == 0 {
		return nil
	}
	out, all := make([]setting, n), make([]version, n)
	for i := range out {
		out[i] = setting{r.text(), &all[i]}
		all[i].seq, all[i].value = r.uint(), r.text()
	}
	return out
}
