package mesh

// Approximate sizes in memory, in bytes, without keys and values.
const (
	keyWeight   = 200
	writeWeight = 160
	mutWeight   = 64
	dotWeight   = 16
)

// Weight returns approximately how many bytes a write takes in memory.
func (w *Write) Weight() int {
	n := writeWeight + dotWeight*(len(w.After)+w.Deps.Size())
	for i := range w.Muts {
		n += w.Muts[i].weight()
	}
	return n
}

func (m *Mut) weight() int {
	return mutWeight + len(m.Key) + len(m.Value) + dotWeight*len(m.Supersedes)
}

// weight returns approximately how many bytes a key takes, its versions included.
func (k *key) weight() int {
	n := keyWeight + len(k.name) + len(k.Value)
	for _, v := range k.older {
		n += mutWeight + len(v.Value)
	}
	for _, set := range [][]*Write{k.Siblings, k.past, k.needs} {
		for _, w := range set {
			n += writeWeight + dotWeight*(len(w.After)+w.Deps.Size())
			if m := w.to(k.name); m != nil {
				n += m.weight()
			}
		}
	}
	return n + dotWeight*len(k.gone)
}

// weigh updates the size of a key of which more or less is known.
func (s *Server) weigh(k *key) {
	if s.cache[k.name] != k { // evicted
		return
	}
	n := k.weight()
	s.bytes += n - k.bytes
	k.bytes = n
}

// full reports whether memory exceeds its bounds.
func (s *Server) full() bool { return len(s.dial) > s.opt.Keys || s.bytes > s.opt.Bytes }

// owe counts an own write that is not known to be durable.
func (s *Server) owe(w *Write) {
	s.owing[w.Dot.N] = w.Weight()
	s.owed += s.owing[w.Dot.N]
}

// paid stops counting own writes, from the one after from up to upto.
func (s *Server) paid(from, upto uint64) {
	for n := from + 1; n <= upto; n++ {
		s.owed -= s.owing[n]
		delete(s.owing, n)
	}
}

// crowded reports whether own writes that are not durable fill their window, so that a caller must
// try later. A single write may exceed WindowBytes.
func (s *Server) crowded() bool {
	return above(s.number, s.durable.Upto(s.opt.Incarnation)) >= uint64(s.opt.Window) || s.owed >= s.opt.WindowBytes
}
