package update

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/plan"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// TestNodesWaitForHealthyOnes has two nodes of a pool, of which one runs the config.
func TestNodesWaitForHealthyOnes(t *testing.T) {
	m := newMemory(2)
	m.pools[1].Spec.Paused = false
	rules := api.NodeRolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: api.WorkerPool, Generation: 1}}
	rules.Spec.Health.NodeHealthyIf = "node.status.conditions.exists(c, c.type == 'GPU' && c.status == 'True')"
	rules.Spec.FailureBudget = new(intstr.FromInt32(1))
	m.policies = []api.NodeRolloutPolicy{rules}
	r := m.controller()
	reconcilePools := func() {
		r.nextPlan = time.Time{}
		_, err := r.Reconcile(t.Context(), reconcile.Request{})
		require.NoError(t, err)
	}
	reconcilePools()
	config := m.nodes[0].Annotations[api.DesiredConfigAnnotation]
	require.NotEmpty(t, config)
	require.Empty(t, m.nodes[1].Annotations[api.DesiredConfigAnnotation], "it waits for a slot")
	m.nodes[0].Annotations[api.CurrentConfigAnnotation] = config

	for _, tt := range []struct {
		conditions []corev1.NodeCondition
		reason     string
		isHalted   bool
		message    string
	}{
		{nil, api.ReasonNotEvaluated, false, "Node n1 waits until the updated nodes are healthy: spec.health.nodeHealthyIf of NodeRolloutPolicy worker cannot be evaluated for node n0: no such key: conditions"},
		{
			[]corev1.NodeCondition{{Type: "GPU", Status: corev1.ConditionFalse}},
			api.ReasonNodeUnhealthy, true,
			"Node n1 waits, because NodeRolloutPolicy worker halted the pool: 1 node failed, and the failure budget is 1: spec.health.nodeHealthyIf of NodeRolloutPolicy worker is false for node n0",
		},
		{[]corev1.NodeCondition{{Type: "GPU", Status: corev1.ConditionTrue}}, api.ReasonNodesHealthy, false, ""},
	} {
		m.set(&m.nodes[0])
		m.nodes[0].Status.Conditions = tt.conditions
		reconcilePools()
		assert.Equal(t, tt.message, pool.Message(&m.pools[1], pool.NodesWaiting))
		conditions := m.policies[0].Status.Conditions
		assert.Equal(t, tt.reason, meta.FindStatusCondition(conditions, api.PolicyNodesHealthy).Reason)
		assert.Equal(t, tt.isHalted, meta.IsStatusConditionTrue(conditions, api.PolicyHalted))
	}
	assert.Equal(t, config, m.nodes[1].Annotations[api.DesiredConfigAnnotation])

	m.policies[0].Spec.Health.NodeHealthyIf = "node.status.("
	reconcilePools()
	accepted := meta.FindStatusCondition(m.policies[0].Status.Conditions, api.PolicyAccepted)
	assert.Equal(t, api.ReasonPolicyInvalid, accepted.Reason)
	assert.Contains(t, accepted.Message, "spec.health.nodeHealthyIf is invalid: line 1, column 13: ")
	assert.Nil(t, meta.FindStatusCondition(m.policies[0].Status.Conditions, api.PolicyNodesHealthy))
}

// TestOnlyHealthChecksWaitForStatusOfNodes has changes of a node that no pool depends on.
func TestOnlyHealthChecksWaitForStatusOfNodes(t *testing.T) {
	before := &corev1.Node{}
	before.Status.Conditions = []corev1.NodeCondition{{Type: "GPU", Status: corev1.ConditionFalse, LastHeartbeatTime: metav1.NewTime(time.Unix(1, 0))}}
	changes := map[string]func(*corev1.Node){
		"heartbeat": func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(time.Unix(2, 0)) },
		"condition": func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue },
		"resources": func(n *corev1.Node) {
			n.Status.Allocatable = corev1.ResourceList{"gpu": resource.MustParse("1")}
		},
	}
	r := newMemory(1).controller()
	for name, change := range changes {
		after := before.DeepCopy()
		change(after)
		r.checksHealth.Store(false)
		assert.False(t, r.mattersToPools(before, after), name)
		r.checksHealth.Store(true)
		assert.Equal(t, name != "heartbeat", r.mattersToPools(before, after), name)
	}
	assert.Equal(t, time.Unix(1, 0), before.Status.Conditions[0].LastHeartbeatTime.Time, "the object of the cache is not changed")
}

