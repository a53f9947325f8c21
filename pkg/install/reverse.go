package install

import (
	"maps"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/taskgraph"
)

// Stages of the removal of a platform, in their order. Custom resources go while the operators run that clean up after
// them; then what stands in the way of requests as soon as its servers are gone. In between, the other objects go in the
// reverse of the order in which an update to their release applies them, so that each goes before what it needs. An object
// whose place in a release nobody recorded goes by its kind: before those if it may live in them, else after.
const (
	customResources = iota
	interceptors
	workloads
	others
	byRelease
	definitions
	namespaces
)

// deletionSteps puts objects of a platform into the order in which they are deleted: a step begins when all of the one
// before are gone. records tell which manifest has brought an object; defined which kind a CRD defines, by its name.
func deletionSteps(objects []*metav1.PartialObjectMetadata, records map[manifest.ID]inventory.Record, defined map[string]schema.GroupKind) ([][]*metav1.PartialObjectMetadata, error) {
	custom := map[schema.GroupKind]bool{}
	for gk := range maps.Values(defined) {
		custom[gk] = true
	}
	var byKind [namespaces + 1][]*metav1.PartialObjectMetadata
	var placed []*manifest.Manifest
	objectOf := map[*manifest.Manifest]*metav1.PartialObjectMetadata{}
	for _, object := range objects {
		n := deletionStage(object, custom)
		if r := records[idOf(object)]; r.File != "" && n > interceptors {
			m := placeOf(object, r, defined)
			placed, objectOf[m] = append(placed, m), object
			continue
		}
		byKind[n] = append(byKind[n], object)
	}
	graph, err := taskgraph.Build(placed, release.Updating)
	if err != nil {
		return nil, err
	}
	var steps [][]*metav1.PartialObjectMetadata
	for n, stage := range byKind {
		if n == byRelease {
			for _, nodes := range graph.Backward() {
				step := make([]*metav1.PartialObjectMetadata, len(nodes))
				for i, node := range nodes {
					step[i] = objectOf[node.Manifest]
				}
				steps = append(steps, step)
			}
		}
		steps = append(steps, stage)
	}
	return slices.DeleteFunc(steps, func(step []*metav1.PartialObjectMetadata) bool { return len(step) == 0 }), nil
}

func deletionStage(object *metav1.PartialObjectMetadata, custom map[schema.GroupKind]bool) int {
	gk := object.GroupVersionKind().GroupKind()
	switch {
	case gk.Kind == crdKind:
		return definitions
	case gk == (schema.GroupKind{Kind: "Namespace"}):
		return namespaces
	case gk.Group == configv1.GroupName:
		return others // what operators report and read, as long as they run
	case custom[gk]:
		return customResources
	case gk.Group == "admissionregistration.k8s.io", gk.Group == "apiregistration.k8s.io":
		return interceptors
	case gk.Group == "apps", gk.Group == "batch":
		return workloads
	}
	return others
}

func idOf(object *metav1.PartialObjectMetadata) manifest.ID {
	gk := object.GroupVersionKind().GroupKind()
	return manifest.ID{Group: gk.Group, Kind: gk.Kind, Namespace: object.Namespace, Name: object.Name}
}

// placeOf is as much of a manifest as its order is made of.
func placeOf(object *metav1.PartialObjectMetadata, r inventory.Record, defined map[string]schema.GroupKind) *manifest.Manifest {
	m := &manifest.Manifest{File: r.File, Document: r.Document, Object: &unstructured.Unstructured{}}
	m.Runlevel, m.Component = manifest.Place(r.File)
	m.Object.SetGroupVersionKind(object.GroupVersionKind())
	m.Object.SetNamespace(object.Namespace)
	m.Object.SetName(object.Name)
	switch gk := object.GroupVersionKind().GroupKind(); {
	case gk.Kind == crdKind:
		kind := defined[object.Name]
		m.Object.Object["spec"] = map[string]any{"group": kind.Group, "names": map[string]any{"kind": kind.Kind}}
	case gk == schema.GroupKind{Group: configv1.GroupName, Kind: "ClusterOperator"}:
		m.File = "" // an update creates it before everything else of its component, which reports by it as long as it runs
	}
	return m
}
