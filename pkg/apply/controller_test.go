package apply_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/body"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// controllerOf returns the name of an object's controller, and whether our owner is one of its owners.
func controllerOf(obj *unstructured.Unstructured) (controller string, owned bool) {
	for _, r := range obj.GetOwnerReferences() {
		owned = owned || r.UID == owner.UID
		if r.Controller != nil && *r.Controller {
			controller = r.Kind + " " + r.Name
		}
	}
	return controller, owned
}

func TestOtherControllerKeepsItsRole(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	m := parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: foreign, namespace: "+ns+"}\ndata: {a: ours}")
	theirs := m.Object.DeepCopy()
	theirs.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Shop", Name: "shop", UID: "s", Controller: new(true)}})
	theirs.Object["data"] = map[string]any{"a": "theirs", "b": "theirs"}
	require.NoError(t, otherClient(t).Create(t.Context(), theirs, client.FieldOwner("shop-controller")))

	predicted, err := a.Predict(t.Context(), m, release.Updating)
	require.NoError(t, err)
	assert.Equal(t, "Shop shop stays its controller", predicted.Message)
	assert.Equal(t, map[string]any{"a": "ours", "b": "theirs"}, predicted.Object.Object["data"])
	record.drain()
	change := must(t, a, m)
	assert.Equal(t, []string{"PATCH apply-patch", http.MethodGet, "PATCH apply-patch"}, methods(record.drain()))
	assert.Equal(t, apply.Applied, change.Action)
	assert.Equal(t, "Shop shop stays its controller", change.Message)
	obj := live(t, m)
	assert.Equal(t, map[string]any{"a": "ours", "b": "theirs"}, obj.Object["data"])
	controller, owned := controllerOf(obj)
	assert.Equal(t, "Shop shop", controller)
	assert.True(t, owned)

	as(t, "shop-controller", m, types.MergePatchType, `{"data":{"a":"theirs"}}`)
	must(t, a, m)
	obj = live(t, m)
	assert.Equal(t, map[string]any{"a": "ours", "b": "theirs"}, obj.Object["data"], "the repair of drift keeps the controller, too")
	controller, _ = controllerOf(obj)
	assert.Equal(t, "Shop shop", controller)

	record.drain()
	_, err = a.With(apply.Options{Controller: "Shop shop"}).Apply(t.Context(), m, release.Updating)
	require.NoError(t, err)
	assert.Equal(t, []string{"PATCH apply-patch"}, methods(record.drain()), "a watch saves the rejected attempt")

	pruned, err := a.Prune(t.Context(), m.GVK(), ns, "foreign", change.UID)
	require.NoError(t, err)
	assert.Equal(t, apply.Change{Action: apply.Skipped, Temporary: true, Message: "Shop shop is its controller"}, pruned)
	assert.NotNil(t, live(t, m))
}

func TestPredictionNamesRemovedValuesAndTheController(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	m := parse(t, "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: foreign, namespace: "+ns+"}\nspec: {maxUnavailable: 1, selector: {matchLabels: {a: b}}}")
	theirs := m.Object.DeepCopy()
	theirs.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Shop", Name: "shop", UID: "s", Controller: new(true)}})
	unstructured.RemoveNestedField(theirs.Object, "spec", "maxUnavailable")
	require.NoError(t, unstructured.SetNestedField(theirs.Object, int64(1), "spec", "minAvailable"))
	require.NoError(t, otherClient(t).Create(t.Context(), theirs, client.FieldOwner("shop-controller")))

	predicted, err := a.Predict(t.Context(), m, release.Updating)
	require.NoError(t, err)
	assert.Equal(t, "values that contradict the manifest are removed first: spec.minAvailable of shop-controller; Shop shop stays its controller", predicted.Message)
	assert.Equal(t, "removed values that contradict the manifest: spec.minAvailable of shop-controller; Shop shop stays its controller", must(t, a, m).Message)
}

