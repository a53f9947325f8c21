package manifests_test

import (
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/test/env"
)

const (
	allowDeletion        = "cvo.cluster-version.github.io/allow-deletion"
	clusterVersionCRD    = "clusterversions.config.openshift.io"
	releaseStatusCRD     = "releasestatuses.cvo.cluster-version.github.io"
	workloadCRD          = "widgets.example.com"
	guardLabel           = "deletion-guard-test"
	guardCompileDeadline = time.Minute
)

// guarded is a control plane with the deletion guard, the ClusterVersion "version", and a CRD of a workload.
type guarded struct {
	client.Client
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	e := env.New(t, env.Options{})
	c, err := client.New(e.Config("deletion-guard-test"), client.Options{})
	require.NoError(t, err)
	g := &guarded{c}
	for _, object := range objects(t, false) {
		switch object.GetKind() {
		case "CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			require.NoError(t, g.Create(t.Context(), object))
		}
	}
	widgets := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`), &widgets.Object))
	require.NoError(t, g.Create(t.Context(), widgets))
	version := clusterVersion()
	require.NoError(t, unstructured.SetNestedField(version.Object, "b9a1c7c8-0000-4000-8000-000000000000", "spec", "clusterID"))
	require.Eventually(t, func() bool {
		err := g.Create(t.Context(), version.DeepCopy())
		return err == nil || apierrors.IsAlreadyExists(err)
	}, guardCompileDeadline, 50*time.Millisecond, "waiting for the kind to be served")
	// The API server compiles policies in the background and accepts deletions until then. Repeat dry runs until it rejects one.
	for _, object := range guardedObjects() {
		require.Eventually(t, func() bool { return isGuarded(g.Delete(t.Context(), object, client.DryRunAll)) },
			guardCompileDeadline, 50*time.Millisecond, "waiting for the guard to take effect")
	}
	return g
}

// guardedObjects returns the objects that the guard protects.
func guardedObjects() []*unstructured.Unstructured {
	return []*unstructured.Unstructured{clusterVersion(), definition(clusterVersionCRD), definition(releaseStatusCRD)}
}

func clusterVersion() *unstructured.Unstructured {
	return objectNamed(configv1.GroupVersion.WithKind("ClusterVersion"), "version")
}

func definition(name string) *unstructured.Unstructured {
	return objectNamed(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, name)
}

func objectNamed(gvk schema.GroupVersionKind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	object.SetName(name)
	return object
}

// isGuarded reports whether the guard rejected a deletion.
func isGuarded(err error) bool {
	return apierrors.IsForbidden(err) && (strings.Contains(err.Error(), "would delete the whole platform") ||
		strings.Contains(err.Error(), "would delete the record of requested digests"))
}

// merge patches the metadata of an object.
func (g *guarded) merge(t *testing.T, object client.Object, metadata string) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":`+metadata+`}`))
	require.NoError(t, g.Patch(t.Context(), object, patch))
}

// TestDeletionGuardRejectsAttacks tries to delete the root of the platform with each request that the API offers. No attack is a dry run,
// so permitted deletions really happen.
//
//threat:clusterversion-deleted-platform
//threat:delete-collection-deletes
//threat:releasestatus-definition-deleted
func TestDeletionGuardRejectsAttacks(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	t.Run("allows the deletion of a workload's CRD", func(t *testing.T) {
		require.NoError(t, g.Delete(t.Context(), definition(workloadCRD), client.DryRunAll))
		require.NoError(t, g.DeleteAllOf(t.Context(), definition(""), client.MatchingFields{"metadata.name": workloadCRD}))
	})

	for _, object := range guardedObjects() {
		all := func(opts ...client.DeleteAllOfOption) func(t *testing.T) error {
			return func(t *testing.T) error { return g.DeleteAllOf(t.Context(), object.DeepCopy(), opts...) }
		}
		one := func(opts ...client.DeleteOption) func(t *testing.T) error {
			return func(t *testing.T) error { return g.Delete(t.Context(), object.DeepCopy(), opts...) }
		}
		after := func(request func(*testing.T) error, metadata ...string) func(t *testing.T) error {
			return func(t *testing.T) error {
				for _, m := range metadata {
					g.merge(t, object.DeepCopy(), m)
				}
				return request(t)
			}
		}
		annotated := func(value string) string { return `{"annotations":{"` + allowDeletion + `":` + value + `}}` }
		byName := client.MatchingFields{"metadata.name": object.GetName()}
		for _, attack := range []struct {
			name   string
			delete func(t *testing.T) error
		}{
			{"rejects a deletion by name", one()},
			{"rejects a deletion by name that orphans dependents", one(client.PropagationPolicy("Orphan"))},
			{"rejects a foreground deletion by name", one(client.PropagationPolicy("Foreground"))},
			{"rejects a collection deletion by name", all(byName)},
			{"rejects a collection deletion by label", after(all(client.MatchingLabels{guardLabel: "x"}), `{"labels":{"`+guardLabel+`":"x"}}`)},
			{"rejects a deletion after another value of the annotation", after(one(), annotated(`"True"`))},
			{"rejects a collection deletion after an empty annotation", after(all(byName), annotated(`""`))},
			{"rejects a deletion after the annotation was removed again", after(one(), annotated(`"true"`), annotated(`null`))},
			{"rejects a collection deletion after the annotation was removed again", after(all(byName), annotated(`"true"`), annotated(`null`))},
			{"rejects a deletion of the whole collection", all()},
		} {
			t.Run(object.GetKind()+" "+object.GetName()+" "+attack.name, func(t *testing.T) {
				err := attack.delete(t)
				assert.True(t, isGuarded(err), "%v", err)
				left := object.DeepCopy()
				require.NoError(t, g.Get(t.Context(), client.ObjectKeyFromObject(left), left))
				assert.Nil(t, left.GetDeletionTimestamp())
			})
		}
	}

	t.Run("allows a deletion with the annotation", func(t *testing.T) {
		for _, object := range guardedObjects() {
			g.merge(t, object.DeepCopy(), `{"annotations":{"`+allowDeletion+`":"true"}}`)
			require.NoError(t, g.DeleteAllOf(t.Context(), object, client.MatchingFields{"metadata.name": object.GetName()}))
		}
	})
}
