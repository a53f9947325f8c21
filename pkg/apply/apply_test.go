package apply_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// configMap returns a ConfigMap manifest. Annotations and data are YAML flow mappings.
func configMap(t *testing.T, namespace, name, annotations, data string) *manifest.Manifest {
	t.Helper()
	return parse(t, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: %s, name: %s, annotations: %s}\ndata: %s",
		namespace, name, annotations, data))
}

func merge(t *testing.T, m *manifest.Manifest, patch string) {
	t.Helper()
	obj := live(t, m)
	require.NoError(t, otherClient(t).Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func TestApplyCreatesThenWritesNothing(t *testing.T) {
	m := configMap(t, namespace(t), "a", "{note: x}", "{k: v}")
	a, record := connect(t, owner)

	first := must(t, a, m)
	obj := live(t, m)
	assert.Equal(t, apply.Change{
		Action: apply.Created, UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(), Generation: obj.GetGeneration(),
		Fields: ownership.Ours(obj.GetManagedFields()), Time: ownership.Time(obj.GetManagedFields()),
	}, first)
	assert.NotZero(t, first.Fields)
	assert.NotZero(t, first.Time)
	assert.Equal(t, map[string]any{"k": "v"}, obj.Object["data"])
	assert.Equal(t, map[string]string{"note": "x"}, obj.GetAnnotations())
	assert.Equal(t, metav1.ManagedFieldsOperationApply, ours(obj).Operation)

	second := must(t, a, m)
	want := first
	want.Action = apply.Applied
	assert.Equal(t, want, second, "the resource version must not change")
	requests := record.drain()
	require.Len(t, requests, 2)
	for _, r := range requests {
		assert.Equal(t, http.MethodPatch, r.method)
		assert.Equal(t, string(types.ApplyPatchType), r.contentType)
	}
}

func TestApplyReportsTheGeneration(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	m := deployment(t, ns, "a", 1)
	assert.EqualValues(t, 1, must(t, a, m).Generation)
	m = deployment(t, ns, "a", 2)
	assert.EqualValues(t, 2, must(t, a, m).Generation)
}

// deployment returns a manifest with one container and additional YAML lines.
func deployment(t *testing.T, namespace, name string, replicas int, lines ...string) *manifest.Manifest {
	t.Helper()
	text := fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {namespace: %s, name: %s}
spec:
  replicas: %d
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec:
      containers:
      - name: main
        image: example.com/main
`, namespace, name, replicas)
	for _, line := range lines {
		text += line + "\n"
	}
	return parse(t, text)
}

//threat:another-client-loosens
func TestApplyKeepsForeignFieldsAndRestoresItsOwn(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	must(t, a, configMap(t, ns, "a", "{old: '1', both: '1'}", "{old: '1', both: '1', mine: '1'}"))
	m := configMap(t, ns, "a", "{both: '1'}", "{both: '1', mine: '1'}")
	merge(t, m, `{"metadata":{"annotations":{"foreign":"f"}},"data":{"foreign":"f","mine":"theirs"}}`)

	must(t, a, m)
	obj := live(t, m)
	assert.Equal(t, map[string]string{"both": "1", "foreign": "f"}, obj.GetAnnotations())
	assert.Equal(t, map[string]any{"both": "1", "mine": "1", "foreign": "f"}, obj.Object["data"],
		"dropped fields are removed, foreign fields stay, and our fields are restored")
}

func TestApplyRemovesDroppedListEntries(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	must(t, a, deployment(t, ns, "a", 1, "      - {name: side, image: example.com/side}"))
	m := deployment(t, ns, "a", 1)
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"injected","image":"example.com/i"}]}}}}`
	require.NoError(t, otherClient(t).Patch(t.Context(), live(t, m), client.RawPatch(types.StrategicMergePatchType, []byte(patch))))

	must(t, a, m)
	containers, _, err := unstructured.NestedSlice(live(t, m).Object, "spec", "template", "spec", "containers")
	require.NoError(t, err)
	var names []any
	for _, c := range containers {
		names = append(names, c.(map[string]any)["name"])
	}
	assert.ElementsMatch(t, []any{"main", "injected"}, names)
}

func TestApplyUsesTheScopeOfTheKind(t *testing.T) {
	a, record := connect(t, owner)
	m := parse(t, "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: stray, namespace: nowhere}")
	assert.Equal(t, apply.Created, must(t, a, m).Action)
	assert.Equal(t, "/apis/rbac.authorization.k8s.io/v1/clusterroles/stray", record.drain()[0].path)

	m = parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: stray}")
	_, err := a.Apply(t.Context(), m, release.Updating)
	var failed *failure.Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, api.ReasonResourceInvalid, failed.Reason)
	require.ErrorContains(t, err, "metadata.namespace is missing")
	assert.Empty(t, record.drain(), "no request is sent")
}

func TestCreateOnlyObjectIsNeverChanged(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	const once = `{release.openshift.io/create-only: "True"}`
	first := must(t, a, configMap(t, ns, "a", once, "{k: v}"))
	m := configMap(t, ns, "a", once, "{k: w, more: x}")
	obj := live(t, m)
	assert.Equal(t, apply.Created, first.Action)
	assert.Equal(t, obj.GetUID(), first.UID)
	assert.Equal(t, owner.Name, obj.GetLabels()[api.OwnedByLabel])
	require.Len(t, obj.GetOwnerReferences(), 1)
	assert.Nil(t, obj.GetOwnerReferences()[0].Controller, "the owner is not the controller")

	merge(t, m, `{"data":{"k":"theirs"}}`)
	before := live(t, m)
	assert.Equal(t, apply.Change{Action: apply.Kept}, must(t, a, m))
	assert.Equal(t, before, live(t, m))
	for _, r := range record.drain() {
		assert.Equal(t, http.MethodPost, r.method)
		assert.Equal(t, "/api/v1/namespaces/"+ns+"/configmaps", r.path)
	}
}

