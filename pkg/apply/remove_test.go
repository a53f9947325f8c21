package apply_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
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
	"github.com/cluster-version/cvo/pkg/apply/body"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// tombstoneOf returns the tombstone of a manifest.
func tombstoneOf(m *manifest.Manifest) *manifest.Manifest {
	dead := *m
	dead.Object = m.Object.DeepCopy()
	dead.Object.SetAnnotations(map[string]string{api.DeleteAnnotation: "true"})
	return &dead
}

func TestTombstonesOfWorkloadsWaitForTheirChildren(t *testing.T) {
	ns := namespace(t)
	for _, tt := range []struct {
		kind, apiVersion, text string
		foreground             bool
	}{
		{"Deployment", "apps/v1", workload("", "", ""), true},
		{"DaemonSet", "apps/v1", workload("", "", ""), true},
		{"StatefulSet", "apps/v1", workload("serviceName: s, ", "", ""), true},
		{"ReplicaSet", "apps/v1", workload("", "", ""), true},
		{"Job", "batch/v1", jobSpec, true},
		{"CronJob", "batch/v1", cronJob(""), true},
		{"Service", "v1", "spec: {ports: [{port: 80}]}", false},
		{"ConfigMap", "v1", "data: {a: b}", false},
		{"StorageClass", "storage.k8s.io/v1", "provisioner: p", false},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			a, record := connect(t, owner)
			m, _ := change{apiVersion: tt.apiVersion, kind: tt.kind, text: tt.text, old: tt.text, next: "spec: {}"}.manifests(t, ns, "dead", "note: x")
			uid := must(t, a, m).UID
			record.drain()
			got := must(t, a, tombstoneOf(m))
			assert.Equal(t, []string{http.MethodGet, http.MethodDelete}, methods(record.drain()))
			if !tt.foreground {
				assert.Equal(t, apply.Change{Action: apply.Deleted, UID: uid}, got)
				return
			}
			assert.Equal(t, apply.Deleting, got.Action)
			assert.True(t, got.Deleting)
			assert.Contains(t, got.Message, "waiting for its finalizers foregroundDeletion")
			collectGarbage(t, m)
			assert.Equal(t, apply.Change{Action: apply.Deleted}, must(t, a, tombstoneOf(m)))
		})
	}
}

func TestTombstonesDeleteReappearingObjects(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	m := configMap(t, ns, "a", "{}", "{}")
	for range 2 {
		require.NoError(t, otherClient(t).Create(t.Context(), m.Object.DeepCopy()))
		got, err := a.Apply(t.Context(), tombstoneOf(m), release.Reconciling)
		require.NoError(t, err)
		assert.Equal(t, apply.Deleted, got.Action)
		_, err = read(t, m)
		assert.True(t, apierrors.IsNotFound(err))
	}
}

// TestApplyReportsAPendingDeletion applies an object that is being deleted and will soon not exist, even though it was just applied.
func TestApplyReportsAPendingDeletion(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	m := configMap(t, ns, "a", "{}", "{a: x}")
	m.Object.SetFinalizers([]string{"example.com/stuck"})
	assert.False(t, must(t, a, m).Deleting)
	require.NoError(t, otherClient(t).Delete(t.Context(), live(t, m)))
	record.drain()

	got := must(t, a, m)
	assert.Equal(t, apply.Applied, got.Action)
	assert.True(t, got.Deleting)
	assert.Regexp(t, `^deleted at \S+, waiting for its finalizers example.com/stuck$`, got.Message)
	assert.Equal(t, got, must(t, a, m), "the message must be the same each time")
	assert.Len(t, record.drain(), 2)

	merge(t, m, `{"metadata":{"finalizers":null}}`)
	got = must(t, a, m)
	assert.Equal(t, apply.Created, got.Action)
	assert.False(t, got.Deleting)
}