func TestRecreatedObjectGetsItsControllerBack(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	m := parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: foreign, namespace: "+ns+
		", annotations: {release.openshift.io/on-immutable: recreate}}\nimmutable: true\ndata: {a: ours}")
	theirs := m.Object.DeepCopy()
	theirs.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Shop", Name: "shop", UID: "s", Controller: new(true)}})
	theirs.Object["data"] = map[string]any{"a": "theirs"}
	require.NoError(t, otherClient(t).Create(t.Context(), theirs, client.FieldOwner("shop-controller")))
	assert.Equal(t, apply.Recreated, must(t, a, m).Action)
	controller, owned := controllerOf(live(t, m))
	assert.Equal(t, "ClusterVersion version", controller)
	assert.True(t, owned)
}

func TestControllerOfTheManifestDoesNotPreventPruning(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	m := parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: owned, namespace: "+ns+
		", ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: parent, uid: p, controller: true}]}")
	uid := must(t, a, m).UID
	pruned, err := a.Prune(t.Context(), m.GVK(), ns, "owned", uid)
	require.NoError(t, err)
	assert.Equal(t, apply.Change{Action: apply.Deleted, UID: uid}, pruned)
}

func TestFormerClusterVersionDoesNotStayController(t *testing.T) {
	ns := namespace(t)
	former, _ := connect(t, body.Owner{Name: "version", UID: "5b5c5d5e-0000-4000-8000-000000000009"})
	a, _ := connect(t, owner)
	m := parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: former, namespace: "+ns+"}\ndata: {a: ours}")
	must(t, former, m)
	change := must(t, a, m)
	assert.Empty(t, change.Message)
	controller, owned := controllerOf(live(t, m))
	assert.Equal(t, "ClusterVersion version", controller)
	assert.True(t, owned)
}

// TestReferenceToAnEarlierClusterVersionIsRemoved restores an object from a backup after the ClusterVersion was recreated. No manager owns the
// reference, so no apply removes it.
func TestReferenceToAnEarlierClusterVersionIsRemoved(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	m := parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: restored, namespace: "+ns+"}\ndata: {a: ours}")
	restore(t, m)

	predicted, err := a.Predict(t.Context(), m, release.Updating)
	require.NoError(t, err)
	assert.Equal(t, apply.Applied, predicted.Action)
	must(t, a, m)
	var names []string
	for _, r := range live(t, m).GetOwnerReferences() {
		names = append(names, fmt.Sprint(r.Kind, " ", r.UID, " ", r.Controller != nil && *r.Controller))
	}
	assert.ElementsMatch(t, []string{"Shop s false", fmt.Sprint("ClusterVersion ", owner.UID, " true")}, names)
}

// restore creates an object as from a backup that was taken when an earlier ClusterVersion controlled it.
func restore(t *testing.T, m *manifest.Manifest) {
	t.Helper()
	restored := m.Object.DeepCopy()
	restored.SetOwnerReferences([]metav1.OwnerReference{
		{APIVersion: "config.openshift.io/v1", Kind: "ClusterVersion", Name: owner.Name, UID: "earlier", Controller: new(true)},
		{APIVersion: "example.com/v1", Kind: "Shop", Name: "shop", UID: "s"},
	})
	require.NoError(t, otherClient(t).Create(t.Context(), restored, client.FieldOwner("backup")))
	as(t, "backup", m, types.MergePatchType, `{"metadata":{"managedFields":[{}]}}`)
}

// TestImmutableObjectOfAnEarlierClusterVersionIsRecreated restores an object that the server does not allow to change.
func TestImmutableObjectOfAnEarlierClusterVersionIsRecreated(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: immutable, namespace: " + ns + ", annotations: {" + recreateAnnotation + "}}\nimmutable: true\ndata: {a: "
	restore(t, parse(t, text+"theirs}"))
	m := parse(t, text+"ours}")

	predicted, err := a.Predict(t.Context(), m, release.Updating)
	require.NoError(t, err)
	assert.Equal(t, apply.Recreated, predicted.Action)
	assert.Equal(t, apply.Recreated, must(t, a, m).Action)
	assert.Equal(t, "ours", at(live(t, m).Object, "data.a"))
}