func TestCreateOnlyReportsUnknownFields(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	m := deployment(t, ns, "a", 1, "        foo: 1", "        bar.baz: 2")
	m.Object.SetAnnotations(map[string]string{api.CreateOnlyAnnotation: "true"})
	assert.ElementsMatch(t, []string{
		".spec.template.spec.containers[0].foo", ".spec.template.spec.containers[0].bar.baz",
	}, must(t, a, m).Dropped)
}

const tombstone = `{release.openshift.io/delete: "true"}`

func TestTombstoneDeletesTheObject(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	m := configMap(t, ns, "a", tombstone, "{}")
	uid := must(t, a, configMap(t, ns, "a", "{}", "{}")).UID
	record.drain()

	change, err := a.Apply(t.Context(), m, release.Initializing)
	require.NoError(t, err)
	assert.Equal(t, apply.Skipped, change.Action)
	assert.NotEmpty(t, change.Message)
	assert.Empty(t, record.drain())
	live(t, m)

	assert.Equal(t, apply.Change{Action: apply.Deleted, UID: uid}, must(t, a, m))
	_, err = read(t, m)
	assert.True(t, apierrors.IsNotFound(err), "%v", err)
	assert.Len(t, record.drain(), 2)

	assert.Equal(t, apply.Change{Action: apply.Deleted}, must(t, a, m), "a missing object is settled")
	assert.Len(t, record.drain(), 1)
}

func TestTombstoneWaitsForFinalizers(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	kept := configMap(t, ns, "a", "{}", "{}")
	kept.Object.SetFinalizers([]string{"example.com/one", "example.com/two"})
	uid := must(t, a, kept).UID
	record.drain()

	m := configMap(t, ns, "a", tombstone, "{}")
	for _, requests := range []int{2, 1} {
		change := must(t, a, m)
		assert.Equal(t, apply.Deleting, change.Action)
		assert.Equal(t, uid, change.UID)
		assert.Regexp(t, `^deleted at 20\S+Z, waiting for its finalizers example.com/one, example.com/two$`, change.Message)
		assert.Len(t, record.drain(), requests, "the deletion is requested once")
	}
	merge(t, m, `{"metadata":{"finalizers":null}}`)
	assert.Equal(t, apply.Deleted, must(t, a, m).Action)
}

// TestTombstoneWaitsForANamespaceToBeEmptied deletes a namespace. It has no finalizers in its metadata, and no controller empties it in
// this cluster.
func TestTombstoneWaitsForANamespaceToBeEmptied(t *testing.T) {
	a, _ := connect(t, owner)
	m := parse(t, "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: "+namespace(t)+"\n  annotations: "+tombstone)
	for range 2 {
		change := must(t, a, m)
		assert.Equal(t, apply.Deleting, change.Action)
		assert.Contains(t, change.Message, "waiting for the server to remove it")
	}
}

//threat:object-another-owner
func TestTombstoneSparesANewObjectWithTheSameName(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	must(t, a, configMap(t, ns, "a", "{}", "{}"))
	m := configMap(t, ns, "a", tombstone, "{}")
	theirs := configMap(t, ns, "a", "{}", "{theirs: x}").Object
	record.before = func(r *http.Request) {
		if r.Method == http.MethodDelete {
			assert.NoError(t, otherClient(t).Delete(t.Context(), theirs.DeepCopy()))
			assert.NoError(t, otherClient(t).Create(t.Context(), theirs.DeepCopy()))
		}
	}
	_, err := a.Apply(t.Context(), m, release.Updating)
	var failed *failure.Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, api.ReasonResourceConflict, failed.Reason)
	assert.Equal(t, map[string]any{"theirs": "x"}, live(t, m).Object["data"])
}

func TestTombstoneAcceptsADeletionByAnotherClient(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	uid := must(t, a, configMap(t, ns, "a", "{}", "{}")).UID
	m := configMap(t, ns, "a", tombstone, "{}")
	record.before = func(r *http.Request) {
		if r.Method == http.MethodDelete {
			assert.NoError(t, otherClient(t).Delete(t.Context(), m.Object.DeepCopy()))
		}
	}
	assert.Equal(t, apply.Change{Action: apply.Deleted, UID: uid}, must(t, a, m))
}

func TestTombstoneOfAnUnservedKindIsSettled(t *testing.T) {
	a, record := connect(t, owner)
	m := parse(t, "apiVersion: gone.example.com/v1\nkind: Gone\nmetadata:\n  name: a\n  annotations: "+tombstone)
	change := must(t, a, m)
	assert.Equal(t, apply.Deleted, change.Action)
	assert.Equal(t, "its kind is not served", change.Message)
	assert.Empty(t, record.drain())
}

func TestApplyReportsAnUnservedKind(t *testing.T) {
	a, _ := connect(t, owner)
	m := parse(t, "apiVersion: gone.example.com/v1\nkind: Gone\nmetadata: {name: a}")
	for _, do := range []func() (apply.Change, error){
		func() (apply.Change, error) { return a.Apply(t.Context(), m, release.Updating) },
		func() (apply.Change, error) { return a.Precreate(t.Context(), m) },
	} {
		_, err := do()
		var failed *failure.Error
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, api.ReasonResourceTypeMissing, failed.Reason)
		assert.True(t, kinds.IsNoMatch(err))
		assert.Same(t, m, failed.Manifest)
	}
}
