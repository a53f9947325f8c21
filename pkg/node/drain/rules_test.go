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

// TestRulesSelectPodsThatLoseSomething has a rule for each loss, of which the first one has a namespace.
func TestRulesSelectPodsThatLoseSomething(t *testing.T) {
	t.Parallel()
	p := &api.NodeRolloutPolicy{}
	p.Spec.DrainRules = []api.DrainRule{{Namespace: "shop", Matching: api.LossUnmanaged, Order: 1}, {Matching: api.LossLocalData, Order: 2}}
	rules, err := drain.NewRules(p)
	require.NoError(t, err)
	data := []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	other := []corev1.Volume{{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}}}
	for _, tt := range []struct {
		name, namespace string
		owner           []metav1.OwnerReference
		volumes         []corev1.Volume
		order           int32
	}{
		{"a bare pod", "shop", nil, nil, 1},
		{"a bare pod with data", "shop", nil, data, 1},
		{"a bare pod elsewhere", "other", nil, nil, 0},
		{"a bare pod with data elsewhere", "other", nil, data, 2},
		{"a pod of a set", "shop", ownedBy("ReplicaSet", "web"), nil, 0},
		{"a pod of a set with data", "shop", ownedBy("ReplicaSet", "web"), data, 2},
		{"a pod of a set with other volumes", "shop", ownedBy("ReplicaSet", "web"), other, 0},
		{"a pod with an owner that is no controller", "shop", []metav1.OwnerReference{{Kind: "Backup"}}, nil, 1},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: tt.namespace, OwnerReferences: tt.owner}, Spec: corev1.PodSpec{Volumes: tt.volumes}}
		assert.Equal(t, tt.order, rules.Order(pod), tt.name)
		assert.Equal(t, tt.order, rules.Order(drain.Reduce(pod)), tt.name)
	}
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

	assert.True(t, drain.HasSkips(p))
	assert.False(t, drain.HasSkips(nil))
	assert.False(t, drain.HasSkips(&api.NodeRolloutPolicy{Spec: api.NodeRolloutPolicySpec{DrainRules: p.Spec.DrainRules[:2]}}))

	p.Spec.DrainRules[1].PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}
	_, err = drain.NewRules(p)
	assert.EqualError(t, err, `spec.drainRules[1].podSelector is invalid: "Like" is not a valid label selector operator`)
}
