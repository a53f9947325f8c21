package update

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/plan"
)

// newPod returns a ready pod on node n of an application, with its kind of owner.
func newPod(uid types.UID, app, owner string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: string(uid), UID: uid, Labels: map[string]string{"app": app},
		OwnerReferences: []metav1.OwnerReference{{Kind: owner, Name: app, Controller: new(true)}},
	}}
	p.Spec.NodeName = "n"
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	return p
}

// newBudget returns a budget of an application that allows no disruption now.
func newBudget(app string) policyv1.PodDisruptionBudget {
	b := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: app, UID: types.UID(app)}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	b.Status = policyv1.PodDisruptionBudgetStatus{ExpectedPods: 3, CurrentHealthy: 2, DesiredHealthy: 2}
	return b
}

func TestPlannerFollowsTheCache(t *testing.T) {
	x := newPlanner()
	budgets := []policyv1.PodDisruptionBudget{newBudget("web")}
	starts := func() bool {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		return len(x.plan(budgets, []plan.Pool{{Name: "worker", Candidates: []*corev1.Node{n}, Slots: 1}}, time.Now())[0].Start) == 1
	}
	web := newPod("1", "web", "ReplicaSet")
	x.OnAdd(newPod("2", "web", "DaemonSet"), true)
	assert.True(t, starts(), "a pod of a DaemonSet stays")
	x.OnAdd(web, true)
	assert.False(t, starts())

	budgets[0].Status.CurrentHealthy, budgets[0].Status.DisruptionsAllowed = 3, 1
	assert.True(t, starts(), "the budget allows a disruption")
	budgets[0].Status.CurrentHealthy, budgets[0].Status.DisruptionsAllowed = 2, 0
	assert.False(t, starts())

	deleted := web.DeepCopy()
	deleted.DeletionTimestamp = new(metav1.Now())
	x.OnUpdate(web, deleted)
	assert.True(t, starts(), "the pod is being deleted")
	x.OnUpdate(deleted, web)
	x.OnUpdate(web, web)
	x.OnDelete(cache.DeletedFinalStateUnknown{Obj: web})
	assert.True(t, starts(), "the pod is gone")

	x.OnAdd(newPod("3", "db", "StatefulSet"), false)
	assert.True(t, starts())
	budgets = append(budgets, newBudget("db"))
	assert.False(t, starts(), "the pod has a budget now")
	budgets[1].Spec.Selector.MatchLabels["app"] = "other"
	budgets[1].Generation++
	budgets[1].Status.ObservedGeneration++
	assert.True(t, starts(), "the budget selects other pods")
	budgets[1] = newBudget("db")
	assert.False(t, starts())
	budgets = budgets[:1]
	assert.True(t, starts(), "the budget was deleted")
}

// TestSkippedPodsNeedNoBudget has a pod that a budget protects, and rules that skip it.
func TestSkippedPodsNeedNoBudget(t *testing.T) {
	x := newPlanner()
	budgets := []policyv1.PodDisruptionBudget{newBudget("web")}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	rules := &api.NodeRolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	starts := func() bool {
		x.follow([]*rollout{{policy: rules, nodes: []*corev1.Node{n}}})
		return len(x.plan(budgets, []plan.Pool{{Name: "worker", Candidates: []*corev1.Node{n}, Slots: 1}}, time.Now())[0].Start) == 1
	}
	web := newPod("1", "web", "ReplicaSet")
	x.OnAdd(web, true)
	assert.False(t, starts())
	rules.Spec.DrainRules, rules.Generation = []api.DrainRule{{PodSelector: metav1.LabelSelector{MatchLabels: web.Labels}, Action: api.DrainSkip}}, 2
	assert.True(t, starts())
	index := x.index
	x.OnUpdate(web, web)
	assert.True(t, starts())
	assert.Same(t, index, x.index, "the rules have not changed")
	x.follow([]*rollout{{policy: rules, nodes: []*corev1.Node{n, {}}}})
	assert.Len(t, x.rules, 2)
	x.follow([]*rollout{{policy: rules}})
	assert.Empty(t, x.rules, "the nodes have left the pool")
	x.OnDelete(web)
	rules.Spec.DrainRules, rules.Generation = nil, 3
	assert.True(t, starts(), "the pod is gone")
	x.OnAdd(web, true)
	assert.False(t, starts())
	rules = nil
	assert.False(t, starts())
}

// TestBudgetOfABlockedDrainIsKnown has a node with a pod that a budget protects, and one that another budget protects.
func TestBudgetOfABlockedDrainIsKnown(t *testing.T) {
	x := newPlanner()
	x.OnAdd(newPod("1", "web", "ReplicaSet"), true)
	x.OnAdd(newPod("2", "db", "StatefulSet"), true)
	budgets := []policyv1.PodDisruptionBudget{newBudget("web"), newBudget("db")}
	refusal := func(zeroDB bool, blocker string) string {
		budgets[1].Status.DisruptionsAllowed = 1
		if zeroDB {
			budgets[1].Status.DisruptionsAllowed = 0
		}
		x.plan(budgets, nil, time.Now())
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeDrainInProgress, Reason: "Blocked", Message: blocker}}
		return x.refusal(n)
	}
	const byBudget = "Pod shop/1 stays: The disruption budget web needs 2 healthy pods and has 2 currently"
	assert.Equal(t, "shop/web", refusal(false, byBudget))
	assert.Empty(t, refusal(false, `Pod shop/2 stays: admission webhook "policy.example.com" denied the request`))
	assert.Empty(t, refusal(true, byBudget), "either one may refuse the next eviction")
}

// BenchmarkPlanner makes a plan for 2,000 nodes with 60,000 pods and 3,000 budgets.
func BenchmarkPlanner(b *testing.B) {
	const nodes, pods, apps = 2000, 60000, 3000
	x := newPlanner()
	input := plan.Pool{Name: "worker", Slots: nodes / 10, Used: nodes/10 - 1}
	for i := range nodes {
		input.Candidates = append(input.Candidates, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)}})
	}
	var budgets []policyv1.PodDisruptionBudget
	for i := range apps {
		budgets = append(budgets, newBudget(fmt.Sprintf("app-%d", i)))
		budgets[i].Status.ExpectedPods, budgets[i].Status.CurrentHealthy, budgets[i].Status.DisruptionsAllowed = 20, 20, 1
		budgets[i].Status.DesiredHealthy = 19
	}
	for i := range pods {
		p := newPod(types.UID(fmt.Sprint(i)), fmt.Sprintf("app-%d", i%apps), "ReplicaSet")
		p.Spec.NodeName = fmt.Sprintf("n%d", i*7919%nodes)
		x.OnAdd(p, true)
	}
	b.ReportAllocs()
	for b.Loop() {
		x.plan(budgets, []plan.Pool{input}, time.Now())
	}
}
