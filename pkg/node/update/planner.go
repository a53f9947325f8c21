package update

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/pkg/node/drain"
	"github.com/cluster-version/cvo/pkg/node/plan"
)

// planner keeps an index of the pods in the cache, and makes plans. Listing the pods of 2,000 nodes for each plan would need a third of a second.
// It implements cache.ResourceEventHandler for pods.
type planner struct {
	// hasSynced reports whether the index has all pods.
	hasSynced func() bool

	mutex sync.Mutex
	index *plan.Index
	// versions identify the budgets of the index.
	versions map[types.NamespacedName]version
	// pods are the pods that a drain evicts without rules, as they were added. The index lacks those that the rules of their node skip.
	pods map[types.UID]*corev1.Pod
	// rules are the drain rules by node, and ruled identifies them, by node, too.
	rules map[string]drain.Rules
	ruled map[string]version
}

// version changes with the selector of a budget, or the drain rules of a policy.
type version struct {
	uid        types.UID
	generation int64
}

func newPlanner() *planner {
	return &planner{index: plan.NewIndex(nil), pods: map[types.UID]*corev1.Pod{}}
}

// add makes the planner follow the pods in the manager's cache.
func (x *planner) add(ctx context.Context, mgr manager.Manager) error {
	informer, err := mgr.GetCache().GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	registration, err := informer.AddEventHandler(x)
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	x.hasSynced = registration.HasSynced
	return nil
}

// OnAdd implements cache.ResourceEventHandler.
func (x *planner) OnAdd(o any, _ bool) { x.set(o) }

// OnUpdate implements cache.ResourceEventHandler.
func (x *planner) OnUpdate(_, o any) { x.set(o) }

// OnDelete implements cache.ResourceEventHandler.
func (x *planner) OnDelete(o any) {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	if pod, ok := o.(*corev1.Pod); ok {
		x.mutex.Lock()
		defer x.mutex.Unlock()
		x.remove(pod.UID)
	}
}

// set counts a pod if a drain evicts it. A pod whose DaemonSet was deleted is not counted, although a drain evicts it: the API server protects
// it anyway.
func (x *planner) set(o any) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	x.mutex.Lock()
	defer x.mutex.Unlock()
	x.remove(pod.UID)
	if drain.ActionFor(pod, func(_, _ string) bool { return true }) == drain.Evict {
		x.pods[pod.UID] = pod
		x.addToIndex(pod)
	}
}

func (x *planner) addToIndex(pod *corev1.Pod) {
	if !x.rules[pod.Spec.NodeName].Skips(pod) {
		x.index.AddPod(pod)
	}
}

func (x *planner) remove(uid types.UID) {
	pod, ok := x.pods[uid]
	if !ok {
		return
	}
	if !x.rules[pod.Spec.NodeName].Skips(pod) {
		x.index.RemovePod(pod)
	}
	delete(x.pods, uid)
}

// follow makes the planner follow the drain rules of pools.
func (x *planner) follow(rollouts []*rollout) {
	x.mutex.Lock()
	defer x.mutex.Unlock()
	isSame, nodes := true, 0
	for _, o := range rollouts {
		if !drain.HasSkips(o.policy) {
			continue
		}
		nodes += len(o.nodes)
		for _, n := range o.nodes {
			isSame = isSame && x.ruled[n.Name] == version{o.policy.UID, o.policy.Generation}
		}
	}
	if isSame && nodes == len(x.ruled) {
		return
	}
	x.rules, x.ruled = map[string]drain.Rules{}, map[string]version{}
	for _, o := range rollouts {
		if !drain.HasSkips(o.policy) {
			continue
		}
		rules, _ := drain.NewRules(o.policy) // none of an invalid policy, by which no node starts
		for _, n := range o.nodes {
			x.rules[n.Name], x.ruled[n.Name] = rules, version{o.policy.UID, o.policy.Generation}
		}
	}
	x.index, x.versions = plan.NewIndex(nil), nil // the next plan makes another one
}

// plan returns the plan for each pool.
func (x *planner) plan(budgets []policyv1.PodDisruptionBudget, pools []plan.Pool, now time.Time) []plan.Plan {
	x.mutex.Lock()
	defer x.mutex.Unlock()
	if x.areKnown(budgets) {
		for i := range budgets {
			x.index.SetStatus(&budgets[i])
		}
		return x.index.Plan(pools, now)
	}
	x.index, x.versions = plan.NewIndex(budgets), make(map[types.NamespacedName]version, len(budgets))
	for i := range budgets {
		x.versions[nameOf(&budgets[i])] = versionOf(&budgets[i])
	}
	for _, pod := range x.pods {
		x.addToIndex(pod)
	}
	return x.index.Plan(pools, now)
}

// refusal returns the budget that blocks the drain of a node, as namespace/name: it is the only one that allows no disruption now and protects a pod there, and
// the reported blocker names it. Otherwise refusal is empty: a webhook may be the reason.
func (x *planner) refusal(n *corev1.Node) string {
	x.mutex.Lock()
	defer x.mutex.Unlock()
	if zero, contested := x.index.Refusals(n.Name); len(zero) == 1 && len(contested) == 0 && drain.NamesBudget(drain.Blocker(n), zero[0].Name) {
		return zero[0].String()
	}
	return ""
}

// areKnown reports whether the index has these budgets, with these selectors, and no others.
func (x *planner) areKnown(budgets []policyv1.PodDisruptionBudget) bool {
	if len(budgets) != len(x.versions) {
		return false
	}
	for i := range budgets {
		if x.versions[nameOf(&budgets[i])] != versionOf(&budgets[i]) {
			return false
		}
	}
	return true
}

func nameOf(b *policyv1.PodDisruptionBudget) types.NamespacedName {
	return types.NamespacedName{Namespace: b.Namespace, Name: b.Name}
}

func versionOf(b *policyv1.PodDisruptionBudget) version { return version{b.UID, b.Generation} }
