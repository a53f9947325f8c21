package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
)

// Index counts the pods that each PodDisruptionBudget protects on each node. It is not safe for concurrent use. For 2,000 nodes, 60,000 pods and
// 3,000 budgets, BenchmarkRound measures 24 ms to make an index, and 1 to 3 ms for a call of Plan.
type Index struct {
	budgets []budget
	ids     map[types.NamespacedName]int32
	// byLabel has the budgets whose selector requires a label with one value. It spares a pod the selectors of all other budgets.
	byLabel map[label][]int32
	// others has the remaining budgets of each namespace.
	others map[string][]int32
	nodes  map[string]*load
	// matched is the result of the last match. Its memory is used again.
	matched []int32
}

// label is a label of the pods in a namespace.
type label struct{ namespace, key, value string }

// budget is a PodDisruptionBudget.
type budget struct {
	name     types.NamespacedName
	selector labels.Selector
	// allowed is the number of evictions that the API server accepts now.
	allowed int32
	// most is the number of evictions that it accepts when all pods are healthy. It is 0 or less if the budget never allows one.
	most int32
	// expected, healthy and desired are the numbers of pods, of healthy pods and of pods that must be healthy.
	expected, healthy, desired int32
	// protectsUnready reports whether a pod that runs and is not ready needs the budget, too.
	protectsUnready bool
	// zeroSince is the time since which allowed is 0. The zero time is long ago.
	zeroSince time.Time
}

// load has the pods of a node that evictions must remove and that a budget protects.
type load struct {
	demands []demand
	// contested has pods that several budgets select, as namespace/name. The API server never evicts such a pod.
	contested []string
}

// demand is the number of pods on a node that a budget protects.
type demand struct {
	budget         int32
	ready, unready int32
}

// needs returns the number of evictions for which the budget decides.
func (d demand) needs(b *budget) int32 {
	if b.protectsUnready {
		return d.ready + d.unready
	}
	return d.ready
}

// load returns the load of a node, the zero value for a node without protected pods.
func (x *Index) load(n *corev1.Node) load {
	if l := x.nodes[n.Name]; l != nil {
		return *l
	}
	return load{}
}

// Refusals returns the budgets that allow no disruption now and protect pods on a node, and the pods that several budgets select, as
// namespace/name. The API server refuses to evict these pods.
func (x *Index) Refusals(node string) (zero []types.NamespacedName, contested []string) {
	l := x.nodes[node]
	if l == nil {
		return nil, nil
	}
	for _, d := range l.demands {
		if b := &x.budgets[d.budget]; b.allowed <= 0 && d.needs(b) > 0 {
			zero = append(zero, b.name)
		}
	}
	return zero, slices.Clone(l.contested)
}

// NewIndex returns an index of these budgets without pods. A budget with an invalid selector protects no pod.
func NewIndex(budgets []policyv1.PodDisruptionBudget) *Index {
	x := &Index{
		budgets: make([]budget, 0, len(budgets)), ids: make(map[types.NamespacedName]int32, len(budgets)),
		byLabel: make(map[label][]int32, len(budgets)), others: map[string][]int32{}, nodes: map[string]*load{},
	}
	for i := range budgets {
		selector, err := metav1.LabelSelectorAsSelector(budgets[i].Spec.Selector) // of nil, it selects nothing
		if err != nil {
			continue
		}
		id := int32(len(x.budgets))
		name := types.NamespacedName{Namespace: budgets[i].Namespace, Name: budgets[i].Name}
		x.budgets = append(x.budgets, budget{name: name, selector: selector})
		x.ids[name] = id
		x.budgets[id].set(&budgets[i])
		if key, value, ok := requiredLabel(selector); ok {
			required := label{name.Namespace, key, value}
			x.byLabel[required] = append(x.byLabel[required], id)
		} else {
			x.others[name.Namespace] = append(x.others[name.Namespace], id)
		}
	}
	return x
}

// requiredLabel returns a label that every selected pod has.
func requiredLabel(s labels.Selector) (key, value string, ok bool) {
	requirements, _ := s.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			if values := r.ValuesUnsorted(); len(values) == 1 {
				return r.Key(), values[0], true
			}
		default:
		}
	}
	return "", "", false
}

