package drain

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cluster-version/cvo/pkg/api"
)

// Rules are the drain rules of a NodeRolloutPolicy. The zero value has none.
type Rules struct {
	policy string
	rules  []rule
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
	r := Rules{policy: p.Name}
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
		if (rule.Namespace == "" || rule.Namespace == pod.Namespace) && rule.selector.Matches(labels.Set(pod.Labels)) {
			return rule.DrainRule
		}
	}
	return api.DrainRule{}
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
