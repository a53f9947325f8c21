//go:build linux

package nodes_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	nodepool "github.com/cluster-version/cvo/pkg/node/pool"
	"github.com/cluster-version/cvo/test/env"
)

// blockingBudget creates a budget that never allows the eviction of an application's only pod.
func (s *stage) blockingBudget(app string) *policyv1.PodDisruptionBudget {
	s.t.Helper()
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app}}
	b.Spec.MaxUnavailable, b.Spec.Selector = new(intstr.FromInt(0)), &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	require.NoError(s.t, s.client.Create(s.t.Context(), b))
	s.t.Cleanup(func() { assert.NoError(s.t, s.client.Delete(context.WithoutCancel(s.t.Context()), b)) })
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, ExpectedPods: 1, CurrentHealthy: 1, DesiredHealthy: 1}
	require.NoError(s.t, s.client.Status().Update(s.t.Context(), b))
	return b
}

// blocked waits until the drain of a node has been blocked for a time.
func (s *stage) blocked(node string, age time.Duration) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		draining := condition(s.node(node), corev1.NodeDrainInProgress)
		assert.Equal(c, "Blocked", draining.Reason)
		assert.Greater(c, time.Since(draining.LastTransitionTime.Time), age)
	})
}

// events returns the messages of a node's events with a reason.
func (s *stage) events(c require.TestingT, node, reason string) (messages []string) {
	var list corev1.EventList
	require.NoError(c, s.client.List(s.t.Context(), &list))
	for _, e := range list.Items {
		if e.Reason == reason && e.InvolvedObject.UID == s.node(node).UID {
			messages = append(messages, e.Message)
		}
	}
	return messages
}

// TestBlockedNodeReleasesItsSlotAndComesLast has a budget that blocks the drain of n1. The other nodes are held until then.
func TestBlockedNodeReleasesItsSlotAndComesLast(t *testing.T) {
	s := start(t, "n1", "n2", "n3")
	s.config("00-worker", nil)
	before := s.updated("")
	endWeb := s.pod("web", "n1")
	budget := s.blockingBudget("web")
	end2, end3 := s.pod("app-on-n2", "n2"), s.pod("app-on-n3", "n3")
	s.hold("n2", "after n1")
	s.hold("n3", "after n1")
	const patience = 2 * time.Second
	s.policy(func(spec *api.NodeRolloutPolicySpec) { spec.BlockedDrain.ReleaseSlotAfter.Duration = patience })
	s.policyCondition(api.PolicyAccepted, api.ReasonPolicyAccepted)
	begun := time.Now()

	s.config("50-a", map[string]string{"/etc/a": "1"})
	s.blocked("n1", 2*patience)
	assert.Equal(t, []string{"n1"}, s.cordoned(), "no other node can start")
	config := s.node("n1").Annotations[api.DesiredConfigAnnotation]
	assert.NotEqual(t, before, config)

	s.hold("n2", "")
	s.eventually(func(c *assert.CollectT) {
		assert.Equal(c, []string{"n2"}, s.cordoned())
		n := s.node("n1")
		assert.Equal(c, before, n.Annotations[api.DesiredConfigAnnotation])
		assert.True(c, nodepool.IsDone(n))
		released, is := nodepool.SlotReleased(n)
		assert.True(c, is)
		assert.Equal(c, "default/web", released)
		assert.Contains(c, n.Spec.Taints, corev1.Taint{Key: api.UpdateInProgressTaint, Effect: corev1.TaintEffectPreferNoSchedule})
		assert.Empty(c, condition(n, corev1.NodeDrainInProgress))
		assert.Equal(c, []string{"Released the slot of the node by spec.blockedDrain.releaseSlotAfter (2s) of NodeRolloutPolicy worker: " +
			"Pod default/web stays: The disruption budget web needs 1 healthy pods and has 1 currently"}, s.events(c, "n1", "SlotReleased"))
	})

	// Another leader knows that n1 is the last node.
	s.restart()
	s.hold("n3", "")
	end2()
	s.eventually(func(c *assert.CollectT) {
		assert.Equal(c, []string{"n3"}, s.cordoned())
		assert.Equal(c, config, s.node("n2").Annotations[api.CurrentConfigAnnotation])
	})
	plan := s.plan("")
	require.Equal(t, []string{"n3 Running", "n1 Wait"}, turns(plan))
	end3()
	s.blocked("n1", 2*patience)
	n := s.node("n1")
	assert.Equal(t, config, n.Annotations[api.DesiredConfigAnnotation], "it keeps its slot, because no other node needs it")
	assert.NotContains(t, n.Annotations, api.SlotReleasedAnnotation)
	assert.Len(t, s.events(t, "n1", "SlotReleased"), 1)

	budget.Status.DisruptionsAllowed = 1
	require.NoError(t, s.client.Status().Update(t.Context(), budget))
	s.eventuallyDeleted("web")
	endWeb()
	assert.Equal(t, config, s.updated(before))
	// 24 for each of two updates of n1, of which the first one does not change the host.
	s.assertWrites(begun, 48)
}

// TestPodIsDeletedOnlyByPolicy has a budget that blocks the drain of a node for ever.
//
//threat:drain-ignores-budgets
func TestPodIsDeletedOnlyByPolicy(t *testing.T) {
	s := start(t, "n1")
	s.config("00-worker", nil)
	before := s.updated("")
	pod := s.podWith("default", "web", "n1", func(p *corev1.Pod) {
		p.Labels, p.Finalizers = map[string]string{"app": "web"}, []string{"example.com/running"}
		p.Spec.TerminationGracePeriodSeconds = new(int64(17))
	})
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	require.NoError(t, s.client.Status().Update(t.Context(), pod))
	s.blockingBudget("web")

	s.config("50-a", map[string]string{"/etc/a": "1"})
	const patience = 2 * time.Second
	s.blocked("n1", 2*patience)
	assert.True(t, s.exists(pod))
	assert.Empty(t, s.events(t, "n1", "PodDeleted"))

	s.policy(func(spec *api.NodeRolloutPolicySpec) { spec.BlockedDrain.DeletePodsAfter.Duration = patience })
	s.restart() // the next attempt may be due only in half a minute
	restarted := time.Now()
	s.eventuallyDeleted("web")
	assert.Greater(t, time.Since(restarted), patience, "another leader counts from its own first attempt")
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	assert.Equal(t, new(int64(17)), pod.DeletionGracePeriodSeconds)
	s.eventually(func(c *assert.CollectT) {
		assert.Equal(c, []string{"Deleted pod default/web by spec.blockedDrain.deletePodsAfter (2s) of NodeRolloutPolicy worker, because its eviction was refused: " +
			"The disruption budget web needs 1 healthy pods and has 1 currently"}, s.events(c, "n1", "PodDeleted"))
	})
	deletions := slices.DeleteFunc(s.requests(restarted), func(r env.AuditEvent) bool { return r.Verb != "delete" || r.Object.Resource != "pods" })
	assert.Len(t, deletions, 1)

	pod.Finalizers = nil
	require.NoError(t, s.client.Update(t.Context(), pod))
	require.NoError(t, s.client.Delete(t.Context(), pod, client.GracePeriodSeconds(0))) // as the kubelet does
	s.updated(before)
}
