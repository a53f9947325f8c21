package rollout

import (
	"context"
	"strings"

	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
)

// confirm reads the values of fields through which other writers may have weakened the security of pods, because metadata shows only the
// fields' names. Few objects have such fields; each needs one read per change.
func (p *pass) confirm(ctx context.Context, n *taskgraph.Node, e *entry, state *observe.State) {
	var confirmed []string
	if len(state.Loosened) > 0 {
		object, err := p.Applier.Live(ctx, n.Manifest)
		if err != nil {
			return // the next pass reads again
		}
		for _, s := range state.Loosened {
			if _, path, _ := strings.Cut(s, ": "); object != nil && ownership.Loosens(object.Object, path) {
				confirmed = append(confirmed, s)
			}
		}
	}
	e.observed = e.observed.Read(state, confirmed)
}
