package drain

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/cluster-version/cvo/pkg/api"
)

// Rules are what a NodeRolloutPolicy says about drains. The zero value has none.
type Rules struct {
	policy string
	rules  []rule
	// deletePodsAfter is spec.blockedDrain.deletePodsAfter.
	deletePodsAfter time.Duration
}

type rule struct {
	api.DrainRule
	selector labels.Selector
}

// NewRules returns the rules of a policy, which is nil for none. The error names the invalid field.
func NewRules(p *api.NodeRolloutPolicy) (Rules, error) {
	if p == nil {
		return Rules{}, nil
	}
	r := Rules{policy: p.Name, deletePodsAfter: p.Spec.BlockedDrain.DeletePodsAfter.Duration}
	for i, from := range p.Spec.DrainRules {
		selector, err := metav1.LabelSelectorAsSelector(&from.PodSelector)
		if err != nil {
			return Rules{}, fmt.Errorf("spec.drainRules[%d].podSelector is invalid: %w", i, err)
		}
		r.rules = append(r.rules, rule{from, selector})
	}
	return r, nil
}

// find returns the first rule that selects a pod; the zero value if none does.
func (r Rules) find(pod *corev1.Pod) api.DrainRule {
	for _, rule := range r.rules {
		if (rule.Namespace == "" || rule.Namespace == pod.Namespace) && rule.selector.Matches(labels.Set(pod.Labels)) && loses(pod, rule.Matching) {
			return rule.DrainRule
		}
	}
	return api.DrainRule{}
}

func loses(pod *corev1.Pod, what api.PodLoss) bool {
	switch what {
	case api.LossUnmanaged:
		return IsUnmanaged(pod)
	case api.LossLocalData:
		return HasLocalData(pod)
	}
	return true
}

// Skips reports whether a drain leaves a pod on the node that it would evict without rules.
func (r Rules) Skips(pod *corev1.Pod) bool { return r.find(pod).Action == api.DrainSkip }

// HasSkips reports whether a policy has a rule that skips pods.
func HasSkips(p *api.NodeRolloutPolicy) bool {
	return p != nil && slices.ContainsFunc(p.Spec.DrainRules, func(r api.DrainRule) bool { return r.Action == api.DrainSkip })
}

// Deletion returns the time at which a drain deletes a pod whose eviction has been refused since another time; zero if the rules allow no deletion.
func (r Rules) Deletion(refusedSince time.Time) time.Time {
	if r.deletePodsAfter == 0 {
		return time.Time{}
	}
	return refusedSince.Add(r.deletePodsAfter)
}

// DeletionReason says which rule allows to delete a pod, as a phrase that follows "by".
func (r Rules) DeletionReason() string {
	return fmt.Sprintf("spec.blockedDrain.deletePodsAfter (%s) of NodeRolloutPolicy %s", duration.HumanDuration(r.deletePodsAfter), r.policy)
}

// Order returns the order of a pod. A drain evicts a pod once all pods with a lower order are gone.
func (r Rules) Order(pod *corev1.Pod) int32 { return r.find(pod).Order }

// Delay says why a drain does not evict a pod yet that it would evict without rules; empty if it does.
func (r Rules) Delay(pod *corev1.Pod) string {
	if r.find(pod).Action != api.DrainWaitForCompletion || isFinished(pod) {
		return ""
	}
	return fmt.Sprintf("NodeRolloutPolicy %s waits for its completion", r.policy)
}
