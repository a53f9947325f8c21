package update

import (
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/health"
	"github.com/cluster-version/cvo/pkg/node/policy"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// checks has the results of the health checks of each pool. Every change of a Node needs those of all nodes, and an evaluation is slow. The zero value
// has none.
type checks map[string]*check

// check is an expression, compiled, and its results by node. invalid says why it cannot be compiled; nil if it can.
type check struct {
	expression string
	compiled   *health.Check
	invalid    error
	results    map[string]result
}

// result is the result for a version of a node.
type result struct {
	version   string
	isHealthy bool
	err       error
}

// of returns the health of a pool's nodes by its policy, which is nil if it has none. It adds the results to next.
func (c checks) of(p *mcfgv1.MachineConfigPool, nodes []*corev1.Node, rules *api.NodeRolloutPolicy, next checks) policy.Health {
	if rules == nil || rules.Spec.Health.NodeHealthyIf == "" {
		return policy.Health{}
	}
	own := c[p.Name]
	if own == nil || own.expression != rules.Spec.Health.NodeHealthyIf {
		own = &check{expression: rules.Spec.Health.NodeHealthyIf}
		own.compiled, own.invalid = health.Compile(own.expression)
	}
	next[p.Name] = own
	if own.invalid != nil {
		return policy.InvalidHealth(own.invalid)
	}
	results := make(map[string]result, len(nodes)) // without nodes that have left
	h := policy.NewHealth(rules, pool.Updated(p, nodes), func(n *corev1.Node) (bool, error) {
		r, ok := own.results[n.Name]
		if !ok || r.version != n.ResourceVersion {
			r = result{version: n.ResourceVersion}
			r.isHealthy, r.err = own.compiled.IsHealthy(n)
		}
		results[n.Name] = r
		return r.isHealthy, r.err
	})
	own.results = results
	return h
}

// mattersToPools reports whether a change of a node may change its pool. While a policy checks the health of nodes, all changes but heartbeats do.
func (r *pools) mattersToPools(before, after *corev1.Node) bool {
	return mattersToPools(before, after) || r.checksHealth.Load() &&
		!equality.Semantic.DeepEqual(withoutHeartbeats(before), withoutHeartbeats(after))
}

// withoutHeartbeats returns the status of a node without the times that change although nothing else does.
func withoutHeartbeats(n *corev1.Node) corev1.NodeStatus {
	status := n.Status
	status.Conditions = make([]corev1.NodeCondition, len(n.Status.Conditions))
	for i, c := range n.Status.Conditions {
		c.LastHeartbeatTime = metav1.Time{}
		status.Conditions[i] = c
	}
	return status
}
