package plan_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/node/plan"
)

// starts reports whether a single node starts.
func starts(x *plan.Index, n *corev1.Node) bool {
	return len(x.Plan([]plan.Pool{{Name: "worker", Candidates: []*corev1.Node{n}, Slots: 1}}, now)[0].Start) == 1
}

func TestBudgetsSelectPods(t *testing.T) {
	in := func(key string, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values},
		}}
	}
	for _, tt := range []struct {
		name      string
		namespace string
		selector  *metav1.LabelSelector
		protects  bool
	}{
		{"it has the label", "shop", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, true},
		{"it has both labels", "shop", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "tier": "front"}}, true},
		{"it has one of two labels", "shop", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "tier": "back"}}, false},
		{"it has another value", "shop", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, false},
		{"it is in another namespace", "bank", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, false},
		{"it has one of the values", "shop", in("app", "db", "web"), true},
		{"it has none of the values", "shop", in("app", "db", "queue"), false},
		{"it has the only value", "shop", in("app", "web"), true},
		{"the selector is empty", "shop", &metav1.LabelSelector{}, true},
		{"the selector is missing", "shop", nil, false},
		{"the selector is invalid", "shop", in("app"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			budgets := parseBudgets(t, "web:3/2/2")
			budgets[0].Namespace, budgets[0].Spec.Selector = tt.namespace, tt.selector
			nodes, pods := parseNodes(t, "a:web")
			pods[0].Labels = map[string]string{"app": "web", "tier": "front"}
			x := plan.NewIndex(budgets)
			x.AddPod(pods[0])

			assert.Equal(t, tt.protects, !starts(x, nodes[0]))
		})
	}
}

func TestPodsWithoutProtection(t *testing.T) {
	deleted := metav1.NewTime(now)
	for _, tt := range []struct {
		name   string
		change func(*corev1.Pod)
	}{
		{"it has not started", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }},
		{"it has succeeded", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
		{"it has failed", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }},
		{"it is being deleted", func(p *corev1.Pod) { p.DeletionTimestamp = &deleted }},
		{"it has no node", func(p *corev1.Pod) { p.Spec.NodeName = "" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nodes, pods := parseNodes(t, "a:web")
			tt.change(pods[0])
			x := plan.NewIndex(parseBudgets(t, "web:3/2/2"))
			x.AddPod(pods[0])

			assert.True(t, starts(x, nodes[0]))
		})
	}
}

func TestIndexFollowsPodsAndBudgets(t *testing.T) {
	nodes, pods := parseNodes(t, "a:web,web! b:web+db")
	budgets := parseBudgets(t, "web:3/2/2 db:3/3/2")
	x := plan.NewIndex(budgets)
	for _, p := range pods {
		x.AddPod(p)
	}
	assert.False(t, starts(x, nodes[0]))
	x.RemovePod(pods[1])
	assert.False(t, starts(x, nodes[0]))

	budgets[0].Status.CurrentHealthy, budgets[0].Status.DisruptionsAllowed = 3, 1
	x.SetStatus(&budgets[0])
	assert.True(t, starts(x, nodes[0]))

	budgets[0].Status.CurrentHealthy, budgets[0].Status.DisruptionsAllowed = 2, 0
	x.SetStatus(&budgets[0])
	x.RemovePod(pods[0])
	assert.True(t, starts(x, nodes[0]), "no pod is left")

	db, _ := parseNodes(t, "b:")
	worker := plan.Pool{Name: "worker", Candidates: append(nodes[1:2:2], db...), Slots: 1}
	assert.Len(t, x.Plan([]plan.Pool{worker}, now)[0].Start, 1)
	x.RemovePod(pods[2])
	assert.True(t, starts(x, nodes[1]))

	x.SetStatus(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "unknown"}})
}

// BenchmarkRound is a round for one pool of 2,000 nodes, of which 10 % start, with 60,000 pods and 3,000 budgets. One benchmark has the index,
// the other makes it.
func BenchmarkRound(b *testing.B) {
	const nodeCount, podCount, apps = 2000, 60000, 3000
	random := rand.New(rand.NewPCG(1, 1))
	var nodes []*corev1.Node
	for i := range nodeCount {
		nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)}})
	}
	var budgets []policyv1.PodDisruptionBudget
	for i := range apps {
		allowed := 1 + random.Int32N(4)
		name := fmt.Sprintf("app-%d", i)
		budgets = append(budgets, policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}},
			Status:     policyv1.PodDisruptionBudgetStatus{ExpectedPods: 20, CurrentHealthy: 20, DesiredHealthy: 20 - allowed, DisruptionsAllowed: allowed},
		})
	}
	var pods []*corev1.Pod
	for i := range podCount {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("pod-%d", i)}}
		p.Labels = map[string]string{"app": fmt.Sprintf("app-%d", i%apps), "pod-template-hash": "5d9f8c7b6"}
		p.Spec.NodeName = nodes[random.IntN(nodeCount)].Name
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		pods = append(pods, p)
	}
	index := func() *plan.Index {
		x := plan.NewIndex(budgets)
		for _, p := range pods {
			x.AddPod(p)
		}
		return x
	}
	x := index()
	for _, free := range []int{1, nodeCount / 10} {
		b.Run(fmt.Sprintf("plan/%d slots", free), func(b *testing.B) {
			for b.Loop() {
				x.Plan([]plan.Pool{{Name: "worker", Candidates: nodes, Slots: nodeCount / 10, Used: nodeCount/10 - free}}, now.Add(time.Hour))
			}
		})
	}
	b.Run("index", func(b *testing.B) {
		for b.Loop() {
			index()
		}
	})
}

func TestFreesAnEvictionOrANode(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*policyv1.PodDisruptionBudget)
		want   bool
	}{
		{"it allows one more disruption", func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed++ }, true},
		{"it allows one less", func(b *policyv1.PodDisruptionBudget) { b.Status.DisruptionsAllowed-- }, false},
		{"only the time of a condition changes", func(b *policyv1.PodDisruptionBudget) {
			b.Status.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, LastTransitionTime: metav1.NewTime(now)}}
		}, false},
		{"its status is not current anymore", func(b *policyv1.PodDisruptionBudget) { b.Generation++ }, false},
		{"enough pods are healthy to evict the others", func(b *policyv1.PodDisruptionBudget) { b.Status.CurrentHealthy = 2 }, true},
		{"it allows disruptions once all pods are healthy", func(b *policyv1.PodDisruptionBudget) { b.Status.ExpectedPods++ }, true},
		{"it selects other pods", func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = nil }, true},
		{"it has another label", func(b *policyv1.PodDisruptionBudget) { b.Labels = map[string]string{"changed": ""} }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := &policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}}}
			before.Status = policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1, ExpectedPods: 3, CurrentHealthy: 1, DesiredHealthy: 2}
			after := before.DeepCopy()
			tt.change(after)
			assert.Equal(t, tt.want, plan.Frees(before, after))
		})
	}
}
