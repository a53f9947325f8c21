//go:build linux

package nodes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	nodepool "github.com/cluster-version/cvo/pkg/node/pool"
	"github.com/cluster-version/cvo/pkg/view/nodes"
	"github.com/cluster-version/cvo/test/fixture"
)

// policy creates the NodeRolloutPolicy of the workers, or changes it.
func (s *stage) policy(change func(*api.NodeRolloutPolicySpec)) {
	s.t.Helper()
	p := &api.NodeRolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: api.WorkerPool}}
	if s.client.Get(s.t.Context(), client.ObjectKeyFromObject(p), p) != nil {
		change(&p.Spec)
		require.NoError(s.t, s.client.Create(s.t.Context(), p))
		return
	}
	change(&p.Spec)
	require.NoError(s.t, s.client.Update(s.t.Context(), p))
}

// hold sets the reason for which a node is held, or releases it if the reason is empty.
func (s *stage) hold(node, reason string) {
	s.t.Helper()
	value := "null"
	if reason != "" {
		value = fmt.Sprintf("%q", reason)
	}
	patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %s}}}`, api.NodeHoldAnnotation, value)
	require.NoError(s.t, s.client.Patch(s.t.Context(), s.node(node), client.RawPatch(types.MergePatchType, patch)))
}

// waits waits until the worker pool says why its nodes wait, and checks that none runs another config than before.
func (s *stage) waits(why, before string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		p := &mcfgv1.MachineConfigPool{}
		require.NoError(c, s.client.Get(s.t.Context(), client.ObjectKey{Name: api.WorkerPool}, p))
		assert.Contains(c, nodepool.Message(p, nodepool.NodesWaiting), why)
	})
	for name := range s.hosts {
		assert.Equal(s.t, before, s.node(name).Annotations[api.DesiredConfigAnnotation], name)
	}
}

// condition waits until a condition of the workers' policy has a reason, and returns its message.
func (s *stage) policyCondition(kind, reason string) (message string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		p := &api.NodeRolloutPolicy{}
		require.NoError(c, s.client.Get(s.t.Context(), client.ObjectKey{Name: api.WorkerPool}, p))
		condition := meta.FindStatusCondition(p.Status.Conditions, kind)
		require.NotNil(c, condition)
		assert.Equal(c, reason, condition.Reason)
		assert.Equal(c, p.Generation, p.Status.ObservedGeneration)
		message = condition.Message
	})
	return message
}

// TestPolicyDecidesWhenNodesStart changes the policy of a pool until its nodes may start.
func TestPolicyDecidesWhenNodesStart(t *testing.T) {
	s := start(t, "n1", "n2")
	s.config("00-worker", nil)
	s.configFor(api.ControlPlanePool, "00-master", nil)
	before := s.updated("")

	now := time.Now().UTC()
	s.policy(func(spec *api.NodeRolloutPolicySpec) {
		start := now.Add(-2 * time.Hour).Format("15:04")
		spec.Windows = []api.UpdateWindow{{Start: start, End: start, TimeZone: "Europe/Praha"}}
	})
	assert.Contains(t, s.policyCondition(api.PolicyAccepted, api.ReasonPolicyInvalid), `timeZone is "Europe/Praha"`)
	s.config("50-a", map[string]string{"/etc/a": "1"})
	s.waits("NodeRolloutPolicy worker is invalid", before)

	s.policy(func(spec *api.NodeRolloutPolicySpec) {
		spec.Windows[0] = api.UpdateWindow{Start: now.Add(3 * time.Hour).Format("15:04"), End: now.Add(4 * time.Hour).Format("15:04")}
	})
	s.policyCondition(api.PolicyAccepted, api.ReasonPolicyAccepted)
	s.waits("waits for the next window of NodeRolloutPolicy worker in which it can be done, at ", before)

	s.policy(func(spec *api.NodeRolloutPolicySpec) { spec.DependsOn, spec.Windows = []string{api.WorkerPool}, nil })
	assert.Equal(t, "spec.dependsOn has a cycle: worker, worker", s.policyCondition(api.PolicyAccepted, api.ReasonPolicyInvalid))

	s.configFor(api.ControlPlanePool, "99-master", map[string]string{"/proc/a": "1"})
	s.policy(func(spec *api.NodeRolloutPolicySpec) { spec.DependsOn = []string{api.ControlPlanePool} })
	s.waits("waits for MachineConfigPool master, on which NodeRolloutPolicy worker depends: it has no valid config: MachineConfig 99-master is invalid", before)
	s.policyCondition(api.PolicyAccepted, api.ReasonPolicyAccepted)

	s.hold("n1", "the vendor examines it")
	s.hold("n2", "so it is here")
	require.NoError(t, s.client.Delete(t.Context(), &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "99-master"}})) // the pool has no nodes
	s.waits("is held by annotation cvo.cluster-version.github.io/hold: ", before)
	assert.Empty(t, s.cordoned())

	s.hold("n1", "")
	s.hold("n2", "")
	s.updated(before)
}

// TestOthersWaitForTheCanary has three nodes that could all start at once.
func TestOthersWaitForTheCanary(t *testing.T) {
	s := start(t, "n1", "n2", "n3")
	s.config("00-worker", nil)
	before := s.updated("")
	three := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"maxUnavailable": 3}}`))
	require.NoError(t, s.client.Patch(t.Context(), &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: api.WorkerPool}}, three))
	soak := func(d time.Duration) {
		s.policy(func(spec *api.NodeRolloutPolicySpec) {
			spec.Canary = &api.NodeCanary{Nodes: intstr.FromInt32(1), Soak: metav1.Duration{Duration: d}}
		})
	}
	soak(time.Hour)
	s.policyCondition(api.PolicyAccepted, api.ReasonPolicyAccepted)
	s.config("50-a", map[string]string{"/etc/a": "1"})
	s.eventually(func(c *assert.CollectT) {
		p := &mcfgv1.MachineConfigPool{}
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: api.WorkerPool}, p))
		assert.Contains(c, nodepool.Message(p, nodepool.NodesWaiting), "waits until the canaries of NodeRolloutPolicy worker have run the config for 60m, at ")
		assert.EqualValues(c, 1, p.Status.UpdatedMachineCount)
		policy := &api.NodeRolloutPolicy{}
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: api.WorkerPool}, policy))
		require.NotNil(c, policy.Status.Canary)
		assert.Equal(c, p.Spec.Configuration.Name, policy.Status.Canary.Config)
	})
	isOld := 0
	for name := range s.hosts {
		if s.node(name).Annotations[api.DesiredConfigAnnotation] == before {
			isOld++
		}
	}
	assert.Equal(t, 2, isOld)
	soak(0)
	s.updated(before)
}

