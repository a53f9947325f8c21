package integration_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
)

// tinyObjects returns the objects of a tiny release.
func tinyObjects() (list []*unstructured.Unstructured) {
	for _, component := range []string{"a", "b"} {
		for _, o := range []struct{ apiVersion, kind, namespace, name string }{
			{"v1", "Namespace", "", "tiny-" + component},
			{"v1", "ConfigMap", "tiny-" + component, "settings"},
			{"apps/v1", "Deployment", "tiny-" + component, "tiny-" + component + "-operator"},
			{"config.openshift.io/v1", "ClusterOperator", "", "tiny-" + component},
		} {
			u := &unstructured.Unstructured{}
			u.SetAPIVersion(o.apiVersion)
			u.SetKind(o.kind)
			u.SetNamespace(o.namespace)
			u.SetName(o.name)
			list = append(list, u)
		}
	}
	return list
}

// deleteVersion annotates the ClusterVersion for the guard, deletes it and returns its UID.
func (l *testPlatform) deleteVersion() types.UID {
	l.t.Helper()
	cv := l.get()
	allowed := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"cvo.cluster-version.github.io/allow-deletion":"true"}}}`))
	require.NoError(l.t, l.client.Patch(l.t.Context(), cv, allowed))
	require.NoError(l.t, l.client.Delete(l.t.Context(), cv))
	return cv.UID
}

// createVersion recreates the ClusterVersion as an administrator would do and returns its UID.
func (l *testPlatform) createVersion() types.UID {
	l.t.Helper()
	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}, Spec: configv1.ClusterVersionSpec{ClusterID: "8c1f2a0e-6b0d-4c3b-9a52-3f2f0f0c7d11"}}
	require.NoError(l.t, l.client.Create(l.t.Context(), cv))
	return cv.UID
}

// awaitStop waits for the event that reports the end of the rollout.
func (l *testPlatform) awaitStop(message string) {
	l.t.Helper()
	l.awaitEvent(api.EventRolloutStopped, message)
}

// awaitEvent waits for an event that occurred once and whose message contains the text.
func (l *testPlatform) awaitEvent(reason, message string) {
	l.t.Helper()
	events := kubernetes.NewForConfigOrDie(l.env.Config("integration")).CoreV1().Events(api.OperatorNamespace)
	assert.Eventually(l.t, func() bool {
		list, err := events.List(l.t.Context(), metav1.ListOptions{})
		require.NoError(l.t, err)
		return slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.Reason == reason && strings.Contains(e.Message, message) && e.Count == 1
		})
	}, patience, 50*time.Millisecond, "waiting for event %s: %s", reason, message)
}

// assertUntouched checks that the operator wrote no object of a release in that time.
func (l *testPlatform) assertUntouched(from, to time.Time) {
	l.t.Helper()
	ours := map[object]bool{}
	for component := range strings.SplitSeq("tiny-a tiny-b", " ") {
		ours[object{"", "namespaces", component, component}] = true
		ours[object{"", "configmaps", component, "settings"}] = true
		ours[object{"apps", "deployments", component, component + "-operator"}] = true
		ours[object{"config.openshift.io", "clusteroperators", "", component}] = true
	}
	for _, e := range l.audit(from) {
		if e.Received.Before(to) && e.Write() && strings.HasPrefix(e.UserAgent, operatorAgent) && e.Object.Namespace != api.OperatorNamespace {
			assert.False(l.t, ours[objectOf(e)], "write without a ClusterVersion: %s %s at %s", e.Verb, e.Object, e.Received)
		}
	}
}

// assertOwner checks that every object of the release refers only to the ClusterVersion with this UID.
func (l *testPlatform) assertOwner(uid types.UID) {
	l.t.Helper()
	for _, u := range tinyObjects() {
		require.NoError(l.t, l.client.Get(l.t.Context(), client.ObjectKeyFromObject(u), u))
		var owners []types.UID
		for _, o := range u.GetOwnerReferences() {
			owners = append(owners, o.UID)
		}
		assert.Equal(l.t, []types.UID{uid}, owners, "%s %s", u.GetKind(), u.GetName())
	}
}

// provokeWrites makes changes to which a running rollout would respond with writes: it makes the pending operator report its version and
// deletes an object.
func (l *testPlatform) provokeWrites() {
	l.t.Helper()
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "tiny-a", Name: "settings"}}
	require.NoError(l.t, client.IgnoreNotFound(l.client.Delete(l.t.Context(), settings)))
	l.actors.kill()
	l.actors = l.start("operators")
	require.Eventually(l.t, func() bool {
		co := &configv1.ClusterOperator{}
		require.NoError(l.t, l.client.Get(l.t.Context(), client.ObjectKey{Name: "tiny-a"}, co))
		return slices.ContainsFunc(co.Status.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool {
			return c.Type == configv1.OperatorAvailable && c.Status == configv1.ConditionTrue
		})
	}, time.Minute, 50*time.Millisecond)
}

// TestNothingIsWrittenAfterTheClusterVersionIsDeleted deletes the ClusterVersion while an update waits in its first runlevel. After that
// the operator creates and repairs nothing, because the garbage collector would delete objects of a missing owner. A recreated
// ClusterVersion becomes the owner of everything, and the operator resumes the update where it was.
//
//threat:clusterversion-deleted-being
func TestNothingIsWrittenAfterTheClusterVersionIsDeleted(t *testing.T) {
	t.Parallel()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	require.NoError(t, corev1.AddToScheme(l.client.Scheme()))
	l.create(statusDefinition) // it records that a cluster continues with a release
	l.own = l.release("4.2.0", l.signer)
	next := l.release("4.2.1", l.signer)
	_, err := l.run("install", "--no-operator", "--release-image", l.own.ByDigest(), "--trust", l.trust)
	require.NoError(t, err)
	l.actors = l.start("operators", "--fail", "tiny-a@4.2.1")
	l.cvo = l.operator(l.own.ByDigest())
	l.await("4.2.0 to complete", 2*time.Minute, at("4.2.0"))
	l.update(configv1.Update{Image: next.ByDigest()})
	l.await("the update to wait in runlevel 10", time.Minute, says(api.Failing, "True|"))

	l.cvo.end(t)
	l.deleteVersion()
	l.createVersion()
	l.cvo = l.operator(l.own.ByDigest())
	l.await("the same update to wait again", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return installs("4.2.1")(cv) && says(api.Failing, "True|ClusterOperatorNotAvailable|")(cv)
	})
	version, _ := l.settings("b")
	assert.Equal(t, "4.2.0", version, "runlevel 10 still holds back runlevel 20")

	dead := l.deleteVersion()
	l.awaitStop("Stopped the rollout of 4.2.1: ClusterVersion version was deleted; recreate it to continue")
	stopped := time.Now()
	l.provokeWrites()
	out, err := l.run("status")
	require.Error(t, err)
	require.ErrorContains(t, err, "this cluster has no ClusterVersion, so no platform is installed", out)
	created := time.Now()
	uid := l.createVersion()
	require.NotEqual(t, dead, uid)
	assert.Len(t, l.await("4.2.1 to complete", 2*time.Minute, at("4.2.1")).Status.History, 1, "no other release has started")
	l.assertUntouched(stopped, created)
	l.assertOwner(uid)

	// While a finalizer keeps it, the ClusterVersion counts as deleted and nothing is repaired.
	cv := l.get()
	cv.Finalizers = []string{"example.com/hold"}
	require.NoError(t, l.client.Update(t.Context(), cv))
	l.deleteVersion()
	l.awaitStop("ClusterVersion version is being deleted and waits for finalizers example.com/hold")
	stopped = time.Now()
	l.provokeWrites()
	cv = l.get()
	require.NotNil(t, cv.DeletionTimestamp)
	cv.Finalizers = nil
	require.NoError(t, l.client.Update(t.Context(), cv))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(l.client.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
	}, patience, 10*time.Millisecond)
	created = time.Now()
	uid = l.createVersion()
	l.await("a release to complete again", 2*time.Minute, func(cv *configv1.ClusterVersion) bool {
		return cv.UID == uid && len(cv.Status.History) > 0 && cv.Status.History[0].State == configv1.CompletedUpdate
	})
	l.assertUntouched(stopped, created)
	l.assertOwner(uid)
}
