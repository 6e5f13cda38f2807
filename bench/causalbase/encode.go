package causalbase

import "encoding/binary"

// What baselines say to each other, to their store and to the next function of a workflow
// is encoded and taken apart again, as it would be between machines: numbers as varints,
// texts behind their length.

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

// appendBody appends a version but for its number. Needs that have the number own are those
// of the commit that leaves it, which is not known yet: 0 stands for it.
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

// appendVersions appends versions with what they need, one for each of the asked keys.
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

// reader takes apart what the functions above have made. Texts are parts of what it reads.
type reader struct{ s string }

// read reads a message that has arrived.
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

// body is the version of that number.
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
