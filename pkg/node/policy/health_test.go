package policy

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cluster-version/cvo/pkg/api"
)

const (
	oneUnhealthy = "spec.health.nodeHealthyIf of NodeRolloutPolicy worker is false for node n1"
	oneUnknown   = "spec.health.nodeHealthyIf of NodeRolloutPolicy worker cannot be evaluated for node n2: no such key: labels"
)

func checking() *api.NodeRolloutPolicy {
	p := &api.NodeRolloutPolicy{Spec: api.NodeRolloutPolicySpec{Health: api.NodeRolloutHealth{NodeHealthyIf: "node.a"}}}
	p.Name = "worker"
	return p
}

// TestHealthIsReported writes the health of nodes to the status of a policy, from which commands read it.
func TestHealthIsReported(t *testing.T) {
	t.Parallel()
	results := map[string]func() (bool, error){
		"h": func() (bool, error) { return true, nil },
		"u": func() (bool, error) { return false, nil },
		"e": func() (bool, error) { return false, errors.New("no such key: labels") },
	}
	for _, tt := range []struct {
		// nodes has a letter for each node: healthy, unhealthy and error.
		nodes  string
		want   Health
		status metav1.ConditionStatus
		reason string
	}{
		{"", Health{}, metav1.ConditionTrue, api.ReasonNodesHealthy},
		{"hh", Health{}, metav1.ConditionTrue, api.ReasonNodesHealthy},
		{"huh", Health{Unhealthy: 1, Why: oneUnhealthy}, metav1.ConditionFalse, api.ReasonNodeUnhealthy},
		{"huu", Health{Unhealthy: 2, Why: oneUnhealthy + " (and 1 other node)"}, metav1.ConditionFalse, api.ReasonNodeUnhealthy},
		{"hhe", Health{Why: oneUnknown}, metav1.ConditionUnknown, api.ReasonNotEvaluated},
		{"hueee", Health{Unhealthy: 1, Why: oneUnhealthy + ", and cannot be evaluated for node n2: no such key: labels (and 2 other nodes)"}, metav1.ConditionFalse, api.ReasonNodeUnhealthy},
	} {
		var nodes []*corev1.Node
		for i := range tt.nodes {
			nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n" + string(rune('0'+i))}})
		}
		p := checking()
		h := NewHealth(p, nodes, func(n *corev1.Node) (bool, error) { return results[tt.nodes[n.Name[1]-'0':][:1]]() })
		assert.Equal(t, tt.want, h, tt.nodes)

		assert.NotEmpty(t, ReportedHealth(p, false).Why, "it is not reported yet")
		for _, c := range h.Report(p) {
			meta.SetStatusCondition(&p.Status.Conditions, c)
		}
		c := meta.FindStatusCondition(p.Status.Conditions, api.PolicyNodesHealthy)
		assert.Equal(t, tt.status, c.Status, tt.nodes)
		assert.Equal(t, tt.reason, c.Reason, tt.nodes)
		assert.Equal(t, tt.want, ReportedHealth(p, false), tt.nodes)
		assert.Zero(t, ReportedHealth(p, true), "no node runs another target yet")

		p.Spec.Health.NodeHealthyIf = ""
		assert.Empty(t, Health{}.Report(p))
		assert.Nil(t, meta.FindStatusCondition(p.Status.Conditions, api.PolicyNodesHealthy), "a condition without check is removed")
		assert.Zero(t, p.Status.UnhealthyNodes)
		assert.Zero(t, ReportedHealth(p, false))
	}
	assert.Zero(t, ReportedHealth(nil, false))
}

func TestInvalidExpressionIsNamed(t *testing.T) {
	t.Parallel()
	p := checking()
	h := InvalidHealth(errors.New("line 1, column 3: \x1b" + strings.Repeat("x", 1000)))
	d := Decide([]Pool{{Name: "worker", Policy: p, Health: h}}, time.Time{})[0]
	assert.Contains(t, d.Invalid, "spec.health.nodeHealthyIf is invalid: line 1, column 3: ")
	assert.NotContains(t, d.Invalid, "\x1b")
	assert.Less(t, len(d.Invalid), 400)
	assert.Equal(t, "waits, because NodeRolloutPolicy worker is invalid: "+d.Invalid, d.Refusal)

	assert.Empty(t, h.Report(p))
	p.Status.Conditions = []metav1.Condition{{Type: api.PolicyAccepted, Status: metav1.ConditionFalse, Reason: api.ReasonPolicyInvalid, Message: d.Invalid}}
	assert.Equal(t, d.Invalid, ReportedHealth(p, true).Invalid)
	p.Status.Conditions[0].Message = "spec.dependsOn has a cycle: a, a"
	assert.Empty(t, ReportedHealth(p, true).Invalid)
}

