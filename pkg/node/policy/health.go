package policy

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
)

// nodeHealthyIf is the field with the expression about a Node.
const nodeHealthyIf = "spec.health.nodeHealthyIf"

// Health is the health of the nodes that run a pool's config. The zero value means that all are healthy, or that none is checked.
type Health struct {
	// Invalid says why the expression is invalid; empty if it is valid.
	Invalid string
	// Unhealthy is the number of nodes for which the expression is false.
	Unhealthy int
	// Why names the first of these nodes, and the first one for which the expression cannot be evaluated, with the reason; empty if all nodes are
	// healthy.
	Why string
}

// InvalidHealth returns the health of nodes by an invalid expression.
func InvalidHealth(err error) Health {
	return Health{Invalid: fmt.Sprintf("%s is invalid: %s", nodeHealthyIf, excerpt(err))}
}

// NewHealth returns the health of nodes by the expression of a policy. isHealthy evaluates it for a node.
func NewHealth(p *api.NodeRolloutPolicy, nodes []*corev1.Node, isHealthy func(*corev1.Node) (bool, error)) Health {
	var h Health
	var unhealthy, unknown string
	failures := 0
	for _, n := range nodes {
		switch is, err := isHealthy(n); {
		case err != nil:
			unknown = cmp.Or(unknown, fmt.Sprintf("cannot be evaluated for node %s: %s", n.Name, excerpt(err)))
			failures++
		case !is:
			unhealthy = cmp.Or(unhealthy, fmt.Sprintf("is false for node %s", n.Name))
			h.Unhealthy++
		}
	}
	var found []string
	if unhealthy != "" {
		found = append(found, printable.AndOthers(unhealthy, h.Unhealthy, "node"))
	}
	if unknown != "" {
		found = append(found, printable.AndOthers(unknown, failures, "node"))
	}
	if len(found) > 0 {
		h.Why = fmt.Sprintf("%s of NodeRolloutPolicy %s %s", nodeHealthyIf, p.Name, strings.Join(found, ", and "))
	}
	return h
}

// ReportedHealth returns the health that the controller has reported in the status of a policy. hasNewTarget is true if nodes are going to get another config
// than the pool has: then none runs it, so all are healthy.
func ReportedHealth(p *api.NodeRolloutPolicy, hasNewTarget bool) Health {
	if p == nil || p.Spec.Health.NodeHealthyIf == "" {
		return Health{}
	}
	var h Health
	accepted := meta.FindStatusCondition(p.Status.Conditions, api.PolicyAccepted)
	if accepted != nil && accepted.Reason == api.ReasonPolicyInvalid && strings.HasPrefix(accepted.Message, nodeHealthyIf) {
		h.Invalid = accepted.Message
	}
	if hasNewTarget {
		return h
	}
	h.Unhealthy = int(p.Status.UnhealthyNodes)
	switch c := meta.FindStatusCondition(p.Status.Conditions, api.PolicyNodesHealthy); {
	case c == nil:
		h.Why = fmt.Sprintf("the controller has not evaluated %s of NodeRolloutPolicy %s yet", nodeHealthyIf, p.Name)
	case c.Status != metav1.ConditionTrue:
		h.Why = c.Message
	}
	return h
}

// Report writes the number of unhealthy nodes to the status of a policy, and removes a condition about them that no longer applies. It returns the one that does; none
// if no node is checked.
func (h Health) Report(p *api.NodeRolloutPolicy) (conditions []metav1.Condition) {
	p.Status.UnhealthyNodes = int32(h.Unhealthy)
	if p.Spec.Health.NodeHealthyIf == "" || h.Invalid != "" {
		meta.RemoveStatusCondition(&p.Status.Conditions, api.PolicyNodesHealthy)
		return nil
	}
	c := metav1.Condition{Type: api.PolicyNodesHealthy, Status: metav1.ConditionTrue, Reason: api.ReasonNodesHealthy, Message: h.Why}
	switch {
	case h.Unhealthy > 0:
		c.Status, c.Reason = metav1.ConditionFalse, api.ReasonNodeUnhealthy
	case h.Why != "":
		c.Status, c.Reason = metav1.ConditionUnknown, api.ReasonNotEvaluated
	}
	return []metav1.Condition{c}
}

// Unhealthy says why no node of a pool starts by spec.health.poolUnhealthyIf of its policy, as a sentence without subject and period; empty if nodes may. results is the
// number of results of the query, and err says why they are not known.
func Unhealthy(p *api.NodeRolloutPolicy, results int, err error) string {
	switch {
	case err != nil:
		return unhealthy(p, "cannot be evaluated: "+excerpt(err))
	case results > 0:
		return unhealthy(p, "has "+printable.Count(results, "result"))
	}
	return ""
}

// NotEvaluated is like Unhealthy, before the first answer.
func NotEvaluated(p *api.NodeRolloutPolicy) string { return unhealthy(p, "is not evaluated yet") }

func unhealthy(p *api.NodeRolloutPolicy, found string) string {
	return fmt.Sprintf("waits until the pool is healthy: spec.health.poolUnhealthyIf of NodeRolloutPolicy %s %s", p.Name, found)
}

// isGood reports whether nothing is known that is not healthy, and everything is known.
func (h Health) isGood() bool { return h.Invalid == "" && h.Why == "" }

// excerpt returns the text of an error for a condition. It may quote what an administrator wrote.
func excerpt(err error) string { return printable.Text(printable.Excerpt(err.Error(), 256)) }
