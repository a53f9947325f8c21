package nodes_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/disruption"
	"github.com/cluster-version/cvo/pkg/node/pool"
	"github.com/cluster-version/cvo/pkg/view/nodes"
	"github.com/cluster-version/cvo/test/golden"
)

// newConfig returns a MachineConfig for a role, with files given as pairs of path and text.
func newConfig(t *testing.T, name, role string, pairs ...string) *mcfgv1.MachineConfig {
	t.Helper()
	files := []map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		files = append(files, map[string]any{"path": pairs[i], "contents": map[string]any{"source": "data:," + pairs[i+1]}})
	}
	raw, err := json.Marshal(map[string]any{"ignition": map[string]any{"version": "3.5.0"}, "storage": map[string]any{"files": files}})
	require.NoError(t, err)
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{api.MachineConfigRoleLabel: role}}}
	mc.Spec.Config = runtime.RawExtension{Raw: raw}
	return mc
}

// rendered returns MachineConfigs as the controller renders them for a pool.
func rendered(t *testing.T, pool string, configs ...*mcfgv1.MachineConfig) *mcfgv1.MachineConfig {
	t.Helper()
	mc, err := config.Render(pool, configs, "")
	require.NoError(t, err)
	mc.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineConfigPool", Name: pool, Controller: new(true)}}
	return mc
}

// newPod returns a running pod with a controller and a label of its app.
func newPod(node, app, name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, Labels: map[string]string{"app": app},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: app, Controller: new(true)}},
	}}
	p.Spec.NodeName = node
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	return p
}

// newBudget returns a budget that has allowed some disruptions for an hour.
func newBudget(app string, allowed int32) policyv1.PodDisruptionBudget {
	b := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: app}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	b.Status = policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, ExpectedPods: 3, CurrentHealthy: 2 + allowed, DesiredHealthy: 2}
	if allowed == 0 {
		b.Status.Conditions = []metav1.Condition{{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
		}}
	}
	return b
}

// planned is a cluster with one pool of workers, whose nodes run the first MachineConfig.
type planned struct {
	*testing.T
	nodes.Cluster
	nodes.Configs
	pods    []*corev1.Pod
	budgets []policyv1.PodDisruptionBudget
	leader  types.NamespacedName
}

func newPlanned(t *testing.T, slots int) *planned {
	t.Helper()
	base := newConfig(t, "00-worker", "worker", "/etc/app.conf", "one")
	first := rendered(t, "worker", base)
	p := &planned{T: t, Configs: nodes.Configs{Stored: []*mcfgv1.MachineConfig{base, first}, Controller: &mcfgv1.ControllerConfig{}, Policies: disruption.Default()}}
	p.At = now
	p.Pools = []*mcfgv1.MachineConfigPool{newPool("worker", func(pool *mcfgv1.MachineConfigPool) {
		pool.Spec.Configuration.Name = first.Name
		pool.Spec.MaxUnavailable = new(intstr.FromInt(slots))
	})}
	return p
}

func (p *planned) at() string { return p.Pools[0].Spec.Configuration.Name }

func (p *planned) add(names ...string) {
	for _, name := range names {
		p.Nodes = append(p.Nodes, at(name, p.at()))
	}
}

func (p *planned) plan() *nodes.Plan {
	p.Helper()
	d, err := nodes.NewDraft(p.Cluster, p.Configs, "")
	require.NoError(p, err)
	return d.Plan(nodes.Workload{Pods: p.pods, Budgets: p.budgets, Leader: p.leader})
}

// turns returns the nodes of the first pool with their turns and reasons.
func turns(p *nodes.Plan) []string {
	var out []string
	for _, n := range p.Pools[0].Nodes {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", n.Turn, n.Name, n.Why)))
	}
	return out
}

func TestUpdatedPoolNeedsNothing(t *testing.T) {
	p := newPlanned(t, 1)
	p.add("a", "b")
	d, err := nodes.NewDraft(p.Cluster, p.Configs, "")
	require.NoError(t, err)
	assert.False(t, d.NeedsPods())
	got := d.Plan(nodes.Workload{}).Pools[0]
	assert.Equal(t, p.at(), got.Target)
	assert.Equal(t, 2, got.Done)
	assert.Empty(t, got.Nodes)
}

