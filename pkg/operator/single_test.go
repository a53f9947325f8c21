package operator

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// TestSingleWatchesOneObject has somebody watch a Secret who may see no other.
func TestSingleWatchesOneObject(t *testing.T) {
	namespace := newServingNamespace(t)
	admin := kubernetes.NewForConfigOrDie(controlPlane.Config("test"))
	_, err := admin.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"one"}, Verbs: []string{"list", "watch"},
	}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "one"}, Subjects: []rbacv1.Subject{person("watching-one")},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "one"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	secrets := admin.CoreV1().Secrets(namespace)
	for _, name := range []string{"one", "other"} {
		_, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}

	client := kubernetes.NewForConfigOrDie(userNamed(t, "watching-one")).CoreV1().Secrets(namespace)
	require.Eventually(t, func() bool { // the API server takes its time to know of a role
		list, err := client.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=one"})
		return err == nil && len(list.Items) == 1
	}, time.Minute, 10*time.Millisecond)
	_, err = client.List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err))
	seen, changes, synced := make(chan *corev1.Secret, 100), make(chan struct{}, 100), make(chan struct{})
	all := newSingle(client, &corev1.Secret{}, "one", each(func(s *corev1.Secret) { seen <- s }))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watchAll(ctx, func() { close(synced) }, all, newSingle(client, &corev1.Secret{}, "one", later(func() { changes <- struct{}{} })))
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	<-synced
	require.Len(t, seen, 1, "what is there is seen before the watch has synced")
	assert.Equal(t, "one", (<-seen).Name)
	assert.Empty(t, changes, "and is no change")
	object, found := all.object()
	require.True(t, found)
	assert.Equal(t, "one", object.Name)

	for _, name := range []string{"other", "one"} {
		_, err := secrets.Patch(t.Context(), name, "application/merge-patch+json", []byte(`{"data":{"key":"eA=="}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	now := <-seen
	assert.Equal(t, "one", now.Name)
	assert.Equal(t, "x", string(now.Data["key"]))
	<-changes
	require.NoError(t, secrets.Delete(t.Context(), "one", metav1.DeleteOptions{}))
	assert.Nil(t, <-seen)
	_, found = all.object()
	assert.False(t, found)
	_, err = secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.NotNil(t, <-seen)
	<-changes
}

// TestWatchEndsWithItsKind: watches of a definition and of its objects do not wait for each other, so that an object has
// gone may not have been told yet when its kind goes.
func TestWatchEndsWithItsKind(t *testing.T) {
	name := newServingNamespace(t)
	seen := make(chan *unstructured.Unstructured, 100)
	w := &whileServed{
		client: dynamic.NewForConfigOrDie(controlPlane.Config("test")), name: name,
		resource: corev1.SchemeGroupVersion.WithResource("namespaces"), // any kind will do
		seen:     func(u *unstructured.Unstructured) { seen <- u },
	}
	for range 2 {
		w.serve(t.Context(), true)
		there := <-seen
		require.NotNil(t, there)
		assert.Equal(t, name, there.GetName())
		for range 2 {
			w.serve(t.Context(), false)
			assert.True(t, w.told())
		}
		require.Len(t, seen, 1, "whoever looks at it knows at once")
		assert.Nil(t, <-seen)

		ended, cancel := context.WithCancel(t.Context())
		late := w.tell(ended)
		cancel()
		late(there)
		assert.Empty(t, seen, "what an ended watch has still to say is not true any more")
	}
}
