package uninstall_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/install/uninstall"
	"github.com/cluster-version/cvo/pkg/kube/leader"
	"github.com/cluster-version/cvo/test/installed"
)

// confirmStop plays an operator that finds its name on a Lease held by an uninstall and confirms that it has stopped.
func confirmStop(ctx context.Context, c client.Client, identity string) error {
	key := client.ObjectKey{Namespace: api.OperatorNamespace, Name: "version"}
	for ctx.Err() == nil {
		lease := &coordinationv1.Lease{}
		err := c.Get(ctx, key, lease)
		if err == nil && *lease.Spec.HolderIdentity == api.UninstallHolder && lease.Annotations[api.FencedFromAnnotation] == identity {
			delete(lease.Annotations, api.FencedFromAnnotation)
			delete(lease.Annotations, api.FencedUntilAnnotation)
			if c.Update(ctx, lease) == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(installed.StepTick):
		}
	}
	return ctx.Err()
}

// TestUninstallContinuesAfterTheAcknowledgement lets the earlier leader confirm that it has stopped. Without the confirmation, each of
// these uninstalls would wait longer than the test allows.
func TestUninstallContinuesAfterTheAcknowledgement(t *testing.T) {
	t.Parallel()
	const seconds = 300
	cfg, c, _ := installed.Cluster(t)
	lease := installed.Lease("somewhere_1", seconds)
	require.NoError(t, c.Create(t.Context(), lease))
	said := make(chan error, 1)
	go func() { said <- confirmStop(t.Context(), c, "somewhere_1") }()

	// Without a garbage collector, the ClusterVersion stays. The uninstall is interrupted after it has stopped the operator.
	interrupted := func() {
		t.Helper()
		ctx, interrupt := context.WithTimeout(t.Context(), 2*installed.StepTimeout)
		defer interrupt()
		_, err := uninstall.Run(ctx, clock.RealClock{}, cfg, uninstall.Removal{}, func(target.Result) {}, func(text string) {
			if strings.HasPrefix(text, "waiting for the deletion of ClusterVersion version") {
				interrupt()
			}
		})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "deleting the ClusterVersion")
		require.True(t, installed.Exists(t, c, lease))
		assert.Empty(t, *lease.Spec.HolderIdentity, "an operator can start at once")
		assert.NotContains(t, lease.Annotations, api.FencedFromAnnotation)
		last, err := leader.Find(t.Context(), cfg, lease.Namespace, lease.Name)
		require.NoError(t, err)
		assert.True(t, last.AfterUninstall)
	}
	interrupted()
	require.NoError(t, <-said)

	// The first uninstall was killed. The confirmation arrives before or during the next one.
	killed := func(annotations map[string]string) {
		t.Helper()
		require.True(t, installed.Exists(t, c, lease))
		lease.Spec, lease.Annotations = installed.Lease(api.UninstallHolder, seconds).Spec, annotations
		require.NoError(t, c.Update(t.Context(), lease))
	}
	named := func() map[string]string {
		return map[string]string{
			api.FencedFromAnnotation: "somewhere_2", api.FencedUntilAnnotation: time.Now().Add(seconds * time.Second).UTC().Format(time.RFC3339Nano),
		}
	}
	killed(nil)
	interrupted()
	killed(named())
	go func() { said <- confirmStop(t.Context(), c, "somewhere_2") }()
	interrupted()
	require.NoError(t, <-said)
}

// TestUninstallWaitsForTheLeaseWithoutAcknowledgement has a leader that never confirms, like earlier versions, and another client that
// confirms.
func TestUninstallWaitsForTheLeaseWithoutAcknowledgement(t *testing.T) {
	t.Parallel()
	const seconds = 6
	cfg, c, _ := installed.Cluster(t)
	installed.CollectGarbage(t, c)
	lease := installed.Lease("somewhere_1", seconds)
	require.NoError(t, c.Create(t.Context(), lease))
	ctx, cancel := context.WithCancel(t.Context())
	said := make(chan error, 1)
	go func() { said <- confirmStop(ctx, c, "somewhere_2") }()
	began := time.Now()
	reported := false
	_, err := uninstall.Run(t.Context(), clock.RealClock{}, cfg, uninstall.Removal{}, func(target.Result) {
		assert.GreaterOrEqual(t, time.Since(began), seconds*time.Second, "nothing is deleted before the fence ends")
	}, func(text string) {
		reported = reported || strings.HasSuffix(text, " for operator somewhere_1 to confirm that it has stopped writing")
	})
	require.NoError(t, err)
	assert.True(t, reported)
	cancel()
	require.ErrorIs(t, <-said, context.Canceled)
}

