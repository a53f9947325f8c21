package sources

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/watch"
)

// TestChangedInputsAreReported edits the trust policy and ClusterImagePolicies, whose kind comes later.
//
//threat:clusterimagepolicy-edited-while
func TestChangedInputsAreReported(t *testing.T) {
	config := controlPlane.For(t).Config("test")
	admin, core := dynamic.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config).CoreV1()
	for _, namespace := range []string{api.ConfigNamespace, api.ConfigManagedNamespace} {
		_, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		require.True(t, err == nil || apierrors.IsAlreadyExists(err), "%v", err)
	}
	const pace = 50 * time.Millisecond
	changes := make(chan struct{}, 100)
	settled := func() { // no report is pending
		t.Helper()
		for {
			select {
			case <-changes:
			case <-time.After(pace + 250*time.Millisecond):
				return
			}
		}
	}
	reported := func(what string, edit func() error) {
		t.Helper()
		settled()
		require.NoError(t, edit())
		select {
		case <-changes:
		case <-time.After(time.Minute):
			require.FailNow(t, "not reported: "+what)
		}
	}
	trust := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: api.ConfigNamespace, Name: api.TrustConfigMap}}
	_, err := core.ConfigMaps(api.ConfigNamespace).Create(t.Context(), trust, metav1.CreateOptions{})
	require.NoError(t, err)
	inputs := retrievalInputs(clock.RealClock{}, pace, core, admin, metadata.NewForConfigOrDie(config), func() { changes <- struct{}{} })
	go func() { _ = inputs.Start(t.Context()) }()
	time.Sleep(pace + 250*time.Millisecond)
	require.Empty(t, changes, "the initial state is not a change")
	edits := 0
	require.Eventually(t, func() bool { // on a busy machine, the initial state comes later
		edits++
		patch := fmt.Appendf(nil, `{"data":{"edit":"%d"}}`, edits)
		_, err := core.ConfigMaps(api.ConfigNamespace).Patch(t.Context(), api.TrustConfigMap, types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(t, err)
		return len(changes) > 0
	}, time.Minute, pace)

	reported("the deletion of the trust policy: the keys of the release apply again", func() error {
		return core.ConfigMaps(api.ConfigNamespace).Delete(t.Context(), api.TrustConfigMap, metav1.DeleteOptions{})
	})

	crds := admin.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	crd := readCRD(t, "0000_10_config-operator_01_clusterimagepolicies.crd.yaml")
	_, err = crds.Create(t.Context(), crd, metav1.CreateOptions{})
	require.NoError(t, err)
	policies := admin.Resource(configv1.GroupVersion.WithResource("clusterimagepolicies"))
	policy := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": configv1.GroupVersion.String(), "kind": "ClusterImagePolicy", "metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"scopes": []any{"example.com/" + name},
				"policy": map[string]any{"rootOfTrust": map[string]any{
					"policyType": "PublicKey",
					"publicKey":  map[string]any{"keyData": "LS0tLS1CRUdJTiBQVUJMSUMgS0VZLS0tLS0KeAotLS0tLUVORCBQVUJMSUMgS0VZLS0tLS0="},
				}},
			},
		}}
	}
	require.Eventually(t, func() bool {
		_, err := policies.Create(t.Context(), policy("first"), metav1.CreateOptions{})
		return err == nil
	}, time.Minute, 50*time.Millisecond)
	require.Eventually(t, func() bool { // the watch begins once the kind is served
		edits++
		patch := fmt.Appendf(nil, `{"spec":{"scopes":["example.com/edit-%d"]}}`, edits)
		_, err := policies.Patch(t.Context(), "first", types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(t, err)
		return len(changes) > 0
	}, time.Minute, pace)
	settled()

	reported("a new policy", func() error {
		_, err := policies.Create(t.Context(), policy("second"), metav1.CreateOptions{})
		return err
	})
	reported("an edited policy", func() error {
		_, err := policies.Patch(t.Context(), "first", types.MergePatchType, []byte(`{"spec":{"scopes":["example.com/other"]}}`), metav1.PatchOptions{})
		return err
	})
	reported("a deleted policy", func() error { return policies.Delete(t.Context(), "second", metav1.DeleteOptions{}) })
	reported("the end of the kind, with its policies", func() error { return crds.Delete(t.Context(), crd.GetName(), metav1.DeleteOptions{}) })
}

// TestChangesAreReportedOnceASecond edits an input a hundred times a second.
//
//threat:clusterimagepolicy-edited-while
func TestChangesAreReportedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := watch.NewChanges()
		var at []time.Duration
		begin := time.Now()
		go reportChanges(t.Context(), clock.RealClock{}, retrievalPace, changes, func() { at = append(at, time.Since(begin)) })
		for range 250 {
			changes.Signal()
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}, at, "the first at once, and the last as well")
	})
}
