package uninstall_test

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/install/uninstall"
	"github.com/cluster-version/cvo/test/installed"
)

// ofPlatform returns the object with the operator's owner reference to the ClusterVersion.
func ofPlatform(cv *configv1.ClusterVersion, object client.Object) client.Object {
	object.SetLabels(map[string]string{api.OwnedByLabel: cv.Name})
	object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: configv1.GroupVersion.String(), Kind: "ClusterVersion", Name: cv.Name, UID: cv.UID, Controller: new(true),
	}})
	return object
}

// TestUninstallRecognizesKindsThatEndWithList uses a kind whose name ends with "List" and whose list kind has an unrelated name.
func TestUninstallRecognizesKindsThatEndWithList(t *testing.T) {
	t.Parallel()
	cfg, c, cv := installed.Cluster(t)
	installed.CollectGarbage(t, c)
	crd := widgets()
	crd.SetName("allowlists.example.com")
	names := map[string]any{"plural": "allowlists", "singular": "allowlist", "kind": "AllowList", "listKind": "AllowListItems"}
	require.NoError(t, unstructured.SetNestedMap(crd.Object, names, "spec", "names"))
	require.NoError(t, c.Create(t.Context(), ofPlatform(cv, crd)))
	allowList := func(name string) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "AllowList"}}
		object.SetNamespace("default")
		object.SetName(name)
		return object
	}
	require.Eventually(t, func() bool { // the API server needs a moment to serve a new kind
		return c.Create(t.Context(), ofPlatform(cv, allowList("of-the-platform"))) == nil
	}, installed.StepTimeout, installed.StepTick)
	require.NoError(t, c.Create(t.Context(), allowList("of-a-user")))

	results, err := run(t, cfg, uninstall.Removal{Platform: true})
	require.NoError(t, err)
	assert.False(t, installed.Exists(t, c, allowList("of-the-platform")))
	assert.True(t, installed.Exists(t, c, allowList("of-a-user")))
	assert.Contains(t, results, target.Result{
		APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Name: crd.GetName(), Outcome: target.Kept,
		Message: "AllowList default/of-a-user is not part of the release and would be deleted with the CRD; --delete-data deletes both",
	})
}
