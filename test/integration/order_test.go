package integration_test

import (
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
)

// TestUpdateKeepsTheOrder reads from the API server's audit log that an update of real releases respects runlevels:
// nothing of a runlevel is written before every operator of the runlevels below has reported the new version, but for
// what is drawn forward; and components of one runlevel go side by side.
func TestUpdateKeepsTheOrder(t *testing.T) {
	p, r := newRealPlatform(t)
	p.start("operators", "--delay", "300ms", "--jitter", "0.5", "--workload-delay", "50ms")
	p.operator(r.from.ByDigest())
	p.await("4.22.9 to complete", 3*time.Minute, completed("4.22.9"))
	p.rest()

	started := time.Now()
	p.update(configv1.Update{Image: r.to.ByDigest()})
	p.await("4.23.0 to complete", 3*time.Minute, completed("4.23.0"))
	g := p.graphOf(r.toDir, release.Updating)
	events := p.audit(started)
	met := gatesMet(g, events)
	require.GreaterOrEqual(t, len(met), 30, "the actor must have moved the ClusterOperators in this update")

	checked := 0
	for _, w := range g.writesOf(operatorAgent, events) {
		n := g.objects[objectOf(w)]
		if n.Drawn {
			continue
		}
		for o, at := range met {
			if below := g.objects[o]; below.Runlevel < n.Runlevel {
				checked++
				assert.True(t, w.Received.After(at), "%s (runlevel %d) was written at %s, before %s (runlevel %d) was done at %s",
					n.Label(), n.Runlevel, w.Received, below.Label(), below.Runlevel, at)
			}
		}
	}
	assert.Greater(t, checked, 1000)
	assert.True(t, overlap(g, events, 50), "components of runlevel 50 go one after the other")
}

// gatesMet tells when the platform's operators last reported on each ClusterOperator: with the operators of this test
// that is when it reached its new version.
func gatesMet(g releaseGraph, events []env.AuditEvent) map[object]time.Time {
	met := map[object]time.Time{}
	for _, e := range events {
		o := objectOf(e)
		if e.Write() && e.UserAgent == actorAgent && o.resource == "clusteroperators" && g.objects[o] != nil {
			// Received, not Done: watchers may see a write before its audit line is made.
			met[o] = e.Received
		}
	}
	return met
}

// overlap reports whether two components of a runlevel were being written at the same time.
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