// TestFailureBudgetHaltsAPool lets the host of one of three nodes reject a config. The two others keep their config until the failed config is
// deleted, also while the first one tries it again.
func TestFailureBudgetHaltsAPool(t *testing.T) {
	s := start(t, "n1", "n2", "n3")
	s.config("00-worker", nil)
	before := s.updated("")
	// All could start at once if the first did not fail.
	three := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"maxUnavailable": 3}}`))
	require.NoError(t, s.client.Patch(t.Context(), &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: api.WorkerPool}}, three))
	s.hold("n2", "after n1")
	s.hold("n3", "after n1")
	s.policy(func(spec *api.NodeRolloutPolicySpec) { spec.FailureBudget = new(intstr.FromString("1%")) })

	require.NoError(t, os.MkdirAll(filepath.Join(s.hosts["n1"], "etc/a/folder"), 0o755)) // where the config has a file
	s.config("50-a", map[string]string{"/etc/a": "1"})
	assert.Equal(t, "1 node failed, and the failure budget is 1%", s.policyCondition(api.PolicyHalted, api.ReasonFailureBudgetExhausted))
	s.hold("n2", "")
	s.hold("n3", "")
	s.eventually(func(c *assert.CollectT) {
		p := &mcfgv1.MachineConfigPool{}
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: api.WorkerPool}, p))
		assert.Contains(c, nodepool.Message(p, nodepool.NodesWaiting), "NodeRolloutPolicy worker halted the pool: 1 node failed")
	})
	end := s.pod("app-on-n1", "n1") // it keeps the next attempt from its end
	s.cvo("", "nodes", "retry", "n1")
	s.eventuallyDeleted("app-on-n1")
	assert.Equal(t, api.NodeWorking, s.node("n1").Annotations[api.NodeStateAnnotation])
	for _, name := range []string{"n2", "n3"} {
		assert.Equal(t, before, s.node(name).Annotations[api.DesiredConfigAnnotation])
	}
	end()
	require.NoError(t, s.client.Delete(t.Context(), &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "50-a"}}))
	s.policyCondition(api.PolicyHalted, api.ReasonWithinFailureBudget)
	s.eventually(func(c *assert.CollectT) {
		for name := range s.hosts {
			assert.True(c, nodepool.IsDone(s.node(name)), name)
		}
	})
}

// TestOthersWaitForHealthyNodes has three nodes, of which one starts. The others wait until its status says that it is healthy.
func TestOthersWaitForHealthyNodes(t *testing.T) {
	s := start(t, "n1", "n2", "n3")
	s.config("00-worker", nil)
	before := s.updated("")
	s.policy(func(spec *api.NodeRolloutPolicySpec) {
		spec.FailureBudget = new(intstr.FromInt32(1))
		spec.Health.NodeHealthyIf = "node.status.conditions.filter(c, c.type == 'GPU')[0].status == 'True' && machine"
	})
	assert.Equal(t, "spec.health.nodeHealthyIf is invalid: line 1, column 74: undeclared reference to 'machine'", s.policyCondition(api.PolicyAccepted, api.ReasonPolicyInvalid))
	assert.Equal(t, "waits, because NodeRolloutPolicy worker is invalid: spec.health.nodeHealthyIf is invalid: line 1, column 74: undeclared reference to 'machine'", s.planned("50-a"))
	s.policy(func(spec *api.NodeRolloutPolicySpec) {
		spec.Health.NodeHealthyIf = "node.status.conditions.filter(c, c.type == 'GPU')[0].status == 'True'"
	})
	s.policyCondition(api.PolicyAccepted, api.ReasonPolicyAccepted)
	s.policyCondition(api.PolicyNodesHealthy, api.ReasonNotEvaluated)
	assert.Empty(t, s.planned("50-a"), "nodes with the former config do not matter")

	s.config("50-a", map[string]string{"/etc/a": "1"})
	updated := func() (names []string) {
		for name := range s.hosts {
			if n := s.node(name); n.Annotations[api.CurrentConfigAnnotation] != before && nodepool.IsDone(n) && !n.Spec.Unschedulable {
				names = append(names, name)
			}
		}
		return names
	}
	s.eventually(func(c *assert.CollectT) { assert.Len(c, updated(), 1) })
	first := updated()[0]
	unknown := "spec.health.nodeHealthyIf of NodeRolloutPolicy worker cannot be evaluated for node " + first + ": index out of bounds: 0"
	s.eventually(func(*assert.CollectT) {
		assert.Equal(t, unknown, s.policyCondition(api.PolicyNodesHealthy, api.ReasonNotEvaluated))
	})
	s.policyCondition(api.PolicyHalted, api.ReasonWithinFailureBudget)
	assert.Equal(t, "waits until the updated nodes are healthy: "+unknown, s.planned(""))

	s.report(first, "GPU", corev1.ConditionFalse)
	s.policyCondition(api.PolicyNodesHealthy, api.ReasonNodeUnhealthy)
	halted := "1 node failed, and the failure budget is 1: spec.health.nodeHealthyIf of NodeRolloutPolicy worker is false for node " + first
	assert.Equal(t, halted, s.policyCondition(api.PolicyHalted, api.ReasonFailureBudgetExhausted))
	assert.Equal(t, "waits, because NodeRolloutPolicy worker halted the pool: "+halted, s.planned(""))
	assert.Len(t, updated(), 1)

	for name := range s.hosts {
		s.report(name, "GPU", corev1.ConditionTrue)
	}
	s.updated(before)
	s.policyCondition(api.PolicyNodesHealthy, api.ReasonNodesHealthy)
	s.policyCondition(api.PolicyHalted, api.ReasonWithinFailureBudget)
}

// TestNodesWaitForMetrics has a Prometheus with two alerts. Each change of the query is a new one, so the controller sends it at once.
func TestNodesWaitForMetrics(t *testing.T) {
	server := fixture.StartQueryAPI(t)
	server.Answer("ALERTS", 1, 1)
	server.Answer("ALERTS > 1")
	s := prepare(t, "n1", "n2")
	s.run("controller", "--settle", settle.String(), "--release-version", "1.0.0", "--metrics-url", server.URL())
	for name := range s.hosts {
		s.daemon(name, "1.0.0")
	}
	s.config("00-worker", nil)
	before := s.updated("")
	query := func(text string) {
		s.policy(func(spec *api.NodeRolloutPolicySpec) { spec.Health.PoolUnhealthyIf = text })
	}
	query("ALERTS")
	s.policyCondition(api.PolicyAccepted, api.ReasonPolicyAccepted)
	s.config("50-a", map[string]string{"/etc/a": "1"})
	const waits = "waits until the pool is healthy: spec.health.poolUnhealthyIf of NodeRolloutPolicy worker "
	s.waits(waits+"has 2 results", before)
	assert.Contains(t, s.planOf(api.WorkerPool, "").Reported, waits+"has 2 results")

	query("ALERTS(")
	s.waits(waits+"cannot be evaluated: querying Prometheus at ", before)
	query("ALERTS > 1")
	s.updated(before)
}

// TestDrainRulesDelayPods has a pod that must complete, a database that leaves after all other pods, and an agent that stays.
func TestDrainRulesDelayPods(t *testing.T) {
	s := start(t, "n1")
	s.config("00-worker", nil)
	before := s.updated("")
	s.policy(func(spec *api.NodeRolloutPolicySpec) {
		spec.DrainRules = []api.DrainRule{
			{
				Namespace: "default", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "batch"}}, Matching: api.LossUnmanaged,
				Action: api.DrainWaitForCompletion,
			},
			{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, Order: 1},
			{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}, Action: api.DrainSkip},
		}
	})
	s.policyCondition(api.PolicyAccepted, api.ReasonPolicyAccepted)
	endBatch, endDB, endAgent := s.pod("batch", "n1"), s.pod("db", "n1"), s.pod("agent", "n1")
	s.config("50-a", map[string]string{"/etc/a": "1"})
	s.eventually(func(c *assert.CollectT) {
		assert.Equal(c, "Pod default/batch stays: NodeRolloutPolicy worker waits for its completion", condition(s.node("n1"), corev1.NodeDrainInProgress).Message)
	})
	isDeleted := func(name string) bool {
		pod := &corev1.Pod{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, pod))
		return pod.DeletionTimestamp != nil
	}
	assert.False(t, isDeleted("batch"))
	completed := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "batch"}}
	succeeded := client.RawPatch(types.MergePatchType, []byte(`{"status": {"phase": "Succeeded"}}`))
	require.NoError(t, s.client.Status().Patch(t.Context(), completed, succeeded))
	s.eventuallyDeleted("batch")
	assert.False(t, isDeleted("db"))
	endBatch()
	s.eventuallyDeleted("db")
	endDB()
	s.updated(before)
	assert.False(t, isDeleted("agent"))
	endAgent()
	require.NoError(t, s.client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent"}}, client.GracePeriodSeconds(0)))
}

// report sets a condition of a node that is not the stage's.
func (s *stage) report(node string, kind corev1.NodeConditionType, status corev1.ConditionStatus) {
	s.t.Helper()
	patch := fmt.Appendf(nil, `{"status": {"conditions": [{"type": %q, "status": %q}]}}`, kind, status)
	require.NoError(s.t, s.client.Status().Patch(s.t.Context(), s.node(node), client.RawPatch(types.StrategicMergePatchType, patch)))
}

// planned returns why the first worker waits by cvo nodes plan; empty if none does. Config names a MachineConfig that is not applied yet, and is empty for none.
func (s *stage) planned(config string) string {
	s.t.Helper()
	added := ""
	if config != "" {
		added = fmt.Sprintf(`{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": {"name": %q, "labels": {%q: "worker"}},
			"spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "/etc/a", "contents": {"source": "data:,1"}}]}}}}`, config, api.MachineConfigRoleLabel)
	}
	for _, n := range s.planOf(api.WorkerPool, added).Nodes {
		if n.Turn == nodes.Wait && !strings.Contains(n.Why, "free slot") {
			return n.Why
		}
	}
	return ""
}

