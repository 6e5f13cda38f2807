package node

import (
	"fmt"

	"github.com/freshet-cache/freshet/causal"
	"github.com/freshet-cache/freshet/node/causalspace"
)

// CausalSpace returns a causal space of the process (Config.Spaces) for use in Go. It sets Name, Key
// and MaxValue of opt, so that tokens are good for the space's commands too, and those of other
// processes; Codec and Merge are the caller's, and must agree with what the commands write. Sessions
// return causal.ErrJoining until the process has a place in the ring. The space is of no use after
// Stop.
func CausalSpace[V any](p *Process, name string, opt causal.SpaceOptions[V]) (*causal.Space[V], error) {
	for _, m := range p.nodes[0].members {
		if s, ok, err := causalspace.Space(m, name, opt); ok {
			return s, err
		}
	}
	return nil, fmt.Errorf("node: no causal space is called %.110q; name it in Config.Spaces", name)
}