func TestPlanNeedsThePodsOfNodesThatAreDrained(t *testing.T) {
	working := func(from, to string) *corev1.Node {
		return newNode("a", "currentConfig", from, "desiredConfig", to, "state", api.NodeWorking)
	}
	degraded := func(from, to string) *corev1.Node {
		return newNode("a", "currentConfig", from, "desiredConfig", to, "state", api.NodeDegraded)
	}
	elsewhere := func(from, _ string) *corev1.Node { return working(from, "rendered-worker-other") }
	unready := func(from, _ string) *corev1.Node { return cordoned(at("a", from), "") }
	for _, tt := range []struct {
		name string
		node func(from, to string) *corev1.Node
		path string
		want bool
	}{
		{"it is running", working, "/etc/app.conf", true},
		{"it failed", degraded, "/etc/app.conf", true},
		{"it is updated to another config", elsewhere, "/etc/app.conf", true},
		{"it is not ready", unready, "/etc/app.conf", true},
		{"it is running without a drain", working, quiet, false},
		{"it is not ready and needs no drain", unready, quiet, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlanned(t, 1)
			p.Policies = quietPolicies()
			p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-worker", "worker", tt.path, "two")}
			p.Nodes = []*corev1.Node{tt.node(p.at(), rendered(t, "worker", p.Stored[0], p.Added[0]).Name)}
			d, err := nodes.NewDraft(p.Cluster, p.Configs, "")
			require.NoError(t, err)
			assert.Equal(t, tt.want, d.NeedsPods())
			got := d.Plan(nodes.Workload{
				Pods: []*corev1.Pod{newPod("a", "web", "web-0")}, Budgets: []policyv1.PodDisruptionBudget{newBudget("web", 0)},
			}).Pools[0].Nodes
			require.Len(t, got, 1)
			assert.Equal(t, tt.want, got[0].Evicted > 0)
			assert.Equal(t, tt.want, len(got[0].ZeroBudgets) > 0)
		})
	}
}

func TestPlanFollowsTheOrderOfTheController(t *testing.T) {
	p := newPlanned(t, 2)
	p.add("a", "b", "c", "d")
	p.Nodes[1].Labels[corev1.LabelTopologyZone] = "east"
	cordoned(p.Nodes[3], "")
	p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-worker", "worker", "/etc/app.conf", "two")}
	got := p.plan()
	assert.Equal(t, []string{
		"Start b", "Wait a waits for a free slot: at most 2 nodes may be unavailable or failed",
		"Wait c waits for a free slot: at most 2 nodes may be unavailable or failed", "Wait d waits because it is cordoned",
	}, turns(got))
	assert.Equal(t, []string{"00-worker", "99-worker"}, got.Pools[0].Sources)
	assert.NotEqual(t, p.at(), got.Pools[0].Target)
	assert.Equal(t, p.at(), got.Pools[0].Config)
	assert.False(t, p.Pools[0].Spec.Paused)
}

// unstageable returns the MachineConfigNode of a node that cannot stage a config.
func unstageable(node, config string) map[string]*mcfgv1.MachineConfigNode {
	m := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: node, Annotations: map[string]string{api.StageAnnotation: config}}}
	pool.SetStaged(&m.Status.Conditions, config, "no space", now)
	return map[string]*mcfgv1.MachineConfigNode{node: m}
}

// TestPlanExpectsThatNodesStage has a node that cannot stage the target, and others that have not staged it yet.
func TestPlanExpectsThatNodesStage(t *testing.T) {
	p := newPlanned(t, 1)
	p.add("a", "b", "c")
	p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-worker", "worker", "/etc/app.conf", "two")}
	target := p.plan().Pools[0].Target
	p.Machines = unstageable("a", target)

	assert.Equal(t, []string{
		"Start b", "Wait a cannot stage MachineConfig " + target + ": no space", "Wait c waits for a free slot: at most 1 node may be unavailable or failed",
	}, turns(p.plan()))
	p.Machines = unstageable("a", p.at())
	assert.Equal(t, "Start a", turns(p.plan())[0], "the failure is of another config")
}

// TestPlanFollowsPoliciesAndHolds has a node that an administrator holds, and a policy that starts no node of the pool.
func TestPlanFollowsPoliciesAndHolds(t *testing.T) {
	p := newPlanned(t, 3)
	p.add("a", "b")
	p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-worker", "worker", "/etc/app.conf", "two")}
	p.Nodes[0].Annotations[api.NodeHoldAnnotation] = "the vendor examines it"
	const held = "Wait a is held by annotation cvo.cluster-version.github.io/hold: the vendor examines it"
	assert.Equal(t, []string{"Start b", held}, turns(p.plan()))

	policy := &api.NodeRolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	policy.Spec.DependsOn = []string{"infra"}
	p.RolloutPolicies = map[string]*api.NodeRolloutPolicy{"worker": policy}
	assert.Equal(t, []string{
		held, "Wait b waits, because NodeRolloutPolicy worker is invalid: spec.dependsOn names MachineConfigPool infra, which does not exist",
	}, turns(p.plan()))

	infra := newPool("infra", paused)
	p.Pools = append(p.Pools, infra)
	turnsOfWorkers := func(only string) []string {
		d, err := nodes.NewDraft(p.Cluster, p.Configs, only)
		require.NoError(t, err)
		plan := d.Plan(nodes.Workload{})
		return turns(&nodes.Plan{Pools: plan.Pools[len(plan.Pools)-1:]})
	}
	assert.Equal(t, []string{
		held, "Wait b waits for MachineConfigPool infra, on which NodeRolloutPolicy worker depends: it has no valid config: no MachineConfig matches the pool; correct its machineConfigSelector",
	}, turnsOfWorkers("worker"))
	p.Stored = append(p.Stored, newConfig(t, "00-infra", "infra", "/etc/a", "b"))
	n := at("c", before)
	n.Labels = map[string]string{"role": "infra"}
	p.Nodes = append(p.Nodes, n)
	for _, only := range []string{"worker", ""} { // a paused pool is planned as if it were resumed, and the controller still waits
		assert.Contains(t, turnsOfWorkers(only)[1], "it is paused; 'cvo nodes resume infra' resumes it", only)
	}
	infra.Spec.Paused = false
	n.Annotations[api.NodeStateAnnotation] = api.NodeDegraded
	assert.Contains(t, turnsOfWorkers("")[1], "it has 1 degraded node; 'cvo nodes status infra' shows why")
}