func TestPruneDeletesTheObjectWithTheUID(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	m := configMap(t, ns, "a", "{}", "{a: x}")
	uid := must(t, a, m).UID
	record.drain()
	prune := func(uid types.UID) apply.Change {
		got, err := a.Prune(t.Context(), m.GVK(), ns, "a", uid)
		require.NoError(t, err)
		return got
	}
	got := prune("another")
	assert.Equal(t, apply.Skipped, got.Action)
	assert.Contains(t, got.Message, "a newer object with the same name")
	assert.Equal(t, []string{http.MethodGet}, methods(record.drain()))

	assert.Equal(t, apply.Change{Action: apply.Deleted, UID: uid}, prune(uid))
	assert.Equal(t, []string{http.MethodGet, http.MethodDelete}, methods(record.drain()))
	_, err := read(t, m)
	assert.True(t, apierrors.IsNotFound(err))
	assert.Equal(t, apply.Change{Action: apply.Deleted}, prune(uid))
	assert.Len(t, record.drain(), 1)
}

func TestPruneWaitsForFinalizers(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	m := configMap(t, ns, "a", "{}", "{}")
	m.Object.SetFinalizers([]string{"example.com/stuck"})
	uid := must(t, a, m).UID
	record.drain()
	for _, requests := range []int{2, 1} {
		got, err := a.Prune(t.Context(), m.GVK(), ns, "a", uid)
		require.NoError(t, err)
		assert.Equal(t, apply.Deleting, got.Action)
		assert.Contains(t, got.Message, "example.com/stuck")
		assert.Len(t, record.drain(), requests)
	}
}

//threat:object-another-owner
func TestPruneSparesForeignObjects(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	stranger, _ := connect(t, body.Owner{Name: "another", UID: "u"})
	ownerless, _ := connect(t, body.Owner{})
	for _, tt := range []struct {
		name, why string
		make      func(m *manifest.Manifest)
	}{
		{"theirs", "label", func(m *manifest.Manifest) {
			require.NoError(t, otherClient(t).Create(t.Context(), m.Object.DeepCopy()))
		}},
		{"another-owner", "label", func(m *manifest.Manifest) { must(t, stranger, m) }},
		{"no-owner", "label", func(m *manifest.Manifest) { must(t, ownerless, m) }},
		{"labeled", "no fields of the version operator", func(m *manifest.Manifest) {
			obj := m.Object.DeepCopy()
			obj.SetLabels(map[string]string{api.OwnedByLabel: owner.Name})
			require.NoError(t, otherClient(t).Create(t.Context(), obj))
		}},
		{"unlabeled", "label", func(m *manifest.Manifest) {
			must(t, a, m)
			merge(t, m, `{"metadata":{"labels":{"`+api.OwnedByLabel+`":null}}}`)
		}},
		{"given-up", "no fields of the version operator", func(m *manifest.Manifest) {
			must(t, a, m)
			merge(t, m, `{"metadata":{"managedFields":[{}]}}`)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := configMap(t, ns, tt.name, "{}", "{a: x}")
			tt.make(m)
			got, err := a.Prune(t.Context(), m.GVK(), ns, tt.name, live(t, m).GetUID())
			require.NoError(t, err)
			assert.Equal(t, apply.Skipped, got.Action)
			assert.Contains(t, got.Message, tt.why)
			assert.Nil(t, live(t, m).GetDeletionTimestamp())
		})
	}
	m := configMap(t, ns, "no-owner", "{}", "{a: x}")
	got, err := ownerless.Prune(t.Context(), m.GVK(), ns, "no-owner", live(t, m).GetUID())
	require.NoError(t, err)
	assert.Equal(t, apply.Skipped, got.Action, "without an owner, no object is ours")
}

// TestPruneSparesAnObjectThatLosesOurLabel removes the label between the read and the deletion.
func TestPruneSparesAnObjectThatLosesOurLabel(t *testing.T) {
	ns := namespace(t)
	a, record := connect(t, owner)
	m := configMap(t, ns, "a", "{}", "{}")
	uid := must(t, a, m).UID
	record.before = func(r *http.Request) {
		if r.Method == http.MethodDelete {
			merge(t, m, `{"metadata":{"labels":{"`+api.OwnedByLabel+`":null}}}`)
		}
	}
	_, err := a.Prune(t.Context(), m.GVK(), ns, "a", uid)
	require.ErrorContains(t, err, "pruning ConfigMap "+ns+"/a: ")
	assert.True(t, apierrors.IsConflict(err), "%v", err)
	live(t, m)
}

