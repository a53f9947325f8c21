package install_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/install"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/test/env"
)

// installed is a cluster with an operator and a platform of two ConfigMaps, one of which is nobody's.
func installed(t *testing.T) (*rest.Config, client.Client, *configv1.ClusterVersion) {
	t.Helper()
	cfg := env.New(t, env.Options{Audit: env.AuditNone}).Config("install")
	c := newClient(t, cfg)
	plan, err := install.NewPlan(ownRelease(t, "1.0.0", payload.Options{}), settings())
	require.NoError(t, err)
	_, err = install.Deploy(t.Context(), cfg, plan, apply.Injection{}, nil)
	require.NoError(t, err)
	cv := &configv1.ClusterVersion{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
	reference := metav1.OwnerReference{APIVersion: configv1.GroupVersion.String(), Kind: "ClusterVersion", Name: "version", UID: cv.UID, Controller: new(true)}
	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "of-the-platform", Labels: map[string]string{api.OwnedByLabel: "version"}, OwnerReferences: []metav1.OwnerReference{reference},
		}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "of-a-user"}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "cluster-version-operator-of-a-user"}},
	} {
		require.NoError(t, c.Create(t.Context(), object, client.FieldOwner("somebody")))
	}
	return cfg, c, cv
}

// collectGarbage plays the controllers that an API server alone does not have: that which ends a deletion that orphans,
// and that which empties a namespace.
func collectGarbage(t *testing.T, c client.Client) (orphaned func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	found := false
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			cv := &configv1.ClusterVersion{}
			if err := c.Get(ctx, client.ObjectKey{Name: "version"}, cv); err == nil && cv.DeletionTimestamp != nil && slices.Contains(cv.Finalizers, metav1.FinalizerOrphanDependents) {
				found = true
				cv.Finalizers = nil
				_ = c.Update(ctx, cv)
			}
			namespaces := &corev1.NamespaceList{}
			_ = c.List(ctx, namespaces)
			for i := range namespaces.Items {
				if namespace := &namespaces.Items[i]; namespace.DeletionTimestamp != nil {
					namespace.Spec.Finalizers = nil
					_ = c.SubResource("finalize").Update(ctx, namespace)
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(stepTick):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return func() bool { cancel(); <-ended; return found }
}

func uninstall(t *testing.T, cfg *rest.Config, removal install.Removal) ([]install.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*stepTimeout)
	defer cancel()
	return install.Uninstall(ctx, clock.RealClock{}, cfg, removal, func(install.Result) {}, func(text string) { t.Log(text) })
}

func there(t *testing.T, c client.Client, object client.Object) bool {
	t.Helper()
	err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return false
	}
	require.NoError(t, err)
	return true
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func TestUninstall(t *testing.T) {
	t.Parallel()
	cfg, c, cv := installed(t)
	lease := leaseOf("somewhere_1", 1)
	require.NoError(t, c.Create(t.Context(), lease))
	cv.Status = configv1.ClusterVersionStatus{VersionHash: "x", History: []configv1.UpdateHistory{{State: configv1.PartialUpdate, Version: "1.0.0", StartedTime: metav1.Now()}}}
	require.NoError(t, c.Status().Update(t.Context(), cv))

	_, err := uninstall(t, cfg, install.Removal{})
	var refusal *install.Refusal
	require.ErrorAs(t, err, &refusal)
	require.ErrorContains(t, err, "release 1.0.0 is being rolled out")

	before := &corev1.ConfigMap{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(configMap("of-the-platform")), before))
	results, err := uninstall(t, cfg, install.Removal{Force: true, DryRun: true})
	require.NoError(t, err)
	assert.NotEmpty(t, results)
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: api.OperatorNamespace, Name: install.Operator}}
	require.True(t, there(t, c, deployment))
	assert.EqualValues(t, 2, *deployment.Spec.Replicas, "a dry run stops nothing")
	require.True(t, there(t, c, lease))
	assert.Equal(t, "somewhere_1", *lease.Spec.HolderIdentity)

	orphaned := collectGarbage(t, c)
	_, err = uninstall(t, cfg, install.Removal{Force: true})
	require.NoError(t, err)
	assert.True(t, orphaned(), "the ClusterVersion was not deleted as one whose objects stay")

	stays := configMap("of-the-platform")
	require.True(t, there(t, c, stays))
	assert.Equal(t, before.UID, stays.UID)
	assert.Empty(t, stays.OwnerReferences)
	assert.True(t, there(t, c, configMap("of-a-user")))
	assert.True(t, there(t, c, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "cluster-version-operator-of-a-user"}}))
	assert.True(t, there(t, c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: api.ConfigNamespace, Name: api.PullSecret}}))
	for _, gone := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: api.OperatorNamespace}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: install.Operator}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: install.ClusterAdminBinding}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: api.ConfigNamespace, Name: install.Operator}},
	} {
		assert.False(t, there(t, c, gone), "%T %s", gone, gone.GetName())
	}
	err = c.List(t.Context(), &configv1.ClusterVersionList{})
	assert.True(t, apierrors.IsNotFound(err), "the kind is still served: %v", err)

	again, err := uninstall(t, cfg, install.Removal{})
	require.NoError(t, err, "again")
	assert.Empty(t, again)
}

