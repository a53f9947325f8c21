package relations

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/author/lint/source"
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// checkOrder finds objects that the task graph moves to an earlier position, for all kinds of clusters.
func (c check) checkOrder() {
	byManifest := make(map[*manifest.Manifest]*source.Object, len(c.Objects))
	profiles := sets.New[string]()
	for _, o := range c.Objects {
		byManifest[o.Manifest] = o
		profiles.Insert(o.Reach().Profiles...)
	}
	reported, jobs := map[manifest.ID]bool{}, map[manifest.ID]bool{}
	for _, profile := range sets.List(profiles) {
		if profiles.Len() > 16 && !slices.Contains(inclusion.KnownProfiles(), profile) {
			continue
		}
		for _, set := range inclusion.KnownFeatureSets() {
			included := c.included(inclusion.Cluster{Profile: profile, FeatureSet: set})
			c.checkOrderIn(included, byManifest, reported)
			c.checkJobs(included, byManifest, jobs)
		}
	}
}

// included returns the manifests for a cluster.
func (c check) included(in inclusion.Cluster) []*manifest.Manifest {
	var included []*manifest.Manifest
	for _, o := range c.Objects {
		if c.Gates.Includes(in, o.Reach()) {
			included = append(included, o.Manifest)
		}
	}
	return included
}

func (c check) checkOrderIn(included []*manifest.Manifest, byManifest map[*manifest.Manifest]*source.Object, reported map[manifest.ID]bool) {
	graph, err := taskgraph.Build(included, release.Updating)
	if err != nil {
		return // fails only for a nil object or an unknown mode
	}
	for _, n := range graph.Tasks() {
		o := byManifest[n.Manifest]
		if !n.Drawn || reported[o.ID()] {
			continue
		}
		reported[o.ID()] = true // variants are moved for the same reason
		rule, what := "crd-after-use", "CRD"
		if o.Is("", "Namespace") {
			rule, what = "namespace-after-use", "namespace"
		}
		name, user := o.Object.GetName(), fmt.Sprintf("%s (%s)", n.For.ID(), byManifest[n.For].Place())
		if n.From.Runlevel == n.Runlevel {
			o.FindIn(&c.Found, rule, nil, "the %s %s comes after %s, which needs it", what, name, user)
			continue
		}
		o.FindIn(&c.Found, rule, nil, "the %s %s is at runlevel %02d but is needed at %02d by %s", what, name, n.From.Runlevel, n.Runlevel, user)
	}
}

// checkJobs reports the manifests that wait for each Job. It reports each Job only for the first kind of cluster that gets it.
func (c check) checkJobs(included []*manifest.Manifest, byManifest map[*manifest.Manifest]*source.Object, reported map[manifest.ID]bool) {
	isNew := func(m *manifest.Manifest) bool { return m.Is("batch", "Job") && !m.Tombstone() && !reported[m.ID()] }
	if !slices.ContainsFunc(included, isNew) {
		return
	}
	waiting := map[release.Mode]map[*manifest.Manifest][]*manifest.Manifest{}
	for _, mode := range []release.Mode{release.Updating, release.Initializing} {
		graph, err := taskgraph.Build(included, mode)
		if err != nil {
			return // fails only for a nil object or an unknown mode
		}
		waiting[mode] = waitingForJobs(graph)
	}
	for _, m := range included {
		if !isNew(m) {
			continue
		}
		reported[m.ID()] = true
		updating, initializing := waiting[release.Updating][m], waiting[release.Initializing][m]
		if len(updating) == 0 {
			continue
		}
		byManifest[m].FindIn(&c.Found, "job-order", nil, "delays %s during an update, and %s during an install", amount(updating), amount(initializing))
	}
}

// waitingForJobs returns the manifests that wait for each Job, directly or indirectly.
func waitingForJobs(graph *taskgraph.Graph) map[*manifest.Manifest][]*manifest.Manifest {
	out := map[*manifest.Manifest][]*manifest.Manifest{}
	for _, job := range graph.Tasks() {
		if !job.Job() {
			continue
		}
		seen := map[*taskgraph.Node]bool{job: true}
		for todo := []*taskgraph.Node{job}; len(todo) > 0; {
			n := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			for _, s := range graph.Successors(n) {
				if seen[s] {
					continue
				}
				seen[s] = true
				todo = append(todo, s)
				if s.Manifest != nil {
					out[job.Manifest] = append(out[job.Manifest], s.Manifest)
				}
			}
		}
	}
	return out
}

// amount returns text such as `12 manifests of 3 components`.
func amount(manifests []*manifest.Manifest) string {
	components := sets.New[string]()
	for _, m := range manifests {
		components.Insert(m.Component)
	}
	switch {
	case len(manifests) == 0:
		return "nothing"
	case components.Len() == 1:
		return fmt.Sprintf("%s of component %s", printable.Count(len(manifests), "manifest"), manifests[0].Component)
	}
	return fmt.Sprintf("%s of %s", printable.Count(len(manifests), "manifest"), printable.Count(components.Len(), "component"))
}
