package wire

import (
	"github.com/freshet-cache/freshet/causal/dot"
	"github.com/freshet-cache/freshet/causal/mesh"
	"github.com/freshet-cache/freshet/internal/packed"
)

// large bounds, in bytes, the memory that a Stream keeps for its next message.
const large = 1 << 20

// AppendPart appends a message behind its length. A frame is one or more such parts, in the order
// in which they were sent.
func (s *Stream) AppendPart(frame []byte, m mesh.Message) []byte {
	s.part = s.Append(s.part[:0], m)
	frame = packed.AppendBytes(frame, s.part)
	if cap(s.part) > large {
		s.part = nil
	}
	return frame
}

// DecodeFrame decodes the messages of a frame, and appends them to out. After an error the
// connection must be closed, and the caller ignores the whole frame.
func (s *Stream) DecodeFrame(b []byte, out []mesh.Message) ([]mesh.Message, error) {
	r := dot.NewReader(b)
	for more := true; more; more = !r.Done() {
		part := r.Bytes()
		if r.Bad() {
			return nil, ErrFormat
		}
		m, err := s.Decode(part)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}
