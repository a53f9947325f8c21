package install_test

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/install"
)

// ofPlatform is an object that the operator has marked as the ClusterVersion's.
func ofPlatform(cv *configv1.ClusterVersion, object client.Object) client.Object {
	object.SetLabels(map[string]string{api.OwnedByLabel: cv.Name})
	object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: configv1.GroupVersion.String(), Kind: "ClusterVersion", Name: cv.Name, UID: cv.UID, Controller: new(true),
	}})
	return object
}

// TestUninstallKnowsKindsOfLists has a kind whose name ends like that of a list, and whose list is called otherwise.
func TestUninstallKnowsKindsOfLists(t *testing.T) {
	t.Parallel()
	cfg, c, cv := installed(t)
	collectGarbage(t, c)
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
	require.Eventually(t, func() bool { // a kind that was defined a moment ago is served soon
		return c.Create(t.Context(), ofPlatform(cv, allowList("of-the-platform"))) == nil
	}, stepTimeout, stepTick)
	require.NoError(t, c.Create(t.Context(), allowList("of-a-user")))

	results, err := uninstall(t, cfg, install.Removal{Platform: true})
	require.NoError(t, err)
	assert.False(t, there(t, c, allowList("of-the-platform")))
	assert.True(t, there(t, c, allowList("of-a-user")))
	assert.Contains(t, results, install.Result{
		APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition", Name: crd.GetName(), Outcome: install.Kept,
		Message: "AllowList default/of-a-user is none of the release's and would go with it; --delete-data deletes it",
	})
}
