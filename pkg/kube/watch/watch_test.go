package watch

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/cluster-version/cvo/test/env"
)

var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

// newNamespace creates a namespace for the test.
func newNamespace(t *testing.T) string {
	t.Helper()
	name := strings.ToLower(t.Name())
	_, err := kubernetes.NewForConfigOrDie(controlPlane.For(t).Config("test")).CoreV1().Namespaces().
		Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return name
}

// TestSingleWatchesOneObject watches a Secret as a user without access to other Secrets.
func TestSingleWatchesOneObject(t *testing.T) {
	namespace := newNamespace(t)
	admin := kubernetes.NewForConfigOrDie(controlPlane.For(t).Config("test"))
	_, err := admin.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"one"}, Verbs: []string{"list", "watch"},
	}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "one"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "watching-one"}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "one"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	secrets := admin.CoreV1().Secrets(namespace)
	for _, name := range []string{"one", "other"} {
		_, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}

	user, err := controlPlane.For(t).User("watching-one")
	require.NoError(t, err)
	client := kubernetes.NewForConfigOrDie(user).CoreV1().Secrets(namespace)
	require.Eventually(t, func() bool { // a role needs a moment to take effect
		list, err := client.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=one"})
		return err == nil && len(list.Items) == 1
	}, time.Minute, 10*time.Millisecond)
	_, err = client.List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err))
	seen, changes, synced := make(chan *corev1.Secret, 100), make(chan struct{}, 100), make(chan struct{})
	all := NewSingle(client, &corev1.Secret{}, "one", OnState(func(s *corev1.Secret) { seen <- s }))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Run(ctx, func() { close(synced) }, all, NewSingle(client, &corev1.Secret{}, "one", OnChange(func() { changes <- struct{}{} })))
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	<-synced
	require.Len(t, seen, 1, "the existing object is reported before the watch has synced")
	assert.Equal(t, "one", (<-seen).Name)
	assert.Empty(t, changes, "the initial state is not a change")
	object, found := all.Object()
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
	_, found = all.Object()
	assert.False(t, found)
	<-changes
	_, err = secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.NotNil(t, <-seen)
	<-changes
}

// TestKindReportsEdits checks that a watch of a kind reports edits, but neither its initial state nor changes of status.
func TestKindReportsEdits(t *testing.T) {
	namespace := newNamespace(t)
	admin := kubernetes.NewForConfigOrDie(controlPlane.For(t).Config("test")).AppsV1().Deployments(namespace)
	labels := map[string]string{"app": "x"}
	deployment := func(name string) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "example.com/x"}}},
			},
		}}
	}
	create := func(name string) {
		_, err := admin.Create(t.Context(), deployment(name), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	create("old")
	changes, synced := make(chan struct{}, 100), make(chan struct{})
	client := metadata.NewForConfigOrDie(controlPlane.For(t).Config("test")).
		Resource(appsv1.SchemeGroupVersion.WithResource("deployments")).Namespace(namespace)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Run(ctx, func() { close(synced) }, newKind(client, func() { changes <- struct{}{} }))
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	<-synced
	assert.Empty(t, changes, "the initial state is not a change")
	create("new")
	<-changes
	// The order of these writes is that of their events: the first that is reported is the edit.
	_, err := admin.Patch(t.Context(), "old", types.MergePatchType, []byte(`{"status":{"replicas":1}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	_, err = admin.Patch(t.Context(), "old", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, admin.Delete(t.Context(), "new", metav1.DeleteOptions{}))
	<-changes
	_, err = admin.Patch(t.Context(), "old", types.MergePatchType, []byte(`{"spec":{"paused":true}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	<-changes
	assert.Empty(t, changes, "a change of the status or of a label was reported")
}

// TestKindKeepsOnlyGenerations gives a watch of a kind a large object.
//
//threat:clusterimagepolicy-edited-while
func TestKindKeepsOnlyGenerations(t *testing.T) {
	kept, err := generationOnly(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "large", UID: "u", Generation: 3, Annotations: map[string]string{"a": strings.Repeat("x", 1<<20)},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}, Finalizers: []string{"f"},
	}})
	require.NoError(t, err)
	assert.Equal(t, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "large", UID: "u", Generation: 3}}, kept)
}

// TestObjectsCountAsDeletedWithTheirKind checks that an object counts as deleted when its kind disappears. The watches of a CRD and of its
// objects are independent, so the object's deletion may not have been reported by then.
func TestObjectsCountAsDeletedWithTheirKind(t *testing.T) {
	name := newNamespace(t)
	seen := make(chan *unstructured.Unstructured, 100)
	namespaces := corev1.SchemeGroupVersion.WithResource("namespaces") // any kind works
	w := NewServed(dynamic.NewForConfigOrDie(controlPlane.For(t).Config("test")), namespaces, name, func(u *unstructured.Unstructured) { seen <- u })
	for range 2 {
		w.SetServed(t.Context(), true)
		there := <-seen
		require.NotNil(t, there)
		assert.Equal(t, name, there.GetName())
		for range 2 {
			w.SetServed(t.Context(), false)
			assert.True(t, w.WaitForSync(t.Context()))
		}
		require.Len(t, seen, 1, "the deletion is reported immediately")
		assert.Nil(t, <-seen)

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		w.report(ended, func() { seen <- there })
		assert.Empty(t, seen, "events of an ended watch are ignored")
	}
}
