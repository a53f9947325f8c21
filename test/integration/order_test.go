package integration_test

import (
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/test/env"
)

// assertOrder checks with the changes of an update that it follows the runlevels. No object of a runlevel is changed before every operator of the
// lower runlevels has reported the new version, except objects that are applied early. Components of a runlevel run in parallel. Applies without
// a change may precede the update.
func (p *platform) assertOrder(g releaseGraph, changes []env.AuditEvent) {
	p.t.Helper()
	met := gatesMet(g, changes)
	require.GreaterOrEqual(p.t, len(met), 30, "the actor has moved the ClusterOperators during this update")
	checked := 0
	for _, w := range g.writesOf(operatorAgent, changes) {
		n := g.objects[objectOf(w)]
		if n.Drawn {
			continue
		}
		for o, at := range met {
			if below := g.objects[o]; below.Runlevel < n.Runlevel {
				checked++
				assert.True(p.t, w.Received.After(at), "%s (runlevel %d) was written at %s, before %s (runlevel %d) was done at %s",
					n.Label(), n.Runlevel, w.Received, below.Label(), below.Runlevel, at)
			}
		}
	}
	assert.Greater(p.t, checked, 1000)
	assert.True(p.t, overlap(g, changes, 50), "components of runlevel 50 run in parallel")
}

// gatesMet returns the time of the last report on each ClusterOperator. With this test's operators, that report has the new version.
func gatesMet(g releaseGraph, events []env.AuditEvent) map[object]time.Time {
	met := map[object]time.Time{}
	for _, e := range events {
		o := objectOf(e)
		if e.Write() && e.UserAgent == actorAgent && o.resource == "clusteroperators" && g.objects[o] != nil {
			// Use Received instead of Done, because watchers may see a write before its audit line is written.
			met[o] = e.Received
		}
	}
	return met
}

// overlap reports whether the writes of two components of a runlevel overlapped in time.
func overlap(g releaseGraph, events []env.AuditEvent, runlevel int) bool {
	type span struct{ first, last time.Time }
	spans := map[string]span{}
	for _, w := range g.writesOf(operatorAgent, events) {
		n := g.objects[objectOf(w)]
		if n.Runlevel != runlevel || n.Drawn {
			continue
		}
		s, ok := spans[n.Component]
		if !ok {
			s.first = w.Received
		}
		s.last = w.Done
		spans[n.Component] = s
	}
	for a, sa := range spans {
		for b, sb := range spans {
			if a != b && sa.first.Before(sb.last) && sb.first.Before(sa.last) {
				return true
			}
		}
	}
	return false
}