// TestUninstallInterrupted interrupts an uninstall in its first step and in a later one.
func TestUninstallInterrupted(t *testing.T) {
	t.Parallel()
	cfg, c, _ := installed(t)
	plan, err := install.NewPlan(ownRelease(t, "1.0.0", payload.Options{}), settings())
	require.NoError(t, err)
	const seconds = 40
	lease := leaseOf("somewhere_1", seconds)
	require.NoError(t, c.Create(t.Context(), lease))
	interruptAt := func(text, left string) {
		t.Helper()
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		_, err := install.Uninstall(ctx, clock.RealClock{}, cfg, install.Removal{}, func(install.Result) {}, func(said string) {
			if strings.Contains(said, text) {
				interrupt()
			}
		})
		var unfinished *install.UnfinishedError
		require.ErrorAs(t, err, &unfinished)
		require.ErrorIs(t, err, context.Canceled)
		assert.Contains(t, unfinished.Left, left)
	}
	replicas := func() int32 {
		deployment := &appsv1.Deployment{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: api.OperatorNamespace, Name: install.Operator}, deployment))
		return *deployment.Spec.Replicas
	}

	for range 2 { // another run waits for what the first one did not see the end of
		interruptAt("for operator somewhere_1 to notice", "all else is as it was")
		require.True(t, there(t, c, lease))
		assert.Equal(t, "cvo-uninstall", *lease.Spec.HolderIdentity, "operator somewhere_1 may not have noticed")
		assert.LessOrEqual(t, *lease.Spec.LeaseDurationSeconds, int32(seconds), "others wait no longer than it may take to notice")
		assert.Zero(t, replicas())
	}
	require.NoError(t, install.Reclaim(t.Context(), clock.RealClock{}, cfg, api.OperatorNamespace, "version", func(text string) { assert.Fail(t, text) }))
	_, err = install.Deploy(t.Context(), cfg, plan, apply.Injection{}, nil)
	require.NoError(t, err)
	assert.EqualValues(t, 2, replicas(), "an install brings the operator back")

	require.NoError(t, c.Delete(t.Context(), lease))
	lease = leaseOf("", 1)
	require.NoError(t, c.Create(t.Context(), lease))
	// Nobody collects garbage, so the ClusterVersion stays.
	interruptAt("waiting for the end of ClusterVersion version", "the ClusterVersion gone or about to go, and the platform as it was")
	require.True(t, there(t, c, lease))
	assert.Empty(t, *lease.Spec.HolderIdentity, "another operator need not wait")
	results, err := install.Deploy(t.Context(), cfg, plan, apply.Injection{}, nil)
	var refusal *install.Refusal
	require.ErrorAs(t, err, &refusal)
	require.ErrorContains(t, err, "ClusterVersion version is being deleted: let 'cvo uninstall' end")
	assert.Empty(t, results)
	assert.Zero(t, replicas(), "nothing is written")

	collectGarbage(t, c)
	_, err = uninstall(t, cfg, install.Removal{})
	require.NoError(t, err, "another run goes on")
	_, err = install.Deploy(t.Context(), cfg, plan, apply.Injection{}, nil)
	require.NoError(t, err)
}
