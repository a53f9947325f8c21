package uninstall_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

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
	"github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/install"
	installlease "github.com/cluster-version/cvo/pkg/install/lease"
	"github.com/cluster-version/cvo/pkg/install/plan"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/install/uninstall"
	"github.com/cluster-version/cvo/pkg/kube/apiserver"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/test/fault"
	"github.com/cluster-version/cvo/test/installed"
)

func run(t *testing.T, cfg *rest.Config, removal uninstall.Removal) ([]target.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*installed.StepTimeout)
	defer cancel()
	return uninstall.Run(ctx, clock.RealClock{}, cfg, removal, func(target.Result) {}, func(text string) { t.Log(text) })
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func TestUninstallRemovesTheOperator(t *testing.T) {
	t.Parallel()
	cfg, c, cv := installed.Cluster(t)
	lease := installed.Lease("somewhere_1", 1)
	require.NoError(t, c.Create(t.Context(), lease))
	cv.Status = configv1.ClusterVersionStatus{VersionHash: "x", History: []configv1.UpdateHistory{{State: configv1.PartialUpdate, Version: "1.0.0", StartedTime: metav1.Now()}}}
	require.NoError(t, c.Status().Update(t.Context(), cv))

	_, err := run(t, cfg, uninstall.Removal{})
	var refusal *target.Refusal
	require.ErrorAs(t, err, &refusal)
	require.ErrorContains(t, err, "release 1.0.0 is being rolled out")
	planned, err := run(t, cfg, uninstall.Removal{DryRun: true})
	var rollout *uninstall.RolloutError
	require.ErrorAs(t, err, &rollout)
	assert.Equal(t, "1.0.0", rollout.Version)
	assert.NotEmpty(t, planned, "a dry run continues")
	for _, other := range []uninstall.Removal{{Name: "nope"}, {Name: "nope", Force: true, Platform: true}, {Name: "nope", DryRun: true}} {
		_, err = run(t, cfg, other)
		require.ErrorAs(t, err, &refusal)
		require.ErrorContains(t, err, `ClusterVersion "version", which an uninstall of "nope" would also delete: check --name`)
	}

	before := &corev1.ConfigMap{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(configMap("of-the-platform")), before))
	results, err := run(t, cfg, uninstall.Removal{Force: true, DryRun: true})
	require.NoError(t, err)
	assert.Equal(t, planned, results)
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: api.OperatorNamespace, Name: target.Operator}}
	require.True(t, installed.Exists(t, c, deployment))
	assert.EqualValues(t, 2, *deployment.Spec.Replicas, "a dry run stops nothing")
	require.True(t, installed.Exists(t, c, lease))
	assert.Equal(t, "somewhere_1", *lease.Spec.HolderIdentity)

	orphaned := installed.CollectGarbage(t, c)
	_, err = run(t, cfg, uninstall.Removal{Force: true})
	require.NoError(t, err)
	assert.True(t, orphaned(), "deleting the ClusterVersion orphans its objects")

	stays := configMap("of-the-platform")
	require.True(t, installed.Exists(t, c, stays))
	assert.Equal(t, before.UID, stays.UID)
	assert.Empty(t, stays.OwnerReferences)
	assert.True(t, installed.Exists(t, c, configMap("of-a-user")))
	assert.True(t, installed.Exists(t, c, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "cluster-version-operator-of-a-user"}}))
	assert.True(t, installed.Exists(t, c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: api.ConfigNamespace, Name: api.PullSecret}}))
	for _, gone := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: api.OperatorNamespace}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: target.Operator}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: plan.ClusterAdminBinding}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: api.ConfigNamespace, Name: target.Operator}},
	} {
		assert.False(t, installed.Exists(t, c, gone), "%T %s", gone, gone.GetName())
	}
	err = c.List(t.Context(), &configv1.ClusterVersionList{})
	assert.True(t, apierrors.IsNotFound(err), "the kind is still served: %v", err)

	again, err := run(t, cfg, uninstall.Removal{})
	require.NoError(t, err, "again")
	assert.Empty(t, again)
}

