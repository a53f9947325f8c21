package uninstall

import (
	"maps"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Stages of a platform's removal, in order. Custom resources are deleted first, while the operators that clean up after them still run.
// Objects that block requests once their servers no longer exist come next. The other objects follow in the reverse order of an update to
// their release, so that each is deleted before the objects that it needs. For an object without a recorded position in a release, the kind
// decides: CRDs and namespaces are deleted last, all other kinds before the recorded objects.
const (
	customResources = iota
	interceptors
	workloads
	others
	byRelease
	definitions
	namespaces
)

// deletionSteps arranges the objects of a platform in the order of their deletion. A step begins when no object of the previous step is
// left. records maps objects to their manifests; defined maps names of CRDs to the kinds that they define.
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
	case gk.Kind == target.CRDKind:
		return definitions
	case gk == namespaceKind:
		return namespaces
	case gk.Group == configv1.GroupName:
		return others // operators write to them and read them as long as they run
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

// placeOf returns the parts of an object's manifest that determine its position in the order.
func placeOf(object *metav1.PartialObjectMetadata, r inventory.Record, defined map[string]schema.GroupKind) *manifest.Manifest {
	m := &manifest.Manifest{File: r.File, Document: r.Document, Object: &unstructured.Unstructured{}}
	m.Runlevel, m.Component = manifest.Place(r.File)
	m.Object.SetGroupVersionKind(object.GroupVersionKind())
	m.Object.SetNamespace(object.Namespace)
	m.Object.SetName(object.Name)
	switch gk := object.GroupVersionKind().GroupKind(); {
	case gk.Kind == target.CRDKind:
		kind := defined[object.Name]
		m.Object.Object["spec"] = map[string]any{"group": kind.Group, "names": map[string]any{"kind": kind.Kind}}
	case gk == schema.GroupKind{Group: configv1.GroupName, Kind: "ClusterOperator"}:
		m.File = "" // an update creates it first in its component, whose operator writes to it as long as it runs
	}
	return m
}
