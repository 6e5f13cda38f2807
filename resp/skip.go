package resp

// oversize answers a request with an argument over the limit, without keeping it.
func (c *Conn) oversize() error {
	if !c.authed.Load() { // a stranger's bytes are not waited for
		return malformed("unauthenticated bulk length")
	}
	if err := c.skip(); err != nil {
		return err
	}
	c.count++
	c.spoil() // the transaction it belongs to must not run without it
	mode, mark := c.silent, len(c.w.buf)
	c.w.Error(errOversize.Error())
	c.hush(mode, mark)
	return nil
}

// skip reads past a request with an argument that is too long.
func (c *Conn) skip() error {
	r := &refill{c}
	count, err := r.number('*')
	for ; err == nil && count > 0; count-- {
		var size int64
		switch size, err = r.number('$'); {
		case err != nil:
		case size < 0:
			err = malformed("invalid bulk length")
		default:
			err = r.discard(size + 2)
		}
	}
	return err
}

// refill reads a connection's buffer and then more.
type refill struct{ c *Conn }

func (r *refill) number(kind byte) (int64, error) {
	for {
		b := r.c.in[r.c.r:]
		if len(b) > 0 && b[0] != kind {
			return 0, malformed("expected '%c', got '%c'", kind, b[0])
		}
		if len(b) > 1 {
			n, next, err := header(b, 1, hardBulk, "invalid bulk length")
			if err != nil || next > 0 {
				r.c.r += next
				return n, err
			}
		}
		if err := r.c.fill(); err != nil {
			return 0, err
		}
	}
}

func (r *refill) discard(n int64) error {
	for {
		k := min(n, int64(len(r.c.in)-r.c.r))
		r.c.r += int(k)
		if n -= k; n == 0 {
			return nil
		}
		if err := r.c.fill(); err != nil {
			return err
		}
	}
}