// TestPlanLeavesOutSkippedPods has a node with a pod that a drain rule skips, and whose budget allows no disruption.
func TestPlanLeavesOutSkippedPods(t *testing.T) {
	p := newPlanned(t, 1)
	p.add("a")
	p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-worker", "worker", "/etc/app.conf", "two")}
	p.pods, p.budgets = []*corev1.Pod{newPod("a", "web", "web-0"), newPod("a", "db", "db-0")}, []policyv1.PodDisruptionBudget{newBudget("web", 0)}
	policy := &api.NodeRolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	p.RolloutPolicies = map[string]*api.NodeRolloutPolicy{"worker": policy}
	got := p.plan().Pools[0].Nodes[0]
	assert.Equal(t, nodes.Wait, got.Turn)
	assert.Equal(t, 2, got.Evicted)
	policy.Spec.DrainRules = []api.DrainRule{{Namespace: "shop", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Action: api.DrainSkip}}
	got = p.plan().Pools[0].Nodes[0]
	assert.Equal(t, nodes.Start, got.Turn)
	assert.Equal(t, 1, got.Evicted)
	assert.Empty(t, got.ZeroBudgets)
}

// TestPlanShowsPodsWhoseCompletionIsAwaited has pods that lose something, and rules that wait for all but one of them.
func TestPlanShowsPodsWhoseCompletionIsAwaited(t *testing.T) {
	p := newPlanned(t, 1)
	p.add("a")
	p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-worker", "worker", "/etc/app.conf", "two")}
	bare, done, cache, web := newPod("a", "bare", "bare"), newPod("a", "done", "done"), newPod("a", "cache", "cache-0"), newPod("a", "web", "web-0")
	bare.OwnerReferences, done.OwnerReferences = nil, nil
	done.Status.Phase = corev1.PodSucceeded
	cache.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	p.pods = []*corev1.Pod{bare, done, cache, web}
	policy := &api.NodeRolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	policy.Spec.DrainRules = []api.DrainRule{{Matching: api.LossUnmanaged, Action: api.DrainWaitForCompletion}}
	p.RolloutPolicies = map[string]*api.NodeRolloutPolicy{"worker": policy}
	got := p.plan()
	a := got.Pools[0].Nodes[0]
	assert.Equal(t, 4, a.Evicted)
	assert.Equal(t, []string{"shop/bare"}, a.Awaited)
	assert.Empty(t, a.Unmanaged)
	assert.Equal(t, []string{"shop/cache-0"}, a.EmptyDir)
	var out bytes.Buffer
	require.NoError(t, got.Text(&out))
	assert.Contains(t, out.String(), "\n  Pods whose completion a drain waits for, by a drain rule: shop/bare (a)\n")

	policy.Spec.DrainRules[0].Matching = api.LossLocalData
	a = p.plan().Pools[0].Nodes[0]
	assert.Equal(t, []string{"shop/cache-0"}, a.Awaited)
	assert.Equal(t, []string{"shop/bare"}, a.Unmanaged)
	assert.Empty(t, a.EmptyDir)
}

// TestPlanShowsWhatTheControllerReportsOfMetrics has a policy with a query, which the plan does not send.
func TestPlanShowsWhatTheControllerReportsOfMetrics(t *testing.T) {
	p := newPlanned(t, 1)
	p.add("a")
	p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-worker", "worker", "/etc/app.conf", "two")}
	const why = "Node a waits until the pool is healthy: spec.health.poolUnhealthyIf of NodeRolloutPolicy worker has 1 result"
	p.Pools[0].Status.Conditions = []mcfgv1.MachineConfigPoolCondition{{Type: pool.NodesWaiting, Status: corev1.ConditionTrue, Message: why}}
	policy := &api.NodeRolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	p.RolloutPolicies = map[string]*api.NodeRolloutPolicy{"worker": policy}
	assert.Empty(t, p.plan().Pools[0].Reported)
	policy.Spec.Health.PoolUnhealthyIf = "ALERTS"
	got := p.plan()
	assert.Equal(t, []string{"Start a"}, turns(got))
	assert.Equal(t, why, got.Pools[0].Reported)
	var out bytes.Buffer
	require.NoError(t, got.Text(&out))
	assert.Contains(t, out.String(), "also checks the API servers, metrics and Jobs before nodes start. It reports: "+why+"\n")
}

