package observe_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/observe"
)

func named(namespace string, names ...string) observe.Names {
	out := observe.Names{}
	for _, name := range names {
		out[types.NamespacedName{Namespace: namespace, Name: name}] = true
	}
	return out
}

// TestObjectsWithoutManifestAreDropped checks foreign objects with our label. They trigger no call and use no memory.
//
//threat:tenant-labels-many
func TestObjectsWithoutManifestAreDropped(t *testing.T) {
	ns := namespace(t)
	us := as(t, controlPlane.For(t), api.FieldManager)
	us.apply(t, configMaps, configMap(t, ns, "before", "k: v"))
	us.apply(t, configMaps, configMap(t, ns, "ours", "k: v"))
	w := watcher(t)
	w.Want(named(ns, "ours"))
	scope := observe.Scope{Resource: configMaps}
	w.until(t, scope, ns, "ours", there)
	w.callsAfter(t, 0)
	changes := w.changes.Load()

	for i := range 50 {
		us.apply(t, configMaps, configMap(t, ns, "later", fmt.Sprint("k: v", i)))
	}
	us.delete(t, configMaps, ns, "before")
	ours := us.apply(t, configMaps, configMap(t, ns, "ours", "k: w"))
	w.until(t, scope, ns, "ours", at(ours.GetResourceVersion()))
	w.callsAfter(t, changes)
	assert.Equal(t, changes+1, w.changes.Load(), "only our own object triggers a call")
	assert.Len(t, maps.Collect(w.All(scope)), 1)
	assert.False(t, w.Look(scope, ns, "later").Synced, "a dropped object may still exist")
}

// TestWantAddsAndDropsObjects checks that a dropped object appears once a release has a manifest for it, and that an object without a
// manifest is dropped.
func TestWantAddsAndDropsObjects(t *testing.T) {
	ns := namespace(t)
	us := as(t, controlPlane.For(t), api.FieldManager)
	for _, name := range []string{"a", "b"} {
		us.apply(t, configMaps, configMap(t, ns, name, "k: v"))
	}
	w := watcher(t)
	w.Want(named(ns, "a"))
	scope := observe.Scope{Resource: configMaps}
	w.until(t, scope, ns, "a", there)
	w.Want(named(ns, "b"))
	w.until(t, scope, ns, "b", there)
	assert.Len(t, maps.Collect(w.All(scope)), 1)
}

// TestListsAreReadInPages checks that only one page of objects is in memory at a time if a server cannot stream the initial state.
func TestListsAreReadInPages(t *testing.T) {
	const n = 60
	ns := namespace(t)
	us := as(t, controlPlane.For(t), api.FieldManager)
	for i := range n {
		us.apply(t, configMaps, configMap(t, ns, fmt.Sprint("a-", i), "k: v"))
	}
	l, config := connect(t, controlPlane.For(t))
	l.meddleWith(func(r *http.Request) *http.Response {
		if r.URL.Query().Get("sendInitialEvents") != "true" {
			return nil
		}
		answer, err := refusing(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)(r).respond(r)
		assert.NoError(t, err)
		return answer
	})
	w := start(t, config, owned(t), testLog(t))
	w.Want(named(ns, "a-59"))
	w.until(t, observe.Scope{Resource: configMaps}, ns, "a-59", there)
	lists := l.asked(func(r request) bool { return r.list })
	require.Len(t, lists, 3)
	for _, r := range lists {
		assert.Contains(t, r.query, "limit=25")
	}
	assert.Len(t, maps.Collect(w.All(observe.Scope{Resource: configMaps})), 1)
}

// TestLongListsOfFinalizersAreTruncated checks that parts of a stored object that other clients can enlarge are truncated.
//
//threat:tenant-labels-many
func TestLongListsOfFinalizersAreTruncated(t *testing.T) {
	ns := namespace(t)
	us := as(t, controlPlane.For(t), api.FieldManager)
	obj := configMap(t, ns, "a", "k: v")
	for i := range 1000 {
		obj.SetFinalizers(append(obj.GetFinalizers(), fmt.Sprint("example.com/f", i)))
	}
	us.apply(t, configMaps, obj)
	us.delete(t, configMaps, ns, "a")
	w := watcher(t)
	w.Want(named(ns, "a"))
	look := w.until(t, observe.Scope{Resource: configMaps}, ns, "a", there)
	assert.True(t, look.State.Deleting)
	require.Len(t, look.State.Finalizers, 9)
	assert.Equal(t, "992 more", look.State.Finalizers[8])
}

