//go:build linux

package nodes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	cvo "github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/node/pool"
	"github.com/cluster-version/cvo/pkg/view/nodes"
)

// TestControllerFollowsThePlan plans a MachineConfig that is not applied, applies it, and compares the controller's choice with the plan.
func TestControllerFollowsThePlan(t *testing.T) {
	s := start(t, "n1", "n2", "n3")
	s.config("00-worker", map[string]string{"/etc/motd": "hello"})
	before := s.updated("")
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	require.NoError(t, s.client.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"maxUnavailable":3}}`))))
	for _, name := range []string{"n1", "n2", "n3"} {
		s.pod("app-on-"+name, name)
	}
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "app-on-n2"}}},
	}
	require.NoError(t, s.client.Create(t.Context(), budget))
	t.Cleanup(func() { assert.NoError(t, s.client.Delete(context.WithoutCancel(t.Context()), budget)) })
	budget.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: budget.Generation, ExpectedPods: 3, CurrentHealthy: 2, DesiredHealthy: 2,
		Conditions: []metav1.Condition{{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason,
			LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)),
		}},
	}
	require.NoError(t, s.client.Status().Update(t.Context(), budget))

	plan := s.plan(`{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": {"name": "50-motd",
		"labels": {"machineconfiguration.openshift.io/role": "worker"}}, "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage":
		{"files": [{"path": "/etc/issue", "contents": {"source": "data:,hello"}}]}}}}`)
	assert.Equal(t, before, plan.Config)
	require.Len(t, plan.Nodes, 3)

	s.restart() // so that the controller has seen the budget
	s.config("50-motd", map[string]string{"/etc/issue": "hello"})
	s.eventually(func(c *assert.CollectT) {
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: "worker"}, p))
		assert.Equal(c, plan.Target, p.Spec.Configuration.Name)
		for _, n := range plan.Nodes {
			want := before
			if n.Turn == nodes.Start {
				want = plan.Target
			}
			assert.Equal(c, want, s.node(n.Name).Annotations[api.DesiredConfigAnnotation], n.Name)
		}
		last := plan.Nodes[2]
		assert.Equal(c, "Node "+last.Name+" "+last.Why, pool.Message(p, pool.NodesWaiting))
	})
	assert.Equal(t, []string{"n1 Start", "n3 Start", "n2 Wait"}, turns(plan))
	// The rest of the plan does not change while the nodes drain.
	after := s.plan("")
	assert.Equal(t, []string{"n1 Running", "n3 Running", "n2 Wait"}, turns(after))
	assert.Equal(t, plan.Nodes[2].Why, after.Nodes[2].Why)
}

func turns(p nodes.PoolPlan) []string {
	out := make([]string, len(p.Nodes))
	for i, n := range p.Nodes {
		out[i] = n.Name + " " + string(n.Turn)
	}
	return out
}

// plan returns the plan of cvo nodes plan for the workers. added has MachineConfigs, or is empty.
func (s *stage) plan(added string) nodes.PoolPlan {
	s.t.Helper()
	return s.planOf(api.WorkerPool, added)
}

// cvo runs a command of an administrator and returns its output.
func (s *stage) cvo(in string, args ...string) (output []byte) {
	s.t.Helper()
	var out, errs bytes.Buffer
	cmd := cvo.New(command.Streams{In: strings.NewReader(in), Out: &out, Err: &errs})
	cmd.SetArgs(append(args, "--kubeconfig", s.env.Kubeconfig))
	require.NoError(s.t, cmd.ExecuteContext(s.t.Context()), errs.String())
	return out.Bytes()
}

// planOf is like plan, for a pool.
func (s *stage) planOf(pool, added string) nodes.PoolPlan {
	s.t.Helper()
	args := []string{"nodes", "plan", pool, "-o", "json"}
	if added != "" {
		args = append(args, "-f", "-")
	}
	var plan nodes.Plan
	require.NoError(s.t, json.Unmarshal(s.cvo(added, args...), &plan))
	require.Len(s.t, plan.Pools, 1)
	return plan.Pools[0]
}
