package integration_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/taskgraph"
	"github.com/cluster-version/cvo/test/env"
)

// The user agents of the two parties, as they stand in the audit log.
const (
	operatorAgent = "cluster-version-operator"
	actorAgent    = "platform-operators"
)

// object names an object as the audit log does.
type object struct{ group, resource, namespace, name string }

func objectOf(e env.AuditEvent) object {
	return object{e.Object.Group, e.Object.Resource, e.Object.Namespace, e.Object.Name}
}

// releaseGraph is what the update to a release should do, worked out from its files.
type releaseGraph struct {
	graph   *taskgraph.Graph
	objects map[object]*taskgraph.Node
}

func (p *platform) graphOf(dir string, mode release.Mode) releaseGraph {
	p.t.Helper()
	filter := manifest.Filter{Capabilities: manifest.AllCapabilities(nil)}
	loaded, err := payload.Load(os.DirFS(dir), "release", payload.Options{Filter: filter})
	require.NoError(p.t, err)
	graph, err := taskgraph.Build(loaded.Manifests, mode)
	require.NoError(p.t, err)
	d, err := discovery.NewDiscoveryClientForConfig(p.env.Config("integration"))
	require.NoError(p.t, err)
	mapper := apply.NewDiscoveryMapper(clock.RealClock{}, d, loaded.Manifests)
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

// audit reads the requests that were received since a moment.
func (p *platform) audit(since time.Time) []env.AuditEvent {
	p.t.Helper()
	events, err := env.Audit(p.env.AuditLog)
	require.NoError(p.t, err)
	recent := events[:0]
	for _, e := range events {
		if e.Received.After(since) {
			recent = append(recent, e)
		}
	}
	return recent
}

// rest waits until the operator has written nothing for a second: what an installed cluster's configuration puts into
// manifests is applied as soon as the configuration is there.
func (p *platform) rest() {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return len(p.appliedSince(time.Now().Add(-time.Second))) == 0 }, time.Minute, 200*time.Millisecond)
}

// writesOf keeps the requests of one party that may have changed a payload's objects, but for their status.
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
