package inventory

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	k8sfake "k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// fakeInventory returns an inventory of n ConfigMaps.
func fakeInventory(n int) Inventory {
	inv := Inventory{Release: "1.0.0", Records: map[manifest.ID]Record{}}
	for i := range n {
		id := manifest.ID{Kind: "ConfigMap", Namespace: "x", Name: fmt.Sprintf("object-%d", i)}
		inv.Records[id] = Record{ID: id, Version: "v1", Release: "1.0.0"}
	}
	return inv
}

// TestStoreKeepsAShardThatAPolicyProtects has a ValidatingAdmissionPolicy without a reason. It rejects a write with 422 Invalid, as the API
// server rejects a change of an immutable ConfigMap. The shard must stay.
func TestStoreKeepsAShardThatAPolicyProtects(t *testing.T) {
	clients := k8sfake.NewClientset()
	s := NewStore(clients.CoreV1(), "x", "version")
	require.NoError(t, s.Save(t.Context(), fakeInventory(5)))
	clients.PrependReactor("patch", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: 422, Reason: metav1.StatusReasonInvalid,
			Message: `configmaps "version-inventory-0" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: false`,
		}}
	})
	require.Error(t, s.Save(t.Context(), fakeInventory(6)))
	list, err := clients.CoreV1().ConfigMaps("x").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1, "the stored inventory must not be deleted")
}

// hooked calls before before each apply of a ConfigMap.
type hooked struct {
	corev1client.ConfigMapsGetter
	before func(name string)
}

func (h hooked) ConfigMaps(namespace string) corev1client.ConfigMapInterface {
	return hookedIn{h.ConfigMapsGetter.ConfigMaps(namespace), h.before}
}

type hookedIn struct {
	corev1client.ConfigMapInterface
	before func(name string)
}

func (h hookedIn) Apply(ctx context.Context, cm *applycorev1.ConfigMapApplyConfiguration, o metav1.ApplyOptions) (*corev1.ConfigMap, error) {
	h.before(*cm.Name)
	return h.ConfigMapInterface.Apply(ctx, cm, o)
}

// TestLoadDuringSave loads with the same Store while a Save sends the first shard of a new layout, as a preflight does.
func TestLoadDuringSave(t *testing.T) {
	clients := k8sfake.NewClientset()
	before := func(string) {}
	s := NewStore(hooked{clients.CoreV1(), func(name string) { before(name) }}, "x", "version")
	s.limit = 16 << 10
	require.NoError(t, s.Save(t.Context(), fakeInventory(20)))
	done := make(chan struct{})
	before = func(name string) {
		before = func(string) {}
		go func() {
			defer close(done)
			_, err := s.Load(t.Context())
			assert.NoError(t, err, name)
		}()
		select {
		case <-done:
		case <-time.After(time.Second): // it waits for the Save
		}
	}
	want := fakeInventory(200)
	require.NoError(t, s.Save(t.Context(), want))
	<-done
	loaded, err := NewStore(clients.CoreV1(), "x", "version").Load(t.Context())
	require.NoError(t, err)
	assert.Len(t, loaded.Records, len(want.Records))
}