// TestPoolWaitsForHealthyNodes has ten nodes, of which two run the config.
func TestPoolWaitsForHealthyNodes(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-11-28T10:00:00Z")
	unhealthy, unknown := Health{Unhealthy: 1, Why: oneUnhealthy}, Health{Why: oneUnknown}
	soaking := &api.NodeCanaryStatus{Config: "new", Since: metav1.NewTime(at(t, "2026-11-28T09:45:00Z"))}
	soaked := &api.NodeCanaryStatus{Config: "new", Since: metav1.NewTime(at(t, "2026-11-28T09:00:00Z"))}
	for _, tt := range []struct {
		name   string
		health Health
		budget int32
		failed int
		canary *api.NodeCanaryStatus
		want   Decision
	}{
		{"healthy nodes allow others", Health{}, 1, 0, nil, Decision{}},
		{"an unhealthy node stops others", unhealthy, 0, 0, nil, Decision{Refusal: "waits until the updated nodes are healthy: " + oneUnhealthy}},
		{"an unknown node stops others", unknown, 1, 0, nil, Decision{Refusal: "waits until the updated nodes are healthy: " + oneUnknown}},
		{"an unhealthy node counts as failed", unhealthy, 2, 1, nil, Decision{
			Halted:  "2 nodes failed, and the failure budget is 2: " + oneUnhealthy,
			Refusal: "waits, because NodeRolloutPolicy worker halted the pool: 2 nodes failed, and the failure budget is 2: " + oneUnhealthy,
		}},
		{"an unknown node does not count as failed", unknown, 1, 0, nil, Decision{Refusal: "waits until the updated nodes are healthy: " + oneUnknown}},
		{"an unhealthy canary proves nothing", unhealthy, 0, 0, soaking, Decision{Refusal: "waits until the updated nodes are healthy: " + oneUnhealthy}},
		{"an unknown canary proves nothing", unknown, 0, 0, soaking, Decision{Refusal: "waits until the updated nodes are healthy: " + oneUnknown}},
		{"a node that becomes unhealthy later disproves nothing", unhealthy, 0, 0, soaked, Decision{
			Canary: soaked, Refusal: "waits until the updated nodes are healthy: " + oneUnhealthy,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := checking()
			if tt.budget > 0 {
				p.Spec.FailureBudget = new(intstr.FromInt32(tt.budget))
			}
			if tt.canary != nil {
				p.Spec.Canary = &api.NodeCanary{Nodes: intstr.FromInt32(1), Soak: *minutes(30)}
				p.Status.Canary = tt.canary
			}
			assert.Equal(t, tt.want, Decide([]Pool{{Name: "worker", Policy: p, Nodes: 10, Failed: tt.failed, Config: "new", Started: 2, Done: 2, Health: tt.health}}, now)[0])
		})
	}
}

func TestResultOfAQueryStopsAPool(t *testing.T) {
	t.Parallel()
	const waits = "waits until the pool is healthy: spec.health.poolUnhealthyIf of NodeRolloutPolicy worker "
	for _, tt := range []struct {
		results int
		err     error
		want    string
	}{
		{0, nil, ""},
		{1, nil, waits + "has 1 result"},
		{2, nil, waits + "has 2 results"},
		{0, errors.New("no response\x1b in time"), waits + "cannot be evaluated: no response? in time"},
	} {
		assert.Equal(t, tt.want, Unhealthy(checking(), tt.results, tt.err))
	}
}

// TestDependentPoolWaitsForHealthyNodes has a pool that is updated, and another that depends on it.
func TestDependentPoolWaitsForHealthyNodes(t *testing.T) {
	t.Parallel()
	const waits = "waits for MachineConfigPool worker, on which NodeRolloutPolicy infra depends: "
	for _, tt := range []struct {
		health Health
		want   string
	}{
		{Health{}, ""},
		{Health{Unhealthy: 1, Why: oneUnhealthy}, waits + oneUnhealthy},
		{Health{Why: oneUnknown}, waits + oneUnknown},
		{Health{Invalid: "spec.health.nodeHealthyIf is invalid: x"}, waits + "spec.health.nodeHealthyIf is invalid: x"},
	} {
		infra := &api.NodeRolloutPolicy{Spec: api.NodeRolloutPolicySpec{DependsOn: []string{"worker"}}}
		d := Decide([]Pool{{Name: "worker", Policy: checking(), Updated: true, Health: tt.health}, {Name: "infra", Policy: infra}}, time.Time{})
		assert.Equal(t, tt.want, d[1].Refusal)
	}
}