// played plays a Prometheus. It counts the queries, and answers as often as answers receives.
type played struct {
	results []float64
	err     error
	queries int
	answers chan struct{}
}

func (p *played) Query(context.Context, string) ([]float64, error) {
	<-p.answers
	p.queries++
	return p.results, p.err
}

// TestPoolWaitsForMetrics has two nodes that need the config of their pool.
func TestPoolWaitsForMetrics(t *testing.T) {
	m := newMemory(2)
	m.pools[1].Spec.Paused = false
	rules := api.NodeRolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: api.WorkerPool}}
	rules.Spec.Health.PoolUnhealthyIf = "ALERTS"
	m.policies = []api.NodeRolloutPolicy{rules}
	r := m.controller()
	metrics := &played{err: errors.New("no response in time"), answers: make(chan struct{})}
	clk := clocktesting.NewFakePassiveClock(time.Now())
	r.clock, r.queries = clk, newQueries(metrics, clk)
	answered := make(chan struct{})
	go r.queries.run(t.Context(), func() { answered <- struct{}{} })
	answer := func() {
		metrics.answers <- struct{}{}
		<-answered
	}
	reconcilePools := func() (message string, next time.Duration) {
		r.nextPlan = time.Time{}
		result, err := r.Reconcile(t.Context(), reconcile.Request{})
		require.NoError(t, err)
		return pool.Message(&m.pools[1], pool.NodesWaiting), result.RequeueAfter
	}
	const waits = "Node n0 waits until the pool is healthy: spec.health.poolUnhealthyIf of NodeRolloutPolicy worker "
	for range 2 { // the slow server delays no reconcile, and gets one query
		message, next := reconcilePools()
		assert.Empty(t, message)
		assert.Zero(t, next)
		assert.Empty(t, m.nodes[0].Annotations[api.DesiredConfigAnnotation])
	}
	answer()
	for range 2 { // the answer counts for some time
		message, next := reconcilePools()
		assert.Equal(t, waits+"cannot be evaluated: no response in time (and 1 other node)", message)
		assert.Equal(t, answerAge, next)
		assert.Equal(t, 1, metrics.queries)
	}
	metrics.err, metrics.results = nil, []float64{0}
	clk.SetTime(clk.Now().Add(answerAge))
	message, next := reconcilePools()
	assert.Equal(t, waits+"cannot be evaluated: no response in time (and 1 other node)", message, "it stays until the answer")
	assert.Zero(t, next)
	answer()
	message, next = reconcilePools()
	assert.Equal(t, waits+"has 1 result (and 1 other node)", message)
	assert.Equal(t, answerAge, next)
	assert.Empty(t, m.nodes[0].Annotations[api.DesiredConfigAnnotation])

	metrics.results = nil
	clk.SetTime(clk.Now().Add(answerAge))
	reconcilePools()
	assert.Empty(t, m.nodes[0].Annotations[api.DesiredConfigAnnotation])
	answer()
	message, next = reconcilePools()
	assert.Empty(t, message)
	assert.Zero(t, next)
	assert.NotEmpty(t, m.nodes[0].Annotations[api.DesiredConfigAnnotation])
	assert.Equal(t, 3, metrics.queries)

	clk.SetTime(clk.Now().Add(answerAge))
	reconcilePools()
	assert.Equal(t, 3, metrics.queries, "without a free slot, the answer does not matter")
}

// TestAnswerMayEndDuringAReconcile has an answer that counts when it is read, and not when the next reconcile is requested.
func TestAnswerMayEndDuringAReconcile(t *testing.T) {
	r := newMemory(1).controller()
	end := r.clock.Now().Add(time.Second)
	r.queries.answers["ALERTS"] = answer{results: 1, until: end}
	r.clock = clocktesting.NewFakePassiveClock(end)
	o := &rollout{policy: &api.NodeRolloutPolicy{}}
	o.policy.Spec.Health.PoolUnhealthyIf = "ALERTS"
	inputs := []plan.Pool{{Candidates: []*corev1.Node{{}}, Slots: 1, Refused: map[string]string{}}}
	r.checkMetrics(t.Context(), []*rollout{o}, inputs)
	assert.Equal(t, time.Millisecond, o.wait)
}