// TestDurationsSurviveTheController updates three nodes, and again after a restart. Each controller alone measures too few updates.
func TestDurationsSurviveTheController(t *testing.T) {
	s := start(t, "n1", "n2", "n3")
	s.config("00-worker", nil)
	before := s.updated("")
	three := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"maxUnavailable": 3}}`))
	require.NoError(t, s.client.Patch(t.Context(), &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: api.WorkerPool}}, three))
	s.policy(func(*api.NodeRolloutPolicySpec) {})
	s.policyCondition(api.PolicyAccepted, api.ReasonPolicyAccepted)
	p := &api.NodeRolloutPolicy{}
	s.config("50-a", map[string]string{"/etc/a": "1"})
	before = s.updated(before)
	s.eventually(func(c *assert.CollectT) {
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: api.WorkerPool}, p))
		assert.Len(c, p.Status.RecentDurations, 3)
	})
	assert.Nil(t, p.Status.NodeDuration)

	s.restart()
	s.config("50-a", map[string]string{"/etc/a": "2"})
	s.updated(before)
	s.eventually(func(c *assert.CollectT) {
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: api.WorkerPool}, p))
		assert.GreaterOrEqual(c, len(p.Status.RecentDurations), 5)
		assert.NotNil(c, p.Status.NodeDuration)
	})
}

// TestDefinitionRejectsPoliciesThatCannotBeRead has values that Go cannot decode. A single such object would hide all policies from the controller.
func TestDefinitionRejectsPoliciesThatCannotBeRead(t *testing.T) {
	s := prepare(t)
	create := func(spec map[string]any) error {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		object.SetGroupVersionKind(api.NodeRolloutPolicyVersion.WithKind(api.NodeRolloutPolicyKind))
		object.SetGenerateName("p-")
		return s.client.Create(t.Context(), object)
	}
	for field, values := range map[string][]any{
		"expectedDuration": {"9999999h", "1.5h", "soon", ""}, "failureBudget": {int64(2147483648), int64(0), "0%", "3"}, "dependsOn": {[]any{"a\nb"}},
	} {
		for _, value := range values {
			assert.True(t, apierrors.IsInvalid(create(map[string]any{field: value})), "%s: %v", field, value)
		}
	}
	for field, value := range map[string]any{"releaseSlotAfter": "1.5h", "deletePodsAfter": "-1h"} {
		assert.True(t, apierrors.IsInvalid(create(map[string]any{"blockedDrain": map[string]any{field: value}})), field)
	}
	require.NoError(t, create(map[string]any{"expectedDuration": "9999h999999m99s", "failureBudget": int64(2147483647), "dependsOn": []any{"worker-a.b"}}))
	require.NoError(t, create(map[string]any{"failureBudget": "100%"}))
	var list api.NodeRolloutPolicyList
	require.NoError(t, s.client.List(t.Context(), &list))
	require.Len(t, list.Items, 2)

	p := list.Items[0]
	for _, d := range []time.Duration{30 * time.Second, time.Minute, 90 * time.Minute, 9999 * time.Hour} {
		p.Status.NodeDuration = &metav1.Duration{Duration: d}
		require.NoError(t, s.client.Status().Update(t.Context(), &p))
	}
	soon := client.RawPatch(types.MergePatchType, []byte(`{"status": {"nodeDuration": "soon"}}`))
	assert.True(t, apierrors.IsInvalid(s.client.Status().Patch(t.Context(), p.DeepCopy(), soon)))
}

// TestNodesAreRestoredWithinMaxUnavailable has two nodes that differ from their config. Administrators request the restoration of both.
func TestNodesAreRestoredWithinMaxUnavailable(t *testing.T) {
	s := start(t, "n1", "n2")
	s.config("00-worker", map[string]string{"/etc/a": "1"})
	config := s.updated("")
	for name, folder := range s.hosts {
		require.NoError(t, os.Remove(filepath.Join(folder, "etc/a")))
		s.eventually(func(c *assert.CollectT) { assert.True(c, nodepool.Differs(s.node(name)), name) })
	}
	s.eventually(func(c *assert.CollectT) {
		var events corev1.EventList
		require.NoError(c, s.client.List(t.Context(), &events))
		var nodes []string
		for _, e := range events.Items { // those of other tests are about other nodes with these names
			if e.Reason == "ConfigDriftDetected" && (e.InvolvedObject.UID == s.node("n1").UID || e.InvolvedObject.UID == s.node("n2").UID) {
				assert.Contains(c, e.Message, "the host differs from MachineConfig "+config+": /etc/a: missing")
				nodes = append(nodes, e.InvolvedObject.Name)
			}
		}
		assert.ElementsMatch(c, []string{"n1", "n2"}, nodes)
	})
	end := s.pod("app-on-n1", "n1")
	s.cvo("", "nodes", "retry", "n1")
	s.eventuallyDeleted("app-on-n1")
	s.cvo("", "nodes", "retry", "n2")
	s.eventually(func(c *assert.CollectT) {
		assert.Contains(c, condition(s.node("n2"), corev1.NodeDrainInProgress).Message,
			"The drain waits for a slot: 1 node of MachineConfigPool worker may be unavailable at the same time, and n1 is")
	})
	assert.Equal(t, []string{"n1"}, s.cordoned())
	end()
	s.eventually(func(c *assert.CollectT) {
		for name, folder := range s.hosts {
			assert.True(c, nodepool.IsDone(s.node(name)), name)
			assert.FileExists(c, filepath.Join(folder, "etc/a"))
		}
	})
	assert.Equal(t, config, s.node("n2").Annotations[api.CurrentConfigAnnotation])

	// With a policy, the nodes restore it by themselves.
	settings := &operatorv1.MachineConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	settings.Spec.ManagementState = operatorv1.Managed
	settings.Spec.NodeDisruptionPolicy.Files = []operatorv1.NodeDisruptionPolicySpecFile{{
		Path: "/etc/a", Actions: []operatorv1.NodeDisruptionPolicySpecAction{{Type: operatorv1.NoneSpecAction}},
	}}
	settings.Spec.NodeDisruptionPolicy.SSHKey.Actions = []operatorv1.NodeDisruptionPolicySpecAction{{Type: operatorv1.NoneSpecAction}}
	require.NoError(t, s.client.Create(t.Context(), settings))
	file := filepath.Join(s.hosts["n1"], "etc/a")
	require.NoError(t, os.Remove(file))
	s.eventually(func(c *assert.CollectT) { assert.True(c, nodepool.Differs(s.node("n1"))) })
	s.policy(func(spec *api.NodeRolloutPolicySpec) { spec.RestoreContent = true })
	s.eventually(func(c *assert.CollectT) {
		assert.True(c, nodepool.IsDone(s.node("n1")))
		assert.FileExists(c, file)
	})
	s.policy(func(spec *api.NodeRolloutPolicySpec) { spec.RestoreContent = false })
	s.eventually(func(c *assert.CollectT) {
		m := &mcfgv1.MachineConfigNode{}
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: "n1"}, m))
		assert.NotContains(c, m.Annotations, api.RestoreAnnotation)
	})
}
