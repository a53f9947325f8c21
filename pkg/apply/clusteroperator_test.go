package apply_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

func clusterOperator(t *testing.T, name string) *manifest.Manifest {
	t.Helper()
	return parse(t, `apiVersion: config.openshift.io/v1
kind: ClusterOperator
metadata: {name: `+name+`, annotations: {note: x}}
status:
  versions: [{name: operator, version: "2"}]
  relatedObjects:
  - {group: "", resource: namespaces, name: a}
  - {group: example.com, resource: things}
  - {resource: pods, name: null, namespace: b}
  - text
`)
}

func serveClusterOperators(t *testing.T) {
	t.Helper()
	serveCRD(t, fromAPI(t, "config/v1/zz_generated.crd-manifests/0000_00_cluster-version-operator_01_clusteroperators.crd.yaml"))
}

// completeRelated returns the related objects above with all required fields.
var completeRelated = []any{
	map[string]any{"group": "", "resource": "namespaces", "name": "a"},
	map[string]any{"group": "example.com", "resource": "things", "name": ""},
	map[string]any{"group": "", "resource": "pods", "name": "", "namespace": "b"},
}

func related(obj *unstructured.Unstructured) []any {
	list, _, _ := unstructured.NestedSlice(obj.Object, "status", "relatedObjects")
	return list
}

func TestClusterOperatorIsCreatedWithRelatedObjects(t *testing.T) {
	serveClusterOperators(t)
	for _, tt := range []struct {
		name   string
		create func(*apply.Applier, *manifest.Manifest) (apply.Change, error)
		again  apply.Action
	}{
		{"applied", func(a *apply.Applier, m *manifest.Manifest) (apply.Change, error) {
			return a.Apply(t.Context(), m, release.Updating)
		}, apply.Applied},
		{"precreated", func(a *apply.Applier, m *manifest.Manifest) (apply.Change, error) {
			return a.Precreate(t.Context(), m)
		}, apply.Kept},
	} {
		t.Run("it is "+tt.name, func(t *testing.T) {
			a, record := connect(t, owner)
			m := clusterOperator(t, tt.name)
			before := m.Object.DeepCopy()
			change, err := tt.create(a, m)
			require.NoError(t, err)
			assert.Equal(t, apply.Created, change.Action)
			assert.Len(t, record.drain(), 2)
			obj := live(t, m)
			assert.Equal(t, completeRelated, related(obj))
			assert.Equal(t, map[string]any{}, obj.Object["spec"])
			assert.NotContains(t, obj.Object["status"], "versions", "only the component's operator reports versions")
			assert.Equal(t, owner.Name, obj.GetLabels()[api.OwnedByLabel])
			assert.Equal(t, before, m.Object, "the manifest must not change")

			merge(t, m, `{"metadata":{"annotations":{"note":"theirs"}}}`)
			change, err = tt.create(a, m)
			require.NoError(t, err)
			assert.Equal(t, tt.again, change.Action)
			assert.Len(t, record.drain(), 1, "the status is not written again")
		})
	}
}

func TestPrecreatedObjectIsAppliedLater(t *testing.T) {
	serveClusterOperators(t)
	a, _ := connect(t, owner)
	m := clusterOperator(t, "both")
	created, err := a.Precreate(t.Context(), m)
	require.NoError(t, err)
	applied := must(t, a, m)
	assert.Equal(t, apply.Applied, applied.Action)
	assert.Equal(t, created.UID, applied.UID)
	assert.Equal(t, applied.ResourceVersion, must(t, a, m).ResourceVersion)
	assert.Equal(t, completeRelated, related(live(t, m)))
}

func TestRelatedObjectsOfAFasterOperatorAreKept(t *testing.T) {
	serveClusterOperators(t)
	a, record := connect(t, owner)
	m := clusterOperator(t, "fast")
	record.before = func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/status") {
			patch := []byte(`{"status":{"relatedObjects":[{"group":"","resource":"pods","name":"theirs"}]}}`)
			assert.NoError(t, otherClient(t).Status().Patch(t.Context(), live(t, m), client.RawPatch(types.MergePatchType, patch)))
		}
	}
	change, err := a.Precreate(t.Context(), m)
	require.NoError(t, err)
	assert.Equal(t, apply.Created, change.Action)
	assert.Equal(t, []any{map[string]any{"group": "", "resource": "pods", "name": "theirs"}}, related(live(t, m)))
}

// TestMissingRelatedObjectsAreWrittenLater makes the patch after the create fail. The next apply repeats it.
func TestMissingRelatedObjectsAreWrittenLater(t *testing.T) {
	serveClusterOperators(t)
	for _, tt := range []struct {
		name   string
		create func(*apply.Applier, *manifest.Manifest) error
	}{
		{"lost-applied", func(a *apply.Applier, m *manifest.Manifest) error {
			_, err := a.Apply(t.Context(), m, release.Updating)
			return err
		}},
		{"lost-precreated", func(a *apply.Applier, m *manifest.Manifest) error { _, err := a.Precreate(t.Context(), m); return err }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, record := connect(t, owner)
			m := clusterOperator(t, tt.name)
			next := record.next
			record.next = roundTripper(func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, "/status") {
					return nil, syscall.ECONNRESET
				}
				return next.RoundTrip(r)
			})
			require.Error(t, tt.create(a, m))
			assert.Empty(t, related(live(t, m)))
			record.next = next
			record.drain()
			must(t, a, m)
			assert.Equal(t, completeRelated, related(live(t, m)))
			assert.Len(t, record.drain(), 2)
			must(t, a, m)
			assert.Len(t, record.drain(), 1)
		})
	}
}