// TestUninstallStopsAnOperatorThatStarts has no Lease before an operator pod that is just starting creates it.
func TestUninstallStopsAnOperatorThatStarts(t *testing.T) {
	t.Parallel()
	cfg, c, _ := installed.Cluster(t)
	installed.CollectGarbage(t, c)
	pod := operatorPod("starting")
	require.NoError(t, c.Create(t.Context(), pod))
	ctx, cancel := context.WithCancel(t.Context())
	said := make(chan error, 1)
	go func() { said <- confirmStop(ctx, c, "starting_1") }()

	_, err := uninstall.Run(t.Context(), clock.RealClock{}, cfg, uninstall.Removal{}, func(target.Result) {}, func(text string) {
		if strings.Contains(text, "pod to terminate: starting") {
			assert.NoError(t, c.Create(t.Context(), installed.Lease("starting_1", 300)))
			assert.NoError(t, c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
		}
	})

	cancel()
	require.NoError(t, err)
	require.NoError(t, <-said, "the uninstall waits for the confirmation")
}

// operatorPod returns a pod of the operator on a node without a kubelet.
func operatorPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: api.OperatorNamespace, Name: name, Labels: map[string]string{target.PodLabel: target.Operator}},
		Spec: corev1.PodSpec{NodeName: "worker-1", Containers: []corev1.Container{{Name: target.Operator, Image: installed.ReleaseImage, SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), RunAsNonRoot: new(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}}}},
	}
}

// TestUninstallIgnoresFinishedPods has an evicted pod. A ReplicaSet does not delete it.
func TestUninstallIgnoresFinishedPods(t *testing.T) {
	t.Parallel()
	cfg, c, _ := installed.Cluster(t)
	installed.CollectGarbage(t, c)
	evicted := operatorPod("evicted")
	require.NoError(t, c.Create(t.Context(), evicted))
	evicted.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
	require.NoError(t, c.Status().Update(t.Context(), evicted))
	ctx, cancel := context.WithCancelCause(t.Context())

	_, err := uninstall.Run(ctx, clock.RealClock{}, cfg, uninstall.Removal{}, func(target.Result) {}, func(text string) {
		if strings.Contains(text, "to terminate") {
			cancel(errors.New(text))
		}
	})

	require.NoErrorf(t, err, "%v", context.Cause(ctx))
}

// TestUninstallNamesTheRemedyForALostNode has a terminating pod on a node that has lost its kubelet.
func TestUninstallNamesTheRemedyForALostNode(t *testing.T) {
	t.Parallel()
	cfg, c, _ := installed.Cluster(t)
	installed.CollectGarbage(t, c)
	lost := operatorPod("lost")
	require.NoError(t, c.Create(t.Context(), lost))
	require.NoError(t, c.Delete(t.Context(), lost))
	clk := clocktesting.NewFakeClock(time.Now())
	ctx, cancel := context.WithTimeout(t.Context(), 2*installed.StepTimeout)
	defer cancel()
	var said []string

	_, err := uninstall.Run(ctx, clk, cfg, uninstall.Removal{}, func(target.Result) {}, func(text string) {
		if !strings.Contains(text, "to terminate") {
			return
		}
		if said = append(said, text); len(said) == 1 {
			clk.Step(time.Hour)
		} else {
			assert.NoError(t, c.Delete(t.Context(), lost, client.GracePeriodSeconds(0)))
		}
	})

	require.NoError(t, err)
	assert.Equal(t, []string{
		"waiting for 1 operator pod to terminate: lost on node worker-1",
		"waiting for 1 operator pod to terminate: lost on node worker-1 (overdue: if the node is off, run 'kubectl -n openshift-cluster-version delete pod lost --force')",
	}, said)
}

