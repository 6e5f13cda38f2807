package resp

import "bytes"

// manyArgs is how many arguments make a request long.
const manyArgs = 64

// parse reads the next request. It sets the arguments of a long request aside as they arrive, so
// that it need not parse them again.
func (c *Conn) parse() (n int, args [][]byte, err error) {
	lim := c.limits()
	if c.left == 0 {
		n, args, err = parse(c.in[c.r:], c.args, lim)
		if n > 0 || err != nil || len(args) < manyArgs {
			return n, args, err
		}
		count, at, _ := header(c.in[c.r:], 1, int64(lim.args), "")
		c.left, c.heldLen, c.r = int(count), at, c.r+at
	}
	lim.request -= c.heldLen
	at, args, err := arguments(c.in[c.r:], 0, c.left, c.args[:0], lim)
	if err == nil && len(args) == c.left {
		args = append(c.held, args...)
		c.left, c.held, c.heldLen = 0, nil, 0
		return at, args, nil
	}
	if at > 0 {
		_, kept, _ := arguments(bytes.Clone(c.in[c.r:c.r+at]), 0, len(args), nil, lim)
		c.held = append(c.held, kept...)
	}
	c.left, c.heldLen, c.r = c.left-len(args), c.heldLen+at, c.r+at
	return 0, args[:0], err
}

// skip reads past a request with an argument that is too long.
func (c *Conn) skip() error {
	r := &refill{c}
	count, err := int64(c.left), error(nil)
	c.left, c.held, c.heldLen = 0, nil, 0
	if count == 0 {
		count, err = r.number('*')
	}
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