//threat:object-content-pruned
func TestPruneNeverDeletesObjectsThatHoldData(t *testing.T) {
	a, record := connect(t, owner)
	for _, text := range []string{
		"apiVersion: v1\nkind: Namespace", "apiVersion: v1\nkind: PersistentVolume", "apiVersion: v1\nkind: PersistentVolumeClaim",
		"apiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume", "apiVersion: config.openshift.io/v1\nkind: ClusterVersion",
	} {
		m := parse(t, text+"\nmetadata: {name: a}")
		got, err := a.Prune(t.Context(), m.GVK(), "n", "a", "u")
		require.NoError(t, err)
		assert.Equal(t, apply.Skipped, got.Action)
		assert.Contains(t, got.Message, m.GVK().Kind)
		assert.Empty(t, record.drain())
	}
}

func TestPruneKeepsACRDWithObjects(t *testing.T) {
	crd := parse(t, "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: prunes.union.example.com}\n"+
		strings.Replace(conversionCRD("prunes", ""), "versions: [{name: v1, served: true, storage: true,",
			"versions: [{name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}, {name: v1, served: true, storage: true,", 1))
	a, record := connect(t, owner)
	serveCRD(t, crd)
	uid := must(t, a, crd).UID
	obj := parse(t, "apiVersion: union.example.com/v1beta1\nkind: Kprunes\nmetadata: {namespace: default, name: a}")
	require.NoError(t, otherClient(t).Create(t.Context(), obj.Object.DeepCopy()))
	record.drain()

	got, err := a.Prune(t.Context(), crd.GVK(), "", "prunes.union.example.com", uid)
	require.NoError(t, err)
	assert.Equal(t, apply.Skipped, got.Action)
	assert.Equal(t, "kept until no prunes.union.example.com exist, then deleted", got.Message)
	requests := record.drain()
	assert.Len(t, requests, 3)
	assert.Equal(t, "/apis/union.example.com/v1/prunes", requests[2].path)
	assert.Contains(t, requests[2].query, "limit=1")
	assert.Contains(t, requests[2].accept, "PartialObjectMetadataList")

	require.NoError(t, otherClient(t).Delete(t.Context(), obj.Object.DeepCopy()))
	require.Eventually(t, func() bool {
		got, err := a.Prune(t.Context(), crd.GVK(), "", "prunes.union.example.com", uid)
		return err == nil && (got.Action == apply.Deleted || got.Action == apply.Deleting)
	}, eventually, tick)
	requireGone(t, crd)
}

// TestDeletionsFindAnObjectInAnotherVersion covers a CRD that stops serving the version in which objects were applied. The objects still
// exist. The operator's discovery is from before the change.
func TestDeletionsFindAnObjectInAnotherVersion(t *testing.T) {
	a, objects, uid, crd := movable(t, "moved")
	stopServing(t, a, crd)
	require.Eventually(t, func() bool { // discovery is not read twice within half a second
		got, err := a.Prune(t.Context(), parse(t, objects[0]).GVK(), "default", "a", uid)
		return err == nil && got.Action == apply.Deleted && got.UID == uid
	}, eventually, tick)

	dead := parse(t, strings.Replace(objects[1], "{", `{annotations: {release.openshift.io/delete: "true"}, `, 1))
	f, err := a.Predict(t.Context(), dead, release.Updating)
	require.NoError(t, err)
	assert.Equal(t, apply.Deleting, f.Action)
	assert.NotEmpty(t, must(t, a, dead).UID)
	assert.Equal(t, apply.Change{Action: apply.Deleted}, must(t, a, dead))
}

// TestMissingVersionIsNamed covers an object whose version is no longer served. The error names the versions, also if discovery is from
// before the change.
func TestMissingVersionIsNamed(t *testing.T) {
	a, objects, _, crd := movable(t, "named")
	stopServing(t, a, crd)
	require.Eventually(t, func() bool {
		_, err := a.Apply(t.Context(), parse(t, objects[0]), release.Updating)
		failed, ok := errors.AsType[*failure.Error](err)
		return ok && failed.Reason == api.ReasonResourceTypeMissing &&
			strings.Contains(err.Error(), `no match for kind "Knamed" in union.example.com/v1beta1, only in v1`)
	}, eventually, tick)
	must(t, a, parse(t, crd))
	require.Eventually(t, func() bool {
		_, err := a.Apply(t.Context(), parse(t, objects[0]), release.Updating)
		return err == nil
	}, eventually, tick)
}

