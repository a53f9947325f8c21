package update

import (
	"maps"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/plan"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

func TestExplainCountsNodesThatArePassedOver(t *testing.T) {
	waits := []plan.Wait{
		{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, Cause: plan.UsedBudget},
		{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, Cause: plan.UsedBudget},
	}
	waits[0].Budget.Namespace, waits[0].Budget.Name = "shop", "web"

	assert.Empty(t, explain(plan.Pool{}, plan.Plan{Waiting: waits}, nil), "they wait for slots")
	assert.Equal(t, "Node n1 waits for PodDisruptionBudget shop/web: nodes that are being drained use up the disruptions that it allows"+
		" (and 1 other node)", explain(plan.Pool{}, plan.Plan{Waiting: waits, Idle: 1}, nil))
}

// TestBudgetMayChangeDuringAPlan has the event of a budget that arrives after the budgets are read.
func TestBudgetMayChangeDuringAPlan(t *testing.T) {
	m := newMemory(1)
	m.pools[1].Spec.Paused = false
	r := m.controller()
	change := func() []reconcile.Request { return r.waitEnds(t.Context(), &policyv1.PodDisruptionBudget{}) }
	var during []reconcile.Request
	m.onBudgets = func() { during = change() }
	assert.Empty(t, change())
	_, err := r.Reconcile(t.Context(), reconcile.Request{})
	require.NoError(t, err)
	assert.Len(t, during, 1)
	assert.Empty(t, change(), "no slot is empty")
}

// TestRefusedNodesNeedNoPlan has a free slot, and a node that is held. An event ends its wait, so nothing has to be repeated.
func TestRefusedNodesNeedNoPlan(t *testing.T) {
	m := newMemory(1)
	m.pools[1].Spec.Paused = false
	m.nodes[0].Annotations[api.NodeHoldAnnotation] = "until the audit is done"
	m.onBudgets = func() { assert.Fail(t, "no budget matters") }
	result, err := m.controller().Reconcile(t.Context(), reconcile.Request{})
	require.NoError(t, err)
	assert.Zero(t, result.RequeueAfter)
	assert.Contains(t, pool.Message(&m.pools[1], pool.NodesWaiting), "until the audit is done")
}

// TestArbiterSaysForWhichPoolItWaits has a master that starts, and an arbiter that waits for it.
func TestArbiterSaysForWhichPoolItWaits(t *testing.T) {
	m, r := newBothPools(t)
	arbiters := &m.pools[1]
	arbiters.Name, arbiters.Spec.NodeSelector = api.ArbiterPool, &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/arbiter": ""}}
	m.nodes[1].Labels = map[string]string{"node-role.kubernetes.io/arbiter": ""}
	_, worker := pool.BuiltIn(nil)
	m.pools = append(m.pools, *worker)
	reconcilePools := func() (message string, bound pool.Bound) {
		r.nextPlan = r.clock.Now()
		_, err := r.Reconcile(t.Context(), reconcile.Request{})
		require.NoError(t, err)
		arbiters := &m.pools[1]
		members := pool.Membership{Nodes: map[string][]*corev1.Node{api.ArbiterPool: {&m.nodes[1]}}}
		return pool.Message(arbiters, pool.NodesWaiting), pool.BoundOf(arbiters, members)
	}
	const want = "Node n1 waits for a node of MachineConfigPool master, which is unavailable or failed: control-plane nodes are updated one at a time"
	for range 2 {
		message, bound := reconcilePools()
		require.Equal(t, m.pools[0].Spec.Configuration.Name, m.nodes[0].Annotations[api.DesiredConfigAnnotation])
		assert.Equal(t, want, message)
		assert.Equal(t, pool.BoundBudgets, bound)
	}

	m.nodes[0].Annotations[api.CurrentConfigAnnotation] = m.nodes[0].Annotations[api.DesiredConfigAnnotation]
	message, _ := reconcilePools()
	assert.Empty(t, message)
	assert.Equal(t, m.pools[1].Spec.Configuration.Name, m.nodes[1].Annotations[api.DesiredConfigAnnotation])
}

// TestSlotIsReleasedAfterItsTime has two nodes and a slot, which a node with a blocked drain holds.
func TestSlotIsReleasedAfterItsTime(t *testing.T) {
	m := newMemory(2)
	m.pools[1].Spec.Paused = false
	m.policies = []api.NodeRolloutPolicy{{ObjectMeta: metav1.ObjectMeta{Name: api.WorkerPool}}}
	r := m.controller()
	events := record.NewFakeRecorder(9)
	r.recorder = events
	reconcilePools := func(after time.Duration) time.Duration {
		clk := clocktesting.NewFakePassiveClock(r.clock.Now().Add(after))
		r.clock, r.nextPlan = clk, clk.Now()
		result, err := r.Reconcile(t.Context(), reconcile.Request{})
		require.NoError(t, err)
		return result.RequeueAfter
	}
	reconcilePools(0)
	config := m.pools[1].Spec.Configuration.Name
	require.Equal(t, config, m.nodes[0].Annotations[api.DesiredConfigAnnotation])
	blocked := m.nodes[0].DeepCopy()
	m.set(blocked)
	maps.Copy(blocked.Annotations, map[string]string{
		api.CurrentConfigAnnotation: "old", api.NodeStateAnnotation: api.NodeWorking, api.DesiredDrainAnnotation: "drain-" + config, api.CordonAnnotation: "1",
	})
	blocked.Spec.Unschedulable = true
	draining := blocked.DeepCopy()
	blocked.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeDrainInProgress, Status: corev1.ConditionTrue, Reason: "Blocked", Message: "Pod shop/web stays",
		LastTransitionTime: metav1.NewTime(r.clock.Now()),
	}}
	assert.True(t, mattersToPools(draining, blocked))
	draining.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDrainInProgress, Status: corev1.ConditionTrue, Reason: "Draining"}}
	assert.True(t, mattersToPools(draining, blocked))
	m.nodes[0] = *blocked
	for len(events.Events) > 0 {
		<-events.Events
	}

	assert.Zero(t, reconcilePools(time.Hour), "there is no limit")
	m.policies[0].Spec.BlockedDrain.ReleaseSlotAfter.Duration = 2 * time.Hour
	assert.Equal(t, time.Hour, reconcilePools(0))
	assert.Equal(t, config, m.nodes[0].Annotations[api.DesiredConfigAnnotation])

	m.nodes[1].Annotations[api.SlotReleasedAnnotation] = "2026-01-01T00:00:00Z"
	assert.Equal(t, idleRetry, reconcilePools(time.Hour))
	assert.Equal(t, config, m.nodes[0].Annotations[api.DesiredConfigAnnotation], "the other node must not take turns with it")
	assert.Len(t, r.waitEnds(t.Context(), &policyv1.PodDisruptionBudget{}), 1, "a budget may allow the other node to start")
	assert.Empty(t, events.Events)

	delete(m.nodes[1].Annotations, api.SlotReleasedAnnotation)
	m.policies[0].Spec.Health.PoolUnhealthyIf = "ALERTS"
	r.queries.answers["ALERTS"] = answer{results: 1, until: r.clock.Now().Add(time.Hour)}
	reconcilePools(0)
	assert.Equal(t, config, m.nodes[0].Annotations[api.DesiredConfigAnnotation], "no other node would start in an unhealthy pool")
	m.policies[0].Spec.Health.PoolUnhealthyIf = ""
	reconcilePools(0)
	assert.Equal(t, "old", m.nodes[0].Annotations[api.DesiredConfigAnnotation])
	assert.Equal(t, r.clock.Now().UTC().Format(time.RFC3339), m.nodes[0].Annotations[api.SlotReleasedAnnotation])
	assert.Empty(t, m.nodes[1].Annotations[api.DesiredConfigAnnotation], "the slot is not free yet")
	require.Len(t, events.Events, 1)
	assert.Equal(t, "Warning SlotReleased Released the slot of the node by spec.blockedDrain.releaseSlotAfter (120m) of NodeRolloutPolicy worker: "+
		"Pod shop/web stays", <-events.Events)
}