// SetStatus replaces what the index knows of a budget but its selector. It ignores a budget that the index does not have: make another index
// when a budget appears or its selector changes.
func (x *Index) SetStatus(b *policyv1.PodDisruptionBudget) {
	if id, ok := x.ids[types.NamespacedName{Namespace: b.Namespace, Name: b.Name}]; ok {
		x.budgets[id].set(b)
	}
}

// set follows the eviction handler of the API server: it refuses evictions until the budget's controller has seen the latest generation, and
// the budget's policy decides about pods that are not ready.
func (b *budget) set(from *policyv1.PodDisruptionBudget) {
	s := &from.Status
	b.allowed = s.DisruptionsAllowed
	if s.ObservedGeneration < from.Generation {
		b.allowed = 0
	}
	b.expected, b.healthy, b.desired = s.ExpectedPods, s.CurrentHealthy, s.DesiredHealthy
	b.most = s.ExpectedPods - s.DesiredHealthy
	policy := from.Spec.UnhealthyPodEvictionPolicy
	b.protectsUnready = (policy == nil || *policy != policyv1.AlwaysAllow) && (s.DesiredHealthy == 0 || s.CurrentHealthy < s.DesiredHealthy)
	b.zeroSince = time.Time{}
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == policyv1.DisruptionAllowedCondition && c.Status == metav1.ConditionFalse {
			b.zeroSince = c.LastTransitionTime.Time
		}
	}
}

// Frees reports whether a change of a budget may allow an eviction, or the start of a node, that the budget prevented before.
func Frees(before, after *policyv1.PodDisruptionBudget) bool {
	var b, a budget
	b.set(before)
	a.set(after)
	return a.allowed > b.allowed || a.most > b.most || b.protectsUnready && !a.protectsUnready ||
		!equality.Semantic.DeepEqual(before.Spec.Selector, after.Spec.Selector)
}

// neverAllows reports whether the budget refuses evictions even if all pods are healthy. Its status looks like that of a budget whose pods are
// not healthy now.
func (b *budget) neverAllows() bool { return b.most <= 0 && b.expected > 0 }

// AddPod adds a pod that a drain of its node would evict. It ignores a pod whose eviction no budget can refuse: one that has not started, has
// finished or is being deleted.
func (x *Index) AddPod(pod *corev1.Pod) { x.count(pod, 1) }

// RemovePod removes a pod that was added. The pod must have the labels, the node and the readiness that it had then.
func (x *Index) RemovePod(pod *corev1.Pod) { x.count(pod, -1) }

func (x *Index) count(pod *corev1.Pod, change int32) {
	if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodPending ||
		pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return
	}
	matched := x.match(pod)
	if len(matched) == 0 {
		return
	}
	l := x.nodes[pod.Spec.NodeName]
	if l == nil {
		l = &load{}
		x.nodes[pod.Spec.NodeName] = l
	}
	if len(matched) > 1 {
		l.contest(pod.Namespace+"/"+pod.Name, change)
		return
	}
	l.count(matched[0], change, isReady(pod))
}

// match returns the budgets that select a pod, until the next call.
func (x *Index) match(pod *corev1.Pod) []int32 {
	x.matched = x.matched[:0]
	add := func(ids []int32) {
		for _, id := range ids {
			if x.budgets[id].selector.Matches(labels.Set(pod.Labels)) {
				x.matched = append(x.matched, id)
			}
		}
	}
	for key, value := range pod.Labels {
		add(x.byLabel[label{pod.Namespace, key, value}])
	}
	add(x.others[pod.Namespace])
	return x.matched
}

func (l *load) contest(pod string, change int32) {
	if change > 0 {
		l.contested = append(l.contested, pod)
		return
	}
	for i := range l.contested {
		if l.contested[i] == pod {
			l.contested = append(l.contested[:i], l.contested[i+1:]...)
			return
		}
	}
}

func (l *load) count(id, change int32, ready bool) {
	i := 0
	for i < len(l.demands) && l.demands[i].budget != id {
		i++
	}
	if i == len(l.demands) {
		l.demands = append(l.demands, demand{budget: id})
	}
	d := &l.demands[i]
	if ready {
		d.ready += change
	} else {
		d.unready += change
	}
	if d.ready == 0 && d.unready == 0 {
		l.demands[i] = l.demands[len(l.demands)-1]
		l.demands = l.demands[:len(l.demands)-1]
	}
}

func isReady(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodReady {
			return pod.Status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}
