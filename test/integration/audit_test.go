package integration_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
)

// User agents of the operator and the platform's operators in the audit log.
const (
	operatorAgent = "cluster-version-operator"
	actorAgent    = "platform-operators"
)

// object identifies an object as the audit log does.
type object struct{ group, resource, namespace, name string }

func objectOf(e env.AuditEvent) object {
	return object{e.Object.Group, e.Object.Resource, e.Object.Namespace, e.Object.Name}
}

// releaseGraph is the expected effect of an update to a release, computed from its files.
type releaseGraph struct {
	graph   *taskgraph.Graph
	objects map[object]*taskgraph.Node
}

func (p *platform) graphOf(dir string, mode release.Mode) releaseGraph {
	p.t.Helper()
	filter := inclusion.Filter{Capabilities: inclusion.AllCapabilities(nil)}
	loaded, err := payload.Load(os.DirFS(dir), "release", payload.Options{Filter: filter})
	require.NoError(p.t, err)
	graph, err := taskgraph.Build(loaded.Manifests, mode)
	require.NoError(p.t, err)
	d, err := discovery.NewDiscoveryClientForConfig(p.env.Config("integration"))
	require.NoError(p.t, err)
	mapper := kinds.NewMapper(clock.RealClock{}, d, loaded.Manifests)
	g := releaseGraph{graph: graph, objects: map[object]*taskgraph.Node{}}
	for _, n := range graph.Tasks() {
		mapping, err := mapper.Mapping(p.t.Context(), n.Manifest.GVK())
		require.NoError(p.t, err, n.Label())
		id := n.Manifest.ID()
		if !mapping.Namespaced {
			id.Namespace = ""
		}
		g.objects[object{mapping.Resource.Group, mapping.Resource.Resource, id.Namespace, id.Name}] = n
	}
	return g
}

// audit returns the requests received since a time.
func (p *platform) audit(since time.Time) []env.AuditEvent {
	p.t.Helper()
	events, err := p.env.Audit()
	require.NoError(p.t, err)
	recent := events[:0]
	for _, e := range events {
		if e.Received.After(since) {
			recent = append(recent, e)
		}
	}
	return recent
}

// changesSince returns the requests since a time that changed an object.
func (p *platform) changesSince(begin time.Time) []env.AuditEvent {
	p.t.Helper()
	return slices.DeleteFunc(env.Changes(p.audit(time.Time{})), func(e env.AuditEvent) bool { return !e.Received.After(begin) })
}

// rest waits until the operator has written nothing for a second, because it applies changes of a cluster's configuration to manifests as
// soon as the configuration exists.
func (p *platform) rest() {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return len(p.appliedSince(time.Now().Add(-time.Second))) == 0 }, time.Minute, 200*time.Millisecond)
}

// writesOf returns the requests of an agent that may have changed a payload's objects, except their status.
func (g releaseGraph) writesOf(agent string, events []env.AuditEvent) []env.AuditEvent {
	var writes []env.AuditEvent
	for _, e := range events {
		if e.Write() && strings.HasPrefix(e.UserAgent, agent) && e.Object.Subresource == "" && g.objects[objectOf(e)] != nil {
			writes = append(writes, e)
		}
	}
	return writes
}

func requireNoDuplicates(t *testing.T, counts map[object]int, what string) {
	t.Helper()
	for o, n := range counts {
		require.LessOrEqual(t, n, 1, "%s: %v was changed %d times", what, o, n)
	}
}