// TestControlPlaneReleasesNoSlot has a node whose drain is blocked, in several pools.
func TestControlPlaneReleasesNoSlot(t *testing.T) {
	now := time.Now()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
		api.CurrentConfigAnnotation: "old", api.DesiredConfigAnnotation: "new", api.DesiredDrainAnnotation: "drain-new", api.CordonAnnotation: "1",
	}}}
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeDrainInProgress, Status: corev1.ConditionTrue, Reason: "Blocked", LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
	}}
	for name, want := range map[string][]*corev1.Node{api.WorkerPool: {n}, api.ControlPlanePool: nil, api.ArbiterPool: nil} {
		o := &rollout{pool: &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}, nodes: []*corev1.Node{n}, policy: &api.NodeRolloutPolicy{}}
		o.pool.Spec.Configuration.Name = "new"
		o.policy.Spec.BlockedDrain.ReleaseSlotAfter.Duration = time.Minute
		assert.Equal(t, want, o.blocked(now), name)
	}
}

func TestWaitsForJobsAreExplained(t *testing.T) {
	n := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	held := plan.Pool{Candidates: []*corev1.Node{n("a")}, Unstageable: map[string]string{"a": "is held"}}
	jobs := []plan.JobWait{{Node: "b", Why: "waits for Job x"}, {Node: "c", Why: "waits for Job y"}}
	idle := plan.Plan{Idle: 1, Waiting: []plan.Wait{{Node: n("d"), Cause: plan.Leader}}}
	assert.Equal(t, "Node a is held; Node b waits for Job x (and 1 other node); Node d waits for the other nodes of its pool: it runs the leading controller, which has to move once",
		explain(held, idle, jobs))
}