// TestRelatedObjectsFollowACanceledApply cancels an apply whose response arrives nevertheless, as at the end of a process.
func TestRelatedObjectsFollowACanceledApply(t *testing.T) {
	serveClusterOperators(t)
	a, record := connect(t, owner)
	m := clusterOperator(t, "canceled")
	ctx, cancel := context.WithCancel(t.Context())
	next := record.next
	record.next = roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err != nil || strings.HasSuffix(r.URL.Path, "/status") {
			return resp, err
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body = io.NopCloser(bytes.NewReader(body))
		cancel()
		return resp, err
	})
	change, err := a.Apply(ctx, m, release.Initializing)
	require.NoError(t, err)
	assert.Equal(t, apply.Created, change.Action)
	assert.Equal(t, completeRelated, related(live(t, m)))
}

// TestRelatedObjectsDoNotFollowForever cancels the write of the related objects, which gets no response.
func TestRelatedObjectsDoNotFollowForever(t *testing.T) {
	serveClusterOperators(t)
	a, record := connect(t, owner)
	ctx, cancel := context.WithCancel(t.Context())
	next := record.next
	record.next = roundTripper(func(r *http.Request) (*http.Response, error) {
		if !strings.HasSuffix(r.URL.Path, "/status") {
			return next.RoundTrip(r)
		}
		cancel()
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	_, err := a.Apply(ctx, clusterOperator(t, "hanging"), release.Initializing)
	require.ErrorIs(t, err, context.Canceled)
}

// TestStatusOfAnUnknownWriterIsKept applies a ClusterOperator with a status whose writer is unknown.
func TestStatusOfAnUnknownWriterIsKept(t *testing.T) {
	serveClusterOperators(t)
	a, record := connect(t, owner)
	m := clusterOperator(t, "stripped")
	require.NoError(t, otherClient(t).Create(t.Context(), func() *unstructured.Unstructured {
		obj := m.Object.DeepCopy()
		obj.Object["spec"] = map[string]any{}
		delete(obj.Object, "status")
		return obj
	}()))
	patch := []byte(`{"status":{"relatedObjects":[{"group":"","resource":"pods","name":"theirs"}]}}`)
	require.NoError(t, otherClient(t).Status().Patch(t.Context(), live(t, m), client.RawPatch(types.MergePatchType, patch)))
	merge(t, m, `{"metadata":{"managedFields":[{}]}}`)
	must(t, a, m)
	assert.Len(t, record.drain(), 1)
	assert.Len(t, related(live(t, m)), 1)
}

func TestClusterOperatorWithoutRelatedObjectsNeedsOneRequest(t *testing.T) {
	serveClusterOperators(t)
	a, record := connect(t, owner)
	m := parse(t, "apiVersion: config.openshift.io/v1\nkind: ClusterOperator\nmetadata: {name: bare}")
	assert.Equal(t, apply.Created, must(t, a, m).Action)
	assert.Len(t, record.drain(), 1)
}

func TestRejectedRelatedObjectsAreReported(t *testing.T) {
	serveClusterOperators(t)
	for _, create := range []func(*apply.Applier, *manifest.Manifest) error{
		func(a *apply.Applier, m *manifest.Manifest) error {
			_, err := a.Apply(t.Context(), m, release.Updating)
			return err
		},
		func(a *apply.Applier, m *manifest.Manifest) error { _, err := a.Precreate(t.Context(), m); return err },
	} {
		a, _ := connect(t, owner)
		m := parse(t, "apiVersion: config.openshift.io/v1\nkind: ClusterOperator\nmetadata: {name: refused}\n"+
			"status: {relatedObjects: [{name: 5}]}")
		err := create(a, m)
		var failed *failure.Error
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, api.ReasonResourceInvalid, failed.Reason)
		require.ErrorContains(t, err, "setting related objects")
		require.NoError(t, otherClient(t).Delete(t.Context(), live(t, m)))
	}
}

func TestRealClusterOperatorsAreApplied(t *testing.T) {
	serveClusterOperators(t)
	a, _ := connect(t, owner)
	for _, m := range realManifests(t, "config.openshift.io", "ClusterOperator") {
		change, err := a.Precreate(t.Context(), m)
		require.NoError(t, err)
		require.Contains(t, []apply.Action{apply.Created, apply.Kept}, change.Action)
		require.Equal(t, apply.Applied, must(t, a, m).Action, m)
		want, _, _ := unstructured.NestedSlice(m.Object.Object, "status", "relatedObjects")
		assert.Len(t, related(live(t, m)), len(want), "%s", m)
	}
}

// TestPrecreatedClusterOperatorChangesItsOwner applies a precreated ClusterOperator for a ClusterVersion that was deleted and recreated.
// The creation left a managedFields entry that owns the reference to the earlier ClusterVersion.
func TestPrecreatedClusterOperatorChangesItsOwner(t *testing.T) {
	serveClusterOperators(t)
	m := clusterOperator(t, "reowned")
	before, _ := connect(t, owner)
	_, err := before.Precreate(t.Context(), m)
	require.NoError(t, err)
	must(t, before, m)

	next := body.Owner{Name: owner.Name, UID: "5b5c5d5e-0000-4000-8000-000000000002"}
	after, record := connect(t, next)
	must(t, after, m)
	references := live(t, m).GetOwnerReferences()
	require.Len(t, references, 1)
	assert.Equal(t, next.UID, references[0].UID)

	record.drain()
	must(t, after, m)
	assert.Len(t, record.drain(), 1, "the next apply needs one request")
}