// TestPlanShowsJobs has a policy with Jobs. The plan knows of them what the controller reports.
func TestPlanShowsJobs(t *testing.T) {
	p := newPlanned(t, 1)
	p.add("a")
	p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-worker", "worker", "/etc/app.conf", "two")}
	const why = "Node a waits for Job jobs/check-before-1"
	p.Pools[0].Status.Conditions = []mcfgv1.MachineConfigPoolCondition{{Type: pool.NodesWaiting, Status: corev1.ConditionTrue, Message: why}}
	policy := &api.NodeRolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	p.RolloutPolicies = map[string]*api.NodeRolloutPolicy{"worker": policy}
	policy.Spec.Jobs.After = &api.NodeJob{Namespace: "jobs", Name: "report", Deadline: metav1.Duration{Duration: time.Hour}}
	assert.Empty(t, p.plan().Pools[0].Reported, "a Job after the update does not delay it")
	policy.Spec.Jobs.Before = &api.NodeJob{Namespace: "jobs", Name: "check", Deadline: metav1.Duration{Duration: 10 * time.Minute}}
	got := p.plan()
	assert.Equal(t, []string{"Start a"}, turns(got))
	var out bytes.Buffer
	require.NoError(t, got.Text(&out))
	assert.Contains(t, out.String(), "\n  Before the update of each node, a Job of CronJob jobs/check must succeed within 10m.\n"+
		"  After the update of each node, a Job of CronJob jobs/report must succeed within 60m.\n")
	assert.Contains(t, out.String(), "It reports: "+why+"\n")

	const refusal = "waits for CronJob jobs/check, which does not exist: create it"
	policy.Status.Conditions = []metav1.Condition{{Type: api.PolicyJobsFailed, Status: metav1.ConditionUnknown, Message: "Each node " + refusal}}
	assert.Equal(t, []string{"Wait a " + refusal}, turns(p.plan()))

	// After its update, the node still waits.
	p.Added = nil
	policy.Status.Conditions[0].Status, policy.Status.Conditions[0].Message = metav1.ConditionTrue, "node b is held"
	assert.Equal(t, "A Job failed: node b is held", p.plan().Pools[0].Jobs[2])
	n := p.Nodes[0]
	n.Annotations[api.CurrentConfigAnnotation], n.Annotations[api.DesiredConfigAnnotation] = got.Pools[0].Config, got.Pools[0].Config
	n.Annotations[api.NodeJobAnnotation] = got.Pools[0].Config
	assert.Equal(t, []string{"Running a waits for the Job after its update"}, turns(p.plan()))
}

func TestPlanShowsBudgetsAndLosses(t *testing.T) {
	p := newPlanned(t, 3)
	p.add("a", "b", "c")
	p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-worker", "worker", "/etc/app.conf", "two")}
	bare, cache, job, daemon := newPod("a", "bare", "bare"), newPod("a", "cache", "cache-0"), newPod("a", "job", "job-0"), newPod("a", "daemon", "daemon-0")
	bare.OwnerReferences, job.OwnerReferences = nil, nil
	job.Status.Phase = corev1.PodSucceeded
	cache.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	daemon.OwnerReferences[0].Kind = "DaemonSet"
	p.pods = []*corev1.Pod{bare, cache, job, daemon, newPod("b", "web", "web-0"), newPod("c", "db", "db-0")}
	p.budgets = []policyv1.PodDisruptionBudget{newBudget("web", 0), newBudget("db", 1)}
	got := p.plan()
	assert.Equal(t, []string{"Start a", "Start c", "Wait b waits for PodDisruptionBudget shop/web, which allows no disruption now: 2 pods are healthy, and 2 must be"}, turns(got))
	a, b := got.Pools[0].Nodes[0], got.Pools[0].Nodes[2]
	assert.Equal(t, 3, a.Evicted, "a pod of a DaemonSet stays")
	assert.Equal(t, []string{"shop/bare"}, a.Unmanaged)
	assert.Equal(t, []string{"shop/cache-0"}, a.EmptyDir)
	assert.Empty(t, a.ZeroBudgets)
	assert.Equal(t, []string{"shop/web"}, b.ZeroBudgets)
	var out bytes.Buffer
	require.NoError(t, got.Text(&out))
	golden.Assert(t, "plan", out.String())
}

func TestTextNamesABudgetOfManyNodesOnce(t *testing.T) {
	p := newPlanned(t, 3)
	p.add("a", "b", "c")
	p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-worker", "worker", "/etc/app.conf", "two")}
	p.pods = []*corev1.Pod{newPod("a", "web", "web-0"), newPod("b", "web", "web-1"), newPod("c", "web", "web-2")}
	p.budgets = []policyv1.PodDisruptionBudget{newBudget("web", 0)}
	var out bytes.Buffer
	require.NoError(t, p.plan().Text(&out))
	assert.Contains(t, out.String(), "so a drain waits: shop/web (a and 2 more)\n")
	assert.Contains(t, out.String(), ": 0 running, 0 start now, 3 wait.\n")
}

// quiet is a file whose change needs no drain under quietPolicies.
const quiet = "/etc/quiet.conf"

