package rollout

import (
	"context"
	"strings"
	"time"

	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
)

// confirmRetry is the time from a failed read to the next one.
const confirmRetry = 10 * time.Second

// confirm reads the values of fields through which other writers may have weakened the security of pods, because metadata shows only the
// fields' names. Few objects have such fields; each needs one read per change.
func (p *pass) confirm(ctx context.Context, n *taskgraph.Node, s *slot, state *observe.State) {
	var confirmed []string
	if len(state.Loosened) > 0 {
		object, err := p.Applier.Live(ctx, n.Manifest)
		if err != nil {
			s.recheckAt = earlier(s.recheckAt, p.Clock.Now().Add(confirmRetry))
			return
		}
		for _, field := range state.Loosened {
			if _, path, _ := strings.Cut(field, ": "); object != nil && ownership.Loosens(object.Object, path) {
				confirmed = append(confirmed, field)
			}
		}
	}
	s.entry.observed = s.entry.observed.Read(state, confirmed)
}
