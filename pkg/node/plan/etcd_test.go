package plan_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/node/plan"
)

func TestEtcdKeepsItsOtherMembers(t *testing.T) {
	const zero = "waits for PodDisruptionBudget shop/etcd, which allows no disruption now: 2 pods are healthy, and 2 must be"
	for _, tt := range []struct {
		name    string
		nodes   string // the first one is to start; a0 is an arbiter
		budgets string
		want    string
	}{
		{name: "it allows a cluster without etcd pods", nodes: "m0: m1:"},
		{name: "it allows the only member", nodes: "m0:etcd!"},
		{name: "it allows the only control-plane node", nodes: "m0:etcd!", budgets: "etcd:1/0/1"},
		{name: "it requires the other members", nodes: "m0:etcd m1:etcd m2:etcd!", want: "waits for the etcd member on node m2: pod shop/etcd-m2-0 is not ready"},
		{name: "it ignores the node's own member", nodes: "m0:etcd! m1:etcd m2:etcd"},
		{name: "it requires the member of an arbiter beside one master", nodes: "m0:etcd a0:etcd!", want: "waits for the etcd member on node a0: pod shop/etcd-a0-0 is not ready"},
		{name: "it obeys a budget of etcd", nodes: "m0:etcd m1:etcd m2:etcd!", budgets: "etcd:3/2/2", want: zero},
		{name: "it leaves the decision to a budget of etcd", nodes: "m0:etcd m1:etcd m2:etcd!", budgets: "etcd:3/2/1"},
		{name: "a budget does not protect a member that is down", nodes: "m0:etcd! m1:etcd m2:etcd", budgets: "etcd:3/2/2"},
		{name: "it obeys a budget that is violated", nodes: "m0:etcd! m1:etcd m2:etcd!", budgets: "etcd:3/1/2", want: strings.Replace(zero, "2 pods are", "1 pods are", 1)},
		{name: "it ignores other budgets", nodes: "m0:etcd m1:etcd", budgets: "web:3/2/2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nodes, pods := parseNodes(t, tt.nodes)
			for _, n := range nodes {
				role := map[bool]string{true: "arbiter", false: "control-plane"}[n.Name == "a0"]
				n.Labels = map[string]string{"node-role.kubernetes.io/" + role: ""}
			}
			members := make([]corev1.Pod, len(pods))
			for i, p := range pods {
				members[i] = *p
			}
			assert.Equal(t, tt.want, plan.EtcdRefusal(nodes[0], nodes, members, parseBudgets(t, tt.budgets)))
		})
	}
	nodes, pods := parseNodes(t, "m0:etcd m1:etcd")
	nodes[1].Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
	elsewhere := parseBudgets(t, "etcd:3/2/2")
	elsewhere[0].Namespace = "other"
	assert.Empty(t, plan.EtcdRefusal(nodes[0], nodes, []corev1.Pod{*pods[0], *pods[1]}, elsewhere))
}