func quietPolicies() operatorv1.NodeDisruptionPolicyClusterStatus {
	return disruption.Policies(operatorv1.NodeDisruptionPolicyConfig{Files: []operatorv1.NodeDisruptionPolicySpecFile{{
		Path: quiet, Actions: []operatorv1.NodeDisruptionPolicySpecAction{{
			Type: operatorv1.RestartSpecAction, Restart: &operatorv1.RestartService{ServiceName: "app.service"},
		}},
	}}})
}

func TestTransitionsFollowTheDisruptionPolicies(t *testing.T) {
	for _, tt := range []struct {
		name string
		path string
		want nodes.Transition
	}{
		{"it reboots", "/etc/other.conf", nodes.Transition{
			Changes: []string{"file /etc/other.conf added"}, Drain: true, Reboot: true, Actions: []string{"reboot"},
		}},
		{"it needs no drain", quiet, nodes.Transition{Changes: []string{"file /etc/quiet.conf added"}, Actions: []string{"restart app.service"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlanned(t, 1)
			p.add("a")
			p.pods = []*corev1.Pod{newPod("a", "web", "web-0")}
			p.Policies = quietPolicies()
			p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-worker", "worker", tt.path, "two")}
			tt.want.From = p.at()
			got := p.plan().Pools[0]
			assert.Equal(t, []nodes.Transition{tt.want}, got.Transitions)
			assert.Equal(t, tt.want.Drain, got.Nodes[0].Evicted > 0)
		})
	}
}

func TestUnknownTransitionsExpectADrain(t *testing.T) {
	p := newPlanned(t, 1)
	p.Nodes = []*corev1.Node{newNode("new", "state", api.NodeDone), at("lost", "rendered-worker-lost")}
	p.pods = []*corev1.Pod{newPod("new", "web", "web-0"), newPod("lost", "web", "web-1")}
	got := p.plan().Pools[0]
	require.Len(t, got.Transitions, 2)
	for _, transition := range got.Transitions {
		assert.NotEmpty(t, transition.Unknown)
	}
	for _, n := range got.Nodes {
		assert.Equal(t, 1, n.Evicted, n.Name)
	}
}

func TestRunningUpdatesComeFirst(t *testing.T) {
	p := newPlanned(t, 4)
	first, next := p.at(), newConfig(t, "99-worker", "worker", "/etc/app.conf", "two")
	second := rendered(t, "worker", p.Stored[0], next)
	p.Stored = append(p.Stored, next, second)
	p.Pools[0].Spec.Configuration.Name = second.Name
	p.Nodes = []*corev1.Node{
		at("waits", first),
		newNode("runs", "currentConfig", first, "desiredConfig", second.Name, "state", api.NodeWorking),
		newNode("failed", "currentConfig", first, "desiredConfig", second.Name, "state", api.NodeDegraded, "reason", "no space"),
		newNode("elsewhere", "currentConfig", first, "desiredConfig", "rendered-worker-old", "state", api.NodeWorking),
		at("done", second.Name),
	}
	got := p.plan()
	assert.Equal(t, []string{
		"Running failed failed: no space", "Running runs",
		"Start elsewhere is updated to another config now, and keeps its slot", "Start waits",
	}, turns(got))
	assert.Equal(t, 1, got.Pools[0].Done)
}

// TestPlanProtectsTheControlPlane has three control-plane nodes. The second one has a member of etcd, and the first one the leader.
func TestPlanProtectsTheControlPlane(t *testing.T) {
	p := newPlanned(t, 1)
	p.add("m0", "m1", "m2")
	p.Pools[0].Name = api.ControlPlanePool
	for _, n := range p.Nodes {
		n.Labels["node-role.kubernetes.io/control-plane"] = ""
	}
	p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-worker", "worker", "/etc/app.conf", "two")}
	etcd, controller := newPod("m1", "etcd", "etcd-m1"), newPod("m0", "controller", "controller-0")
	etcd.Namespace, etcd.Labels, etcd.Annotations = "kube-system", map[string]string{"component": "etcd"}, map[string]string{corev1.MirrorPodAnnotationKey: ""}
	p.pods, p.leader = []*corev1.Pod{etcd, controller}, types.NamespacedName{Namespace: "shop", Name: "controller-0"}
	with(pool.NodesWaiting, "Node m1 waits for the API server: no answer within 3s")(p.Pools[0])
	const another = "waits for another control-plane node: they are updated one at a time"
	got := p.plan()
	assert.Equal(t, []string{"Start m1", "Wait m2 " + another, "Wait m0 " + another}, turns(got))
	var out bytes.Buffer
	require.NoError(t, got.Text(&out))
	assert.Contains(t, out.String(), "It reports: Node m1 waits for the API server: no answer within 3s\n")

	etcd.Spec.NodeName, etcd.Status.Conditions = "m2", nil
	const refused = "waits for the etcd member on node m2: pod kube-system/etcd-m1 is not ready"
	got = p.plan()
	assert.Equal(t, []string{"Wait m1 " + refused, "Wait m2 " + refused, "Wait m0 " + refused}, turns(got))
	assert.Empty(t, got.Pools[0].Reported)
}

func TestInvalidNodeSelectorStartsNoNode(t *testing.T) {
	p := newPlanned(t, 2)
	p.add("a", "b")
	p.Nodes[1].Annotations[api.DesiredConfigAnnotation] = "rendered-worker-old"
	p.Pools = append(p.Pools, invalid())
	p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-worker", "worker", "/etc/app.conf", "two")}
	const why = "waits because it may belong to MachineConfigPool infra, whose spec.nodeSelector is invalid"
	got := p.plan()
	require.Equal(t, "worker", got.Pools[1].Name)
	assert.Equal(t, []string{"Running b " + why, "Wait a " + why}, turns(&nodes.Plan{Pools: got.Pools[1:]}))
	assert.ErrorContains(t, got.Errors(), "MachineConfigPool infra: spec.nodeSelector is invalid")
}

// TestPlanSaysWhyANodeKeepsAnotherConfig has a node whose update to another config is in progress, and one that has not started.
func TestPlanSaysWhyANodeKeepsAnotherConfig(t *testing.T) {
	for _, tt := range []struct {
		name string
		// stage is the release of the ControllerConfig; nil if it does not exist.
		stage *string
		why   string
	}{
		{"the daemons are of another release", new("1.1.0"), `waits for its daemon of release 1.1.0: the running one is of release ""`},
		{"the ControllerConfig does not exist", nil, "waits for ControllerConfig machine-config-controller, which the release creates"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlanned(t, 2)
			p.add("a")
			p.Nodes = append(p.Nodes, newNode("b", "currentConfig", p.at(), "desiredConfig", "rendered-worker-other", "state", api.NodeWorking))
			p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-worker", "worker", "/etc/app.conf", "two")}
			if p.Controller = nil; tt.stage != nil {
				p.Controller = &mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.ReleaseAnnotation: *tt.stage}}}
			}
			assert.Equal(t, []string{"Running b " + tt.why, "Wait a " + tt.why}, turns(p.plan()))
		})
	}
}