// TestPruneSettlesWithTheCRD covers an orphan whose CRD another client deletes.
func TestPruneSettlesWithTheCRD(t *testing.T) {
	a, objects, uid, crd := movable(t, "vanished")
	require.NoError(t, otherClient(t).Delete(t.Context(), parse(t, crd).Object))
	requireGone(t, parse(t, crd))
	require.Eventually(t, func() bool {
		got, err := a.Prune(t.Context(), parse(t, objects[0]).GVK(), "default", "a", uid)
		return err == nil && got.Action == apply.Deleted && got.Message == "its kind is not served"
	}, eventually, tick)
}

// movable applies a CRD with the versions v1beta1 and v1, and two objects in v1beta1. It returns the applier, the manifests of the objects,
// the UID of the first, and the manifest of the CRD.
func movable(t *testing.T, plural string) (a *apply.Applier, objects [2]string, uid types.UID, crd string) {
	t.Helper()
	crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: " + plural + ".union.example.com}\n" +
		strings.Replace(conversionCRD(plural, ""), "versions: [{name: v1, served: true, storage: true,",
			"versions: [{name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}, {name: v1, served: true, storage: true,", 1)
	serveCRD(t, parse(t, crd))
	a, _ = connect(t, owner)
	for i, name := range []string{"a", "b"} {
		objects[i] = "apiVersion: union.example.com/v1beta1\nkind: K" + plural + "\nmetadata: {namespace: default, name: " + name + "}"
	}
	require.Eventually(t, func() bool {
		change, err := a.Apply(t.Context(), parse(t, objects[0]), release.Updating)
		uid = change.UID
		return err == nil
	}, eventually, tick)
	must(t, a, parse(t, objects[1]))
	return a, objects, uid, crd
}

// stopServing stops serving v1beta1 of a CRD, and waits until discovery shows it.
func stopServing(t *testing.T, a *apply.Applier, crd string) {
	t.Helper()
	m := parse(t, strings.Replace(crd, "v1beta1, served: true", "v1beta1, served: false", 1))
	must(t, a, m)
	plural, _, _ := unstructured.NestedString(m.Object.Object, "spec", "names", "plural")
	require.Eventually(t, func() bool {
		list, err := discoverer(t).ServerResourcesForGroupVersion("union.example.com/v1beta1")
		return apierrors.IsNotFound(err) || err == nil && !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == plural })
	}, eventually, tick)
}

func TestPruneKeepsACRDWithoutServedVersions(t *testing.T) {
	crd := parse(t, "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: silent.union.example.com}\n"+
		strings.Replace(conversionCRD("silent", ""), "served: true", "served: false", 1))
	a, _ := connect(t, owner)
	uid := must(t, a, crd).UID
	got, err := a.Prune(t.Context(), crd.GVK(), "", "silent.union.example.com", uid)
	require.NoError(t, err)
	assert.Equal(t, apply.Skipped, got.Action)
	assert.Contains(t, got.Message, "serves no version")
}

func TestPruneDeletesAClusterOperator(t *testing.T) {
	serveClusterOperators(t)
	a, _ := connect(t, owner)
	m := clusterOperator(t, "orphan")
	uid := must(t, a, m).UID
	got, err := a.Prune(t.Context(), m.GVK(), "", "orphan", uid)
	require.NoError(t, err)
	assert.Equal(t, apply.Deleted, got.Action)
}

func TestPruneOfAnUnservedKindIsSettled(t *testing.T) {
	a, _ := connect(t, owner)
	m := parse(t, "apiVersion: gone.example.com/v1\nkind: Gone\nmetadata: {name: a}")
	got, err := a.Prune(t.Context(), m.GVK(), "", "a", "u")
	require.NoError(t, err)
	assert.Equal(t, apply.Deleted, got.Action)

	_, err = a.Prune(t.Context(), parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}").GVK(), "", "a", "u")
	require.ErrorContains(t, err, "namespace is missing")
}

// requireGone waits until an object no longer exists.
func requireGone(t *testing.T, m *manifest.Manifest) {
	t.Helper()
	require.Eventually(t, func() bool {
		err := otherClient(t).Get(t.Context(), client.ObjectKeyFromObject(m.Object), m.Object.DeepCopy())
		return apierrors.IsNotFound(err)
	}, eventually, tick)
}