func TestUninstallRepeatsRequestsThatFailForNow(t *testing.T) {
	t.Parallel()
	cfg, c, _ := installed.Cluster(t)
	installed.CollectGarbage(t, c)
	unreliable := rest.CopyConfig(cfg)
	var faults []*fault.Transport
	unreliable.Wrap(func(next http.RoundTripper) http.RoundTripper {
		faulty, err := fault.New(next, fault.Options{Seed: 3, Rates: map[fault.Kind]float64{fault.InternalError: 0.05, fault.LostAnswer: 0.05}})
		require.NoError(t, err)
		faults = append(faults, faulty)
		return faulty
	})
	_, err := run(t, apiserver.Retrying(unreliable, func(text string) { t.Log(text) }), uninstall.Removal{Platform: true})
	require.NoError(t, err)
	count := map[fault.Kind]int{}
	for _, faulty := range faults {
		for kind, n := range faulty.Count() {
			count[kind] += n
		}
	}
	assert.NotZero(t, count[fault.InternalError])
	assert.NotZero(t, count[fault.LostAnswer])
	assert.False(t, installed.Exists(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: api.OperatorNamespace}}))
	assert.False(t, installed.Exists(t, c, configMap("of-the-platform")))
}

// TestInterruptedUninstallCanBeCompleted interrupts an uninstall in its first step and in a later one.
func TestInterruptedUninstallCanBeCompleted(t *testing.T) {
	t.Parallel()
	cfg, c, _ := installed.Cluster(t)
	plan, err := plan.New(installed.Release(t, "1.0.0", payload.Options{}), installed.Settings())
	require.NoError(t, err)
	const seconds = 40
	lease := installed.Lease("somewhere_1", seconds)
	require.NoError(t, c.Create(t.Context(), lease))
	interruptAt := func(text, left string) {
		t.Helper()
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		_, err := uninstall.Run(ctx, clock.RealClock{}, cfg, uninstall.Removal{}, func(target.Result) {}, func(said string) {
			if strings.Contains(said, text) {
				interrupt()
			}
		})
		var unfinished *uninstall.UnfinishedError
		require.ErrorAs(t, err, &unfinished)
		require.ErrorIs(t, err, context.Canceled)
		assert.Contains(t, unfinished.Left, left)
	}
	replicas := func() int32 {
		deployment := &appsv1.Deployment{}
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: api.OperatorNamespace, Name: target.Operator}, deployment))
		return *deployment.Spec.Replicas
	}

	for range 2 { // the second run waits for deletions that were pending when the first one ended
		interruptAt("for operator somewhere_1 to confirm", "everything else is unchanged")
		require.True(t, installed.Exists(t, c, lease))
		assert.Equal(t, "cvo-uninstall", *lease.Spec.HolderIdentity, "operator somewhere_1 may not have noticed yet")
		assert.LessOrEqual(t, *lease.Spec.LeaseDurationSeconds, int32(seconds), "other processes wait no longer than the fence")
		assert.Zero(t, replicas())
	}
	require.NoError(t, installlease.Reclaim(t.Context(), clock.RealClock{}, cfg, api.OperatorNamespace, "version", func(text string) { assert.Fail(t, text) }))
	_, err = install.Deploy(t.Context(), cfg, plan, inject.Values{}, nil)
	require.NoError(t, err)
	assert.EqualValues(t, 2, replicas(), "an install restores the operator")

	require.NoError(t, c.Delete(t.Context(), lease))
	lease = installed.Lease("", 1)
	require.NoError(t, c.Create(t.Context(), lease))
	// Without a garbage collector, the ClusterVersion stays.
	interruptAt("waiting for the deletion of ClusterVersion version", "the ClusterVersion is deleted or being deleted, the platform is unchanged")
	require.True(t, installed.Exists(t, c, lease))
	assert.Empty(t, *lease.Spec.HolderIdentity, "another operator can start at once")
	results, err := install.Deploy(t.Context(), cfg, plan, inject.Values{}, nil)
	var refusal *target.Refusal
	require.ErrorAs(t, err, &refusal)
	require.ErrorContains(t, err, "ClusterVersion version is being deleted: let 'cvo uninstall' finish")
	assert.Empty(t, results)
	assert.Zero(t, replicas(), "nothing is written")

	installed.CollectGarbage(t, c)
	_, err = run(t, cfg, uninstall.Removal{})
	require.NoError(t, err, "another run continues")
	_, err = install.Deploy(t.Context(), cfg, plan, inject.Values{}, nil)
	require.NoError(t, err)
}