func TestPausedPoolIsPlannedAsIfItWereResumed(t *testing.T) {
	p := newPlanned(t, 1)
	p.add("a")
	p.Pools[0].Spec.Paused = true
	p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-worker", "worker", "/etc/app.conf", "two")}
	got := p.plan()
	assert.Equal(t, []string{"Start a"}, turns(got))
	assert.True(t, got.Pools[0].Paused)
	var out bytes.Buffer
	require.NoError(t, got.Text(&out))
	assert.Contains(t, out.String(), "The pool is paused: no node starts before 'cvo nodes resume worker'.")
}

func TestOtherPoolsUseBudgets(t *testing.T) {
	for _, isPaused := range []bool{false, true} {
		p := newPlanned(t, 1)
		p.add("w")
		edge := newPool("edge")
		edge.Spec.Paused = isPaused
		e := at("e", p.at())
		e.Labels["role"] = "edge"
		p.Pools, p.Nodes = append(p.Pools, edge), append(p.Nodes, e)
		p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-worker", "worker", "/etc/app.conf", "two"), newConfig(t, "99-edge", "edge", "/etc/app.conf", "two")}
		p.pods = []*corev1.Pod{newPod("e", "web", "web-0"), newPod("e", "web", "web-1"), newPod("w", "web", "web-2")}
		p.budgets = []policyv1.PodDisruptionBudget{newBudget("web", 1)}
		d, err := nodes.NewDraft(p.Cluster, p.Configs, "worker")
		require.NoError(t, err)
		got := d.Plan(nodes.Workload{Pods: p.pods, Budgets: p.budgets})
		require.Len(t, got.Pools, 1)
		// The node of the other pool is first, and uses up the budget; a node of a paused pool does not start.
		assert.Equal(t, isPaused, got.Pools[0].Nodes[0].Turn == nodes.Start)
	}
}