// TestStampChangesWithTheObjects checks that the stamp of a scope without our label changes with the objects but not with their status.
func TestStampChangesWithTheObjects(t *testing.T) {
	ns := namespace(t)
	us := as(t, controlPlane.For(t), api.FieldManager)
	w := watcher(t)
	scope := observe.Scope{Resource: namespaces, Name: ns}
	require.Eventually(t, func() bool { return w.Stamp(scope) != "" }, patience, 1e6)
	before := w.Stamp(scope)
	changed := func() bool { return w.Stamp(scope) != before }

	current := us.edit(t, namespaces, "", ns, func(map[string]any) {})
	require.NoError(t, setPhase(current.Object, "Active"))
	_, err := us.Resource(namespaces).UpdateStatus(t.Context(), current, metav1.UpdateOptions{FieldManager: "status-writer"})
	require.NoError(t, err)
	marker := us.edit(t, namespaces, "", ns, func(map[string]any) {})
	w.until(t, scope, "", ns, func(l observe.Look) bool { return there(l) && l.State.ResourceVersion == marker.GetResourceVersion() })
	assert.False(t, changed(), "a status write")
	us.edit(t, namespaces, "", ns, func(obj map[string]any) { set(t, obj, "v", "metadata", "labels", "l") })
	require.Eventually(t, changed, patience, 1e6, "a new label")

	all := observe.Scope{Resource: configMaps, Namespace: ns, Selector: "kind=x"}
	require.Eventually(t, func() bool { return w.Stamp(all) != "" }, patience, 1e6)
	empty := w.Stamp(all)
	obj := configMap(t, ns, "a", "k: v")
	obj.SetLabels(map[string]string{"kind": "x"})
	us.apply(t, configMaps, obj)
	require.Eventually(t, func() bool { return w.Stamp(all) != empty }, patience, 1e6, "a new object")
}

// TestStampChangesWithTheStatusOfServers checks that the stamp of a CRD or APIService changes with its status alone, because the status shows
// whether its resource is served.
func TestStampChangesWithTheStatusOfServers(t *testing.T) {
	us := as(t, controlPlane.For(t), "status-writer")
	for _, tt := range []struct {
		name, object string
		resource     schema.GroupVersionResource
		served       string
	}{
		{"CRD", `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.stamp.example.com}, spec: {
			group: stamp.example.com, scope: Cluster, names: {plural: widgets, kind: Widget}, versions: [{name: v1, served: true, storage: true,
			schema: {openAPIV3Schema: {type: object}}}]}}`, definitions, "Established"},
		{"APIService", `{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.served.stamp.example.com}, spec: {
			group: served.stamp.example.com, version: v1, groupPriorityMinimum: 1000, versionPriority: 10, insecureSkipTLSVerify: true,
			service: {namespace: default, name: stamp-none}}}`, apiServices, "Available"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			obj := object(t, tt.object)
			us.apply(t, tt.resource, obj)
			t.Cleanup(func() {
				_ = us.Resource(tt.resource).Delete(context.WithoutCancel(t.Context()), obj.GetName(), metav1.DeleteOptions{})
			})
			w := watcher(t)
			scope := observe.Scope{Resource: tt.resource, Name: obj.GetName()}
			require.Eventually(t, func() bool { // the API server has written the status
				current, err := us.Resource(tt.resource).Get(t.Context(), obj.GetName(), metav1.GetOptions{})
				require.NoError(t, err)
				conditions, _, _ := unstructured.NestedSlice(current.Object, "status", "conditions")
				return slices.ContainsFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == tt.served }) &&
					w.Stamp(scope) != "" && w.Look(scope, "", obj.GetName()).State.ResourceVersion == current.GetResourceVersion()
			}, patience, 1e6)
			before := w.Stamp(scope)
			require.NoError(t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
				current, err := us.Resource(tt.resource).Get(t.Context(), obj.GetName(), metav1.GetOptions{})
				require.NoError(t, err)
				conditions, _, _ := unstructured.NestedSlice(current.Object, "status", "conditions")
				conditions = append(conditions, map[string]any{"type": "Example", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"})
				require.NoError(t, unstructured.SetNestedSlice(current.Object, conditions, "status", "conditions"))
				_, err = us.Resource(tt.resource).UpdateStatus(t.Context(), current, metav1.UpdateOptions{})
				return err
			}))
			require.Eventually(t, func() bool { return w.Stamp(scope) != before }, patience, 1e6)
		})
	}
}

func setPhase(obj map[string]any, phase string) error {
	status, _ := obj["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
	}
	status["phase"] = phase
	status["conditions"] = []any{map[string]any{"type": "Example", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}}
	obj["status"] = status
	return nil
}
