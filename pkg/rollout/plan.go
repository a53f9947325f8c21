// Package rollout makes one pass over the task graph of a release: it applies each manifest whose turn has come and
// asks its gate, and returns how far it got and what it waits for. It takes what has settled before as a value and
// returns the new one; it never waits, and keeps nothing between passes, so whoever calls decides when to look again.
// It leaves ClusterVersion and its status to its caller.
package rollout

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/taskgraph"
)

// Plan is the rollout of one release in one mode, prepared once and passed over many times. It is immutable.
type Plan struct {
	Release release.Release
	Graph   *taskgraph.Graph
	// Began is when the rollout began, for what objects say of earlier times; zero if it is not known.
	Began time.Time

	// tasks has one slot per node of the graph.
	tasks []task
	total int
}

// task is what a pass needs to know of a node beforehand.
type task struct {
	id    manifest.ID
	gated bool
	// alone: no ClusterOperator of the payload speaks for the component.
	alone bool
	// awaited: a tombstone whose object has to be gone before what follows can take its name.
	awaited bool
	// passing: a Job that the cluster removes by itself some time after it has finished.
	passing bool
	// precreate lists the ClusterOperators to create before this node, the first of its component's runlevel.
	precreate []*manifest.Manifest
}

// NewPlan orders the manifests of a release for a mode.
func NewPlan(rel release.Release, manifests []*manifest.Manifest, mode release.Mode) (*Plan, error) {
	graph, err := taskgraph.Build(manifests, mode)
	if err != nil {
		return nil, fmt.Errorf("ordering the manifests of release %s: %w", rel.Version, err)
	}
	p := &Plan{Release: rel, Graph: graph, tasks: make([]task, len(graph.Nodes())), total: len(graph.Tasks())}
	spoken := map[string]bool{}
	for _, n := range graph.Tasks() {
		if isClusterOperator(n.Manifest) {
			spoken[n.Component] = true
		}
	}
	for _, n := range graph.Tasks() {
		p.tasks[n.Index] = task{
			id:      n.Manifest.ID(),
			gated:   gatedTask(n.Manifest),
			alone:   !spoken[n.Component],
			passing: isPassingJob(n.Manifest),
		}
	}
	p.awaitTombstones()
	if mode == release.Updating {
		p.placePrecreation()
	}
	return p, nil
}

// Mode is the mode the plan was made for.
func (p *Plan) Mode() release.Mode { return p.Graph.Mode() }

// placePrecreation has every ClusterOperator created when its component starts, not only at its own place in the
// component's chain: the operator's pods, which come first, look for it. In the other modes nothing precedes it anyway.
func (p *Plan) placePrecreation() {
	first := map[taskgraph.Group]int{}
	for _, n := range p.Graph.Tasks() {
		if n.Drawn {
			continue
		}
		start, seen := first[n.Group()]
		if !seen {
			first[n.Group()] = n.Index
			continue
		}
		if isClusterOperator(n.Manifest) && !n.Manifest.Tombstone() {
			p.tasks[start].precreate = append(p.tasks[start].precreate, n.Manifest)
		}
	}
}

// awaitTombstones finds the tombstones whose object stands in the way of a living one of the same namespace and name: a
// Deployment that becomes a DaemonSet, say, whose pods would fight over ports and volumes. Nothing else waits for a
// deletion: finalizers may take their time.
func (p *Plan) awaitTombstones() {
	type name struct{ namespace, name string }
	living := map[name]bool{}
	for _, n := range slices.Backward(p.Graph.Tasks()) { // what follows a tombstone in the order has a higher place
		t := &p.tasks[n.Index]
		if key := (name{t.id.Namespace, t.id.Name}); n.Manifest.Tombstone() {
			t.awaited = living[key]
		} else {
			living[key] = true
		}
	}
}

// isPassingJob reports whether the cluster deletes the Job after it has finished (Kubernetes, "Automatic cleanup for
// finished Jobs"), so that its absence is no drift.
func isPassingJob(m *manifest.Manifest) bool {
	_, limited, _ := unstructured.NestedFieldNoCopy(m.Object.Object, "spec", "ttlSecondsAfterFinished")
	return limited && m.Is("batch", "Job")
}

func isClusterOperator(m *manifest.Manifest) bool {
	return m.Is("config.openshift.io", "ClusterOperator")
}