// TestUninstallRefusesTheWrongNamespace leaves a running operator alone that the given namespace does not contain.
func TestUninstallRefusesTheWrongNamespace(t *testing.T) {
	t.Parallel()
	cfg, c, _ := installed.Cluster(t)
	installed.CollectGarbage(t, c)
	const wrong = "default"
	refuses := func(namespace, want string) {
		t.Helper()
		for _, removal := range []uninstall.Removal{{}, {Force: true, Platform: true}, {DryRun: true}} {
			removal.Namespace = namespace
			_, err := run(t, cfg, removal)
			var refusal *target.Refusal
			require.ErrorAs(t, err, &refusal)
			require.ErrorContains(t, err, want)
		}
		owned := configMap("of-the-platform")
		require.True(t, installed.Exists(t, c, owned))
		assert.Len(t, owned.OwnerReferences, 1)
	}
	refuses(wrong, "Deployment openshift-cluster-version/cluster-version-operator runs the operator of this cluster: use --namespace openshift-cluster-version")

	// The operator runs outside the cluster.
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: api.OperatorNamespace, Name: target.Operator}}
	require.NoError(t, c.Delete(t.Context(), deployment))
	lease := installed.Lease("somewhere_3f6c1a52-2c6c-4f7e-9e38-0c9d4ba2f2d1", 3600)
	require.NoError(t, c.Create(t.Context(), lease))
	refuses(wrong, "somewhere, the operator of this cluster, holds Lease openshift-cluster-version/version: use --namespace openshift-cluster-version")

	// It has stopped, but its inventory exists.
	lease.Spec = installed.Lease("", 1).Spec
	require.NoError(t, c.Update(t.Context(), lease))
	record := &unstructured.Unstructured{}
	record.SetGroupVersionKind(api.ReleaseStatusVersion.WithKind(api.ReleaseStatusKind))
	record.SetName("version")
	record.Object["status"] = map[string]any{"releases": []any{}, "inventory": map[string]any{"namespace": api.OperatorNamespace, "selector": "a=b"}}
	require.NoError(t, c.Create(t.Context(), record))
	refuses(wrong, "ReleaseStatus version names openshift-cluster-version as the namespace of the operator: use --namespace openshift-cluster-version")

	// Nothing in the cluster names a namespace.
	require.NoError(t, c.Delete(t.Context(), record))
	refuses(wrong, "namespace default has no operator of this cluster, and an uninstall would delete it: check --namespace")
	platform := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{api.IncludePrefix + "profile": "true"}}}
	require.NoError(t, c.Create(t.Context(), platform))
	refuses(platform.Name, "namespace shop has no operator of this cluster, and an uninstall would delete it: check --namespace")

	// Objects of other programs have the same names.
	other := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: wrong, Name: "version"}, Spec: installed.Lease("somewhere_2", 3600).Spec}
	require.NoError(t, c.Create(t.Context(), other))
	require.NoError(t, c.Create(t.Context(), deploymentOf(wrong, target.Operator)))
	refuses(wrong, "namespace default has no operator of this cluster, and an uninstall would delete it: check --namespace")
	_, err := run(t, cfg, uninstall.Removal{})
	require.NoError(t, err)
}

// TestUninstallFindsAnOperatorOutsideTheDefaultNamespace has an operator whose pods have never run, so it has no Lease.
func TestUninstallFindsAnOperatorOutsideTheDefaultNamespace(t *testing.T) {
	t.Parallel()
	cfg, c, _ := installed.Cluster(t)
	installed.CollectGarbage(t, c)
	require.NoError(t, c.Delete(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: api.OperatorNamespace, Name: target.Operator}}))
	require.NoError(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ops"}}))
	require.NoError(t, c.Create(t.Context(), deploymentOf("ops", target.Operator), client.FieldOwner(target.Manager)))

	_, err := run(t, cfg, uninstall.Removal{})

	var refusal *target.Refusal
	require.ErrorAs(t, err, &refusal)
	require.ErrorContains(t, err, "Deployment ops/cluster-version-operator runs the operator of this cluster: use --namespace ops")
}

// TestUninstallRefusesTheWrongNameWithoutClusterVersion has an operator whose ClusterVersion was deleted.
func TestUninstallRefusesTheWrongNameWithoutClusterVersion(t *testing.T) {
	t.Parallel()
	cfg, c, cv := installed.Cluster(t)
	record := &unstructured.Unstructured{}
	record.SetGroupVersionKind(api.ReleaseStatusVersion.WithKind(api.ReleaseStatusKind))
	record.SetName("version")
	record.Object["status"] = map[string]any{"releases": []any{}, "inventory": map[string]any{"namespace": api.OperatorNamespace, "selector": "a=b"}}
	require.NoError(t, c.Create(t.Context(), record))
	metav1.SetMetaDataAnnotation(&cv.ObjectMeta, api.AllowDeletionAnnotation, "true")
	require.NoError(t, c.Update(t.Context(), cv))
	require.NoError(t, c.Delete(t.Context(), cv))

	_, err := run(t, cfg, uninstall.Removal{Name: "nope", Force: true, Platform: true})

	var refusal *target.Refusal
	require.ErrorAs(t, err, &refusal)
	require.ErrorContains(t, err, `this cluster has ReleaseStatus "version", so the name of its ClusterVersion is not "nope": check --name`)
	assert.True(t, installed.Exists(t, c, record))
}