func TestInvalidConfigsAreErrors(t *testing.T) {
	t.Run("it rejects an added MachineConfig", func(t *testing.T) {
		p := newPlanned(t, 1)
		p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-bad", "nowhere", "/proc/x", "two")}
		_, err := nodes.NewDraft(p.Cluster, p.Configs, "")
		require.ErrorAs(t, err, new(*config.Error))
		assert.ErrorContains(t, err, "MachineConfig 99-bad is invalid: spec.config.storage.files[0].path is \"/proc/x\"")
	})
	t.Run("it reports a pool that cannot be rendered", func(t *testing.T) {
		p := newPlanned(t, 1)
		p.add("a")
		p.Stored = append(p.Stored, newConfig(t, "99-bad", "worker", "/proc/x", "two"))
		got := p.plan()
		require.ErrorAs(t, got.Errors(), new(*config.Error))
		assert.Contains(t, got.Pools[0].Error, "MachineConfig 99-bad is invalid")
		assert.Empty(t, got.Pools[0].Nodes)
	})
	t.Run("it plans the pool's config if the MachineConfigs cannot be rendered", func(t *testing.T) {
		p := newPlanned(t, 1)
		p.add("a")
		next := newConfig(t, "99-worker", "worker", "/etc/app.conf", "two")
		second := rendered(t, "worker", p.Stored[0], next)
		p.Stored = append(p.Stored, next, second, newConfig(t, "99-bad", "worker", "/proc/x", "two"))
		p.Pools[0].Spec.Configuration.Name = second.Name
		got := p.plan()
		assert.Equal(t, []string{"Start a"}, turns(got))
		assert.Equal(t, second.Name, got.Pools[0].Target)
		require.ErrorAs(t, got.Errors(), new(*config.Error))
		var out bytes.Buffer
		require.NoError(t, got.Text(&out))
		assert.Contains(t, out.String(), "Pool worker: 1 of 1 node would be updated to "+second.Name)
		assert.Contains(t, out.String(), "  The MachineConfigs cannot be rendered (see below), so this is the pool's current config.\n")
	})
	t.Run("it lists an added MachineConfig that no pool selects", func(t *testing.T) {
		p := newPlanned(t, 1)
		p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-lost", "nowhere", "/etc/x", "two")}
		got := p.plan()
		require.NoError(t, got.Errors())
		assert.Equal(t, []string{"99-lost"}, got.Unselected)
	})
}

func TestTheImageOfTheReleaseStays(t *testing.T) {
	const release = "registry.example/os@sha256:1"
	own := newConfig(t, "99-edge", "edge")
	own.Spec.OSImageURL = "registry.example/own@sha256:2"
	p := newPlanned(t, 1)
	base := p.Stored[0]
	p.Stored = []*mcfgv1.MachineConfig{base, own}
	p.Pools = []*mcfgv1.MachineConfigPool{newPool("edge"), p.Pools[0]}
	for i, sources := range [][]*mcfgv1.MachineConfig{{own}, {base}} {
		mc, err := config.Render(p.Pools[i].Name, sources, release)
		require.NoError(t, err)
		mc.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineConfigPool", Name: p.Pools[i].Name, Controller: new(true)}}
		p.Stored, p.Pools[i].Spec.Configuration.Name = append(p.Stored, mc), mc.Name
	}
	for i, got := range p.plan().Pools {
		assert.Equal(t, p.Pools[i].Spec.Configuration.Name, got.Target, "the rendered MachineConfigs have the image that the controller knows")
	}

	// A pool that holds another image keeps it, and does not show the image of the release.
	held := newPool("held")
	mc, err := config.Render("held", []*mcfgv1.MachineConfig{base}, "registry.example/os@sha256:0")
	require.NoError(t, err)
	mc.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineConfigPool", Name: "held", Controller: new(true)}}
	held.Spec.MachineConfigSelector = p.Pools[1].Spec.MachineConfigSelector
	held.Spec.Configuration.Name = mc.Name
	p.Pools, p.Stored = append([]*mcfgv1.MachineConfigPool{held}, p.Pools...), append(p.Stored, mc)
	p.RolloutPolicies = map[string]*api.NodeRolloutPolicy{"held": {Spec: api.NodeRolloutPolicySpec{HoldOSImage: true}}}
	for _, got := range p.plan().Pools {
		i := slices.IndexFunc(p.Pools, func(p *mcfgv1.MachineConfigPool) bool { return p.Name == got.Name })
		assert.Equal(t, p.Pools[i].Spec.Configuration.Name, got.Target, got.Name)
	}
}

func TestPausedPoolsLeaveBudgetsToOthers(t *testing.T) {
	p := newPlanned(t, 1)
	p.add("w")
	edge := newPool("edge", paused)
	e := at("e", p.at())
	e.Labels["role"] = "edge"
	p.Pools, p.Nodes = append(p.Pools, edge), append(p.Nodes, e)
	p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-worker", "worker", "/etc/app.conf", "two"), newConfig(t, "99-edge", "edge", "/etc/app.conf", "two")}
	p.pods = []*corev1.Pod{newPod("w", "web", "web-0"), newPod("w", "web", "web-1"), newPod("e", "web", "web-2")}
	p.budgets = []policyv1.PodDisruptionBudget{newBudget("web", 1)}
	got := p.plan()
	require.Equal(t, []string{"edge", "worker"}, []string{got.Pools[0].Name, got.Pools[1].Name})
	assert.Equal(t, nodes.Wait, got.Pools[0].Nodes[0].Turn)
	assert.Equal(t, nodes.Start, got.Pools[1].Nodes[0].Turn)
}

func TestDrainingNodesUseBudgets(t *testing.T) {
	p := newPlanned(t, 2)
	first, next := p.at(), newConfig(t, "99-worker", "worker", "/etc/app.conf", "two")
	second := rendered(t, "worker", p.Stored[0], next)
	p.Stored, p.Pools[0].Spec.Configuration.Name = append(p.Stored, next, second), second.Name
	p.Nodes = []*corev1.Node{
		newNode("drains", "currentConfig", first, "desiredConfig", second.Name, "state", api.NodeWorking, "desiredDrain", "drain-"+second.Name),
		at("waits", first),
	}
	p.pods = []*corev1.Pod{newPod("drains", "web", "web-0"), newPod("drains", "web", "web-1"), newPod("waits", "web", "web-2")}
	p.budgets = []policyv1.PodDisruptionBudget{newBudget("web", 1)}
	assert.Equal(t, []string{"Running drains", "Wait waits waits for PodDisruptionBudget shop/web: nodes that are being drained use up the disruptions that it allows"}, turns(p.plan()))
}

