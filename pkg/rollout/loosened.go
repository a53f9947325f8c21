package rollout

import (
	"context"
	"slices"
	"strings"

	"github.com/cluster-version/cvo/pkg/observe"
	"github.com/cluster-version/cvo/pkg/ownership"
	"github.com/cluster-version/cvo/pkg/taskgraph"
)

// unconfirmed reports whether others may have loosened something since that was last looked at.
func (e *entry) unconfirmed(state *observe.State) bool {
	return !slices.Equal(e.suspected, state.Loosened) || len(e.suspected) > 0 && state.Generation != e.confirmed
}

// confirm looks at the values of fields by which others may have loosened the security of pods: metadata tells of the
// fields alone. It takes one read for an object whose fields have changed, and hardly any object has such fields.
func (p *pass) confirm(ctx context.Context, n *taskgraph.Node, e *entry, state *observe.State) {
	var confirmed []string
	if len(state.Loosened) > 0 {
		object, err := p.Applier.Live(ctx, n.Manifest)
		if err != nil {
			return // the next look asks again
		}
		for _, s := range state.Loosened {
			if _, path, _ := strings.Cut(s, ": "); object != nil && ownership.Loosens(object.Object, path) {
				confirmed = append(confirmed, s)
			}
		}
	}
	e.suspected, e.loosened, e.confirmed = state.Loosened, confirmed, state.Generation
}
