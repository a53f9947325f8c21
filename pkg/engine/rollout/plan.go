// Package rollout makes passes over the task graph of a release. A pass applies every manifest whose predecessors have settled, and checks
// its gate. It returns the progress and the reasons to wait. It takes the settled state as a value and returns the next one. It does not
// wait for gates: the caller decides when to make the next pass. Between passes, an Executor keeps the pause, the pace of no-op applies, a
// count of changes for the inventory, and the last pass, for snapshots and the inventory.
//
// Package drift decides what an object needs, package gate decides whether an object has settled, and package report contains the progress
// values. The caller handles the ClusterVersion and its status.
package rollout

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Plan is the rollout of one release in one mode. It is prepared once and used by many passes. It is immutable.
type Plan struct {
	Release release.Release
	Graph   *taskgraph.Graph
	// Began is the start of the rollout; zero if unknown. Passes ignore earlier times in objects.
	Began time.Time

	// tasks has one slot per node of the graph.
	tasks []task
	total int
}

// task is the part of a node that is computed before a pass.
type task struct {
	id    manifest.ID
	gated bool
	// workload is true for a task whose gate may wait for pods.
	workload bool
	// alone is true if no ClusterOperator of the payload represents the component.
	alone bool
	// awaited is true for a tombstone whose object must be deleted before a later object can use its name.
	awaited bool
	// hasTTL is true for a Job that the cluster deletes some time after it has finished.
	hasTTL bool
	// vital is true if a client that can change the object gains power over the cluster.
	vital bool
	// definition is the node of the CustomResourceDefinition of the object's kind; nil if the release does not contain it.
	definition *taskgraph.Node
	// severalVersions is true if that definition has several versions.
	severalVersions bool
	// precreate contains the ClusterOperators to create before this node, the first of its component in the runlevel.
	precreate []*manifest.Manifest
}

// NewPlan sorts the manifests of a release for a mode.
func NewPlan(rel release.Release, manifests []*manifest.Manifest, mode release.Mode) (*Plan, error) {
	graph, err := taskgraph.Build(manifests, mode)
	if err != nil {
		return nil, fmt.Errorf("ordering the manifests of release %s: %w", rel.Version, err)
	}
	p := &Plan{Release: rel, Graph: graph, tasks: make([]task, len(graph.Nodes())), total: len(graph.Tasks())}
	represented := map[string]bool{}
	for _, n := range graph.Tasks() {
		if isClusterOperator(n.Manifest) {
			represented[n.Component] = true
		}
	}
	for _, n := range graph.Tasks() {
		p.tasks[n.Index] = task{
			id:       n.Manifest.ID(),
			gated:    gatedTask(n.Manifest),
			workload: gatedTask(n.Manifest) && n.Manifest.Workload(),
			alone:    !represented[n.Component],
			hasTTL:   hasTTL(n.Manifest),
			vital:    isVital(n),
		}
	}
	p.awaitTombstones()
	p.findDefinitions()
	if mode == release.Updating {
		p.placePrecreation()
	}
	return p, nil
}

// Mode returns the mode of the plan.
func (p *Plan) Mode() release.Mode { return p.Graph.Mode() }

// placePrecreation makes passes create every ClusterOperator when its component starts, before its own place in the chain. The component's
// pods come earlier in the chain and look for their ClusterOperator. The other modes do not need this because they have no such chains.
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

// awaitTombstones finds the tombstones whose object blocks another object with the same namespace and name. For example, if a Deployment
// becomes a DaemonSet, the pods of both would compete for ports and volumes. No other deletion is awaited, because finalizers may take a
// long time.
func (p *Plan) awaitTombstones() {
	type name struct{ namespace, name string }
	applied := map[name]bool{}
	for _, n := range slices.Backward(p.Graph.Tasks()) { // in reverse order, so the successors of a tombstone come first
		t := &p.tasks[n.Index]
		if key := (name{t.id.Namespace, t.id.Name}); n.Manifest.Tombstone() {
			t.awaited = applied[key]
		} else {
			applied[key] = true
		}
	}
}

// findDefinitions finds the definition of each custom resource's kind.
func (p *Plan) findDefinitions() {
	definitions := map[schema.GroupKind]*taskgraph.Node{}
	for _, n := range p.Graph.Tasks() {
		if kind, ok := n.Manifest.Defines(); ok && !n.Manifest.Tombstone() {
			definitions[kind] = n
		}
	}
	for _, n := range p.Graph.Tasks() {
		if definition := definitions[n.Manifest.GVK().GroupKind()]; definition != nil {
			versions, _, _ := unstructured.NestedFieldNoCopy(definition.Manifest.Object.Object, "spec", "versions")
			list, _ := versions.([]any)
			p.tasks[n.Index].definition, p.tasks[n.Index].severalVersions = definition, len(list) > 1
		}
	}
}

// hasTTL reports whether the cluster deletes the Job after it has finished, so its absence is not drift. See "Automatic cleanup for finished
// Jobs" in the Kubernetes documentation.
func hasTTL(m *manifest.Manifest) bool {
	_, limited, _ := unstructured.NestedFieldNoCopy(m.Object.Object, "spec", "ttlSecondsAfterFinished")
	return limited && m.Is("batch", "Job")
}

func isClusterOperator(m *manifest.Manifest) bool {
	return m.Is("config.openshift.io", "ClusterOperator")
}
