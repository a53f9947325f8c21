package integration_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
)

// TestInstallAdoptsControlledObjects installs a release with an object that another object controls. An object can have only one
// controller, so the install must complete without that role.
func TestInstallAdoptsControlledObjects(t *testing.T) {
	t.Parallel()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	require.NoError(t, corev1.AddToScheme(l.client.Scheme()))
	l.own = l.special("4.2.0", fstest.MapFS{"release-manifests/0000_30_lab_01.yaml": {Data: []byte(`
apiVersion: v1
kind: ConfigMap
metadata: {namespace: lab, name: foreign, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
data: {mode: release}
`)}})
	l.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "lab"}})
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "shop"}}
	l.put(owner)
	foreign := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "lab", Name: "foreign",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: new(true)}},
		},
		Data: map[string]string{"mode": "shop", "more": "shop"},
	}
	l.put(foreign)
	l.address = freeAddress(t)
	l.install("4.2.0")

	isApplied := func() bool {
		require.NoError(t, l.client.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign))
		return foreign.Data["mode"] == "release" && foreign.Data["more"] == "shop"
	}
	assertOwners := func() {
		t.Helper()
		require.Len(t, foreign.OwnerReferences, 2)
		assert.Equal(t, owner.UID, metav1.GetControllerOf(foreign).UID)
		assert.True(t, slices.ContainsFunc(foreign.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == l.get().UID }))
	}
	assert.True(t, isApplied())
	assertOwners()
	require.Eventually(t, func() bool { return slices.Contains(l.story(), api.EventOtherController) }, time.Minute, 50*time.Millisecond)

	l.awaitReport("\nControlled by another object\n  ConfigMap lab/foreign  ConfigMap shop\n")

	patch := client.MergeFrom(foreign.DeepCopy())
	foreign.Data["mode"] = "shop"
	require.NoError(t, l.client.Patch(t.Context(), foreign, patch))
	require.Eventually(t, isApplied, time.Minute, 20*time.Millisecond, "drift is repaired")
	assertOwners()

	list := &corev1.EventList{}
	require.NoError(t, l.client.List(t.Context(), list, client.InNamespace(api.OperatorNamespace)))
	list.Items = slices.DeleteFunc(list.Items, func(e corev1.Event) bool { return e.Reason != api.EventOtherController })
	require.Len(t, list.Items, 1, "the repair of drift repeats no event")
	assert.True(t, strings.HasPrefix(list.Items[0].Message, "ConfigMap shop controls ConfigMap lab/foreign of the release"), list.Items[0].Message)
}
