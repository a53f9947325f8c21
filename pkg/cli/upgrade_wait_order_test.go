package cli

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

func keptObjects() cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, cache.Indexers{})
}

// listedNow is an informer whose first list arrives while it is asked whether it has.
type listedNow struct {
	cache.SharedIndexInformer
	object *unstructured.Unstructured
}

func (i listedNow) HasSynced() bool { return i.GetStore().Add(i.object) == nil }

func TestUpgradeWaitTakesNoFirstListForADeletion(t *testing.T) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(configv1.GroupVersion.WithKind("ClusterVersion"))
	object.SetName("version")
	cv, err := (&updateFollower{name: "version"}).version(listedNow{keptObjects(), object})
	require.NoError(t, err)
	require.NotNil(t, cv)
}
