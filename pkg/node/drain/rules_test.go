package drain_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/drain"
)

func app(name string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
}

func TestFirstMatchingRuleDecides(t *testing.T) {
	t.Parallel()
	p := &api.NodeRolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	p.Spec.DrainRules = []api.DrainRule{
		{Namespace: "shop", PodSelector: app("batch"), Action: api.DrainWaitForCompletion},
		{PodSelector: app("batch"), Order: 2},
		{Namespace: "storage", Order: 3},
		{PodSelector: app("first"), Order: -1},
		{PodSelector: app("agent"), Action: api.DrainSkip},
	}
	rules, err := drain.NewRules(p)
	require.NoError(t, err)
	const waits = "NodeRolloutPolicy worker waits for its completion"
	for _, tt := range []struct {
		namespace, app string
		phase          corev1.PodPhase
		order          int32
		delay          string
	}{
		{"shop", "batch", corev1.PodRunning, 0, waits},
		{"shop", "batch", corev1.PodPending, 0, waits},
		{"shop", "batch", corev1.PodSucceeded, 0, ""},
		{"shop", "batch", corev1.PodFailed, 0, ""},
		{"other", "batch", corev1.PodRunning, 2, ""},
		{"storage", "first", corev1.PodRunning, 3, ""},
		{"shop", "first", corev1.PodRunning, -1, ""},
		{"shop", "web", corev1.PodRunning, 0, ""},
		{"shop", "agent", corev1.PodRunning, 0, ""},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: tt.namespace, Labels: map[string]string{"app": tt.app}}}
		pod.Status.Phase = tt.phase
		assert.Equal(t, tt.order, rules.Order(pod), "%v", tt)
		assert.Equal(t, tt.delay, rules.Delay(pod), "%v", tt)
		assert.Equal(t, tt.app == "agent", rules.Skips(pod), "%v", tt)
		assert.False(t, drain.Rules{}.Skips(pod))
		assert.Zero(t, drain.Rules{}.Order(pod))
		assert.Empty(t, drain.Rules{}.Delay(pod))
	}
	assert.Zero(t, rules.Deletion(time.Unix(1000, 0)), "without the field, no pod is deleted")
	p.Spec.BlockedDrain.DeletePodsAfter.Duration = time.Minute
	deleting, err := drain.NewRules(p)
	require.NoError(t, err)
	assert.Equal(t, time.Unix(1060, 0), deleting.Deletion(time.Unix(1000, 0)))
	assert.Equal(t, "spec.blockedDrain.deletePodsAfter (60s) of NodeRolloutPolicy worker", deleting.DeletionReason())
	p.Spec.BlockedDrain.DeletePodsAfter.Duration = 0
	_, err = drain.NewRules(nil)
	require.NoError(t, err)

	nodes := []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}
	assert.Equal(t, map[string]drain.Rules{"n": rules}, drain.RulesByNode(p, nodes))
	assert.Empty(t, drain.RulesByNode(nil, nodes))
	assert.Empty(t, drain.RulesByNode(&api.NodeRolloutPolicy{Spec: api.NodeRolloutPolicySpec{DrainRules: p.Spec.DrainRules[:2]}}, nodes), "no pod is skipped")

	p.Spec.DrainRules[1].PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}
	_, err = drain.NewRules(p)
	assert.EqualError(t, err, `spec.drainRules[1].podSelector is invalid: "Like" is not a valid label selector operator`)
}
