package update

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/node/plan"
)

func TestExplainCountsNodesThatArePassedOver(t *testing.T) {
	waits := []plan.Wait{
		{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, Cause: plan.UsedBudget},
		{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, Cause: plan.UsedBudget},
	}
	waits[0].Budget.Namespace, waits[0].Budget.Name = "shop", "web"

	assert.Empty(t, explain(plan.Plan{Waiting: waits}), "they wait for slots")
	assert.Equal(t, "Node n1 waits for PodDisruptionBudget shop/web: nodes that are being drained use up the disruptions that it allows"+
		" (and 1 other node)", explain(plan.Plan{Waiting: waits, Idle: 1}))
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
