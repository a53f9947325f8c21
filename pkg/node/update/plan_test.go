package update

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