func TestNodesWithoutAConfigStartRegardlessOfBudgets(t *testing.T) {
	p := newPlanned(t, 1)
	p.Nodes = []*corev1.Node{newNode("new", "state", api.NodeDone)}
	p.pods = []*corev1.Pod{newPod("new", "web", "web-0")}
	p.budgets = []policyv1.PodDisruptionBudget{newBudget("web", 0)}
	got := p.plan()
	assert.Equal(t, []string{"Start new"}, turns(got))
	assert.Equal(t, []string{"shop/web"}, got.Pools[0].Nodes[0].ZeroBudgets, "its daemon may request a drain")
}

func TestOnlyControlPlaneNodeEvictsNothing(t *testing.T) {
	p := newPlanned(t, 1)
	p.add("m0")
	p.Nodes[0].Labels["node-role.kubernetes.io/control-plane"] = ""
	p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-worker", "worker", "/etc/app.conf", "two")}
	p.pods = []*corev1.Pod{newPod("m0", "web", "web-0")}
	p.budgets = []policyv1.PodDisruptionBudget{newBudget("web", 0)}
	got := p.plan()
	assert.Equal(t, []string{"Start m0"}, turns(got))
	assert.Zero(t, got.Pools[0].Nodes[0].Evicted)

	p.add("w0")
	got = p.plan()
	assert.Equal(t, "w0", got.Pools[0].Nodes[0].Name, "the other node can take the pod, so the budget decides")
	assert.Equal(t, 1, got.Pools[0].Nodes[1].Evicted)
}

func TestPodsOfSeveralBudgetsAreNamed(t *testing.T) {
	p := newPlanned(t, 1)
	p.add("a")
	p.Added = []*mcfgv1.MachineConfig{newConfig(t, "99-worker", "worker", "/etc/app.conf", "two")}
	p.pods = []*corev1.Pod{newPod("a", "web", "web-0")}
	other := newBudget("web", 1)
	other.Name = "other"
	p.budgets = []policyv1.PodDisruptionBudget{newBudget("web", 1), other}
	assert.Equal(t, []string{"shop/web-0"}, p.plan().Pools[0].Nodes[0].Contested)
}

func TestAddedConfigsReplaceThoseWithTheSameName(t *testing.T) {
	p := newPlanned(t, 1)
	p.add("a")
	p.Added = []*mcfgv1.MachineConfig{newConfig(t, "00-worker", "worker", "/etc/other.conf", "two")}
	got := p.plan().Pools[0]
	assert.Equal(t, []string{"00-worker"}, got.Sources)
	assert.Equal(t, []string{"file /etc/other.conf added", "file /etc/app.conf removed"}, got.Transitions[0].Changes)
}

func TestPlanTextContainsNoControlCharacters(t *testing.T) {
	text := func(evil string) string {
		p := newPlanned(t, 3)
		named := newConfig(t, "99-worker"+evil, "worker", "/etc/app.conf", "two")
		p.Stored = append(p.Stored, named)
		p.Pools[0].Name = "worker" + evil
		edge := newPool("edge"+evil, func(pool *mcfgv1.MachineConfigPool) { pool.Spec.MaxUnavailable = new(intstr.FromString("x" + evil)) })
		edge.Spec.MachineConfigSelector = p.Pools[0].Spec.MachineConfigSelector
		updated := newPool("infra" + evil)
		updated.Spec.MachineConfigSelector = p.Pools[0].Spec.MachineConfigSelector
		p.Pools = append(p.Pools, edge, updated)
		p.Pools[0].Spec.Paused = true
		target := rendered(t, "worker"+evil, p.Stored[0], named).Name
		p.Nodes = []*corev1.Node{
			at("a"+evil, p.at()), at("b", "lost"+evil),
			newNode("d", "currentConfig", p.at(), "desiredConfig", target, "state", api.NodeDegraded, "reason", "no space"+evil),
			has(newNodeWithout(at("e", p.at())), corev1.NodeReady, corev1.ConditionUnknown, "", "silent"+evil),
		}
		for _, app := range []string{"web", "bare"} {
			pod := newPod("a"+evil, app, app+evil)
			pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			p.pods = append(p.pods, pod)
		}
		p.pods[1].OwnerReferences = nil
		p.budgets = []policyv1.PodDisruptionBudget{newBudget("web", 0), newBudget("web", 0), newBudget("bare", 0)}
		for i, name := range []string{"one", "two", "three"} {
			p.budgets[i].Name = name + evil
		}
		var out bytes.Buffer
		require.NoError(t, p.plan().Text(&out))
		return out.String()
	}
	assertHarmless(t, text)
}
