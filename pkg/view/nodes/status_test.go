package nodes_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
	"github.com/cluster-version/cvo/pkg/view/nodes"
	"github.com/cluster-version/cvo/test/golden"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Names of rendered MachineConfigs.
const (
	before = "rendered-worker-00000000aaaaaaaaaaaaaaaaaaaaaaaa"
	target = "rendered-worker-11111111bbbbbbbbbbbbbbbbbbbbbbbb"
)

// newPool returns a pool that selects the nodes with its role.
func newPool(name string, change ...func(*mcfgv1.MachineConfigPool)) *mcfgv1.MachineConfigPool {
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": name}}
	p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{api.MachineConfigRoleLabel: name}}
	p.Spec.Configuration.Name = target
	for _, c := range change {
		c(p)
	}
	return p
}

// with returns a change that makes a condition of a pool true.
func with(kind mcfgv1.MachineConfigPoolConditionType, message string) func(*mcfgv1.MachineConfigPool) {
	return func(p *mcfgv1.MachineConfigPool) {
		p.Status.Conditions = append(p.Status.Conditions, mcfgv1.MachineConfigPoolCondition{Type: kind, Status: corev1.ConditionTrue, Message: message})
	}
}

// nodesWait is a message as the controller writes it.
var nodesWait = printable.AndOthers("Node w-0004 waits for PodDisruptionBudget shop/web, which allows no disruption now: 1 pods are healthy, and 2 must be", 31, "node")

// slots returns a change of a pool's maxUnavailable.
func slots(most string) func(*mcfgv1.MachineConfigPool) {
	return func(p *mcfgv1.MachineConfigPool) { p.Spec.MaxUnavailable = new(intstr.Parse(most)) }
}

func paused(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true }

// newNode returns a ready worker with annotations of its daemon, given as pairs without the prefix.
func newNode(name string, pairs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"role": "worker"}, Annotations: map[string]string{}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for i := 0; i < len(pairs); i += 2 {
		n.Annotations[api.MachineConfigGroup+"/"+pairs[i]] = pairs[i+1]
	}
	return n
}

// at returns a node that runs a config.
func at(name, config string) *corev1.Node {
	return newNode(name, "currentConfig", config, "desiredConfig", config, "state", api.NodeDone)
}

// to returns a node that updates to the target, in a state.
func to(name, state string, pairs ...string) *corev1.Node {
	return newNode(name, append([]string{"currentConfig", before, "desiredConfig", target, "state", state}, pairs...)...)
}

// has adds a condition of an hour ago to a node.
func has(n *corev1.Node, kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) *corev1.Node {
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
		Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
	})
	return n
}

func cordoned(n *corev1.Node, attempt string) *corev1.Node {
	n.Spec.Unschedulable = true
	if attempt != "" {
		n.Annotations[api.CordonAnnotation] = attempt
	}
	return n
}

func blocked(name string) *corev1.Node {
	n := cordoned(to(name, api.NodeWorking, "desiredDrain", "drain-"+target, "lastAppliedDrain", "uncordon-"+before), "2")
	return has(n, corev1.NodeDrainInProgress, corev1.ConditionTrue, "Blocked", "Pod shop/web-0 stays: the budget shop/web needs 3 healthy pods")
}

// released returns a node that runs the former config, because it has released its slot.
func released(name string) *corev1.Node {
	n := at(name, before)
	n.Annotations[api.SlotReleasedAnnotation] = "2026-01-01T00:00:00Z shop/web"
	return n
}

func TestNodesHaveAPhaseAndAReason(t *testing.T) {
	for _, tt := range []struct {
		name string
		pool *mcfgv1.MachineConfigPool
		node *corev1.Node
		want nodes.Node
	}{
		{
			"it waits for a free slot", newPool("worker"), at("n", before),
			nodes.Node{Phase: nodes.Waiting, Current: before, Desired: target, Why: "waits for a free slot: at most 1 node may be unavailable or failed"},
		},
		{
			"it waits for another control-plane node", newPool(api.ControlPlanePool, func(p *mcfgv1.MachineConfigPool) {
				p.Spec.MaxUnavailable = new(intstr.FromInt(2))
				p.Spec.NodeSelector = newPool("worker").Spec.NodeSelector
			}), at("n", before),
			nodes.Node{Phase: nodes.Waiting, Current: before, Desired: target, Why: "waits for another control-plane node: they are updated one at a time"},
		},
		{
			"it waits although a slot is free", newPool("worker", with(pool.NodesWaiting, nodesWait), slots("2")), at("n", before),
			nodes.Node{Phase: nodes.Waiting, Current: before, Desired: target, Why: "waits although a slot is free: 'cvo nodes plan worker' shows why"},
		},
		{
			"it waits for the others since its drain was blocked", newPool("worker", with(pool.NodesWaiting, nodesWait), slots("2")), released("n"),
			nodes.Node{
				Phase: nodes.Waiting, Current: before, Desired: target,
				Why: "waits for the other nodes of its pool: its drain was blocked, so it released its slot",
			},
		},
		{
			"it waits for a free slot since the controller's last plan", newPool("worker", with(pool.NodesWaiting, nodesWait)), at("n", before),
			nodes.Node{Phase: nodes.Waiting, Current: before, Desired: target, Why: "waits for a free slot: at most 1 node may be unavailable or failed"},
		},
		{
			"it starts at once", newPool("worker", slots("2")), at("n", before),
			nodes.Node{Phase: nodes.Waiting, Current: before, Desired: target},
		},
		{
			"it waits for the end of a pause", newPool("worker", paused), at("n", before),
			nodes.Node{Phase: nodes.Waiting, Current: before, Desired: target, Why: "waits because the pool is paused"},
		},
		{
			"it is cordoned by an administrator", newPool("worker"), cordoned(at("n", before), ""),
			nodes.Node{Phase: nodes.Waiting, Current: before, Desired: target, Why: "waits because it is cordoned"},
		},
		{
			"it has no config yet", newPool("worker"), newNode("n", "state", api.NodeDone),
			nodes.Node{Phase: nodes.Waiting, Desired: target, Why: "waits for a free slot: at most 1 node may be unavailable or failed"},
		},
		{
			"its pool has no config yet", newPool("worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.Configuration.Name = "" }), newNode("n", "state", api.NodeDone),
			nodes.Node{Phase: nodes.Waiting, Why: "waits for the pool's first rendered config"},
		},
		{
			"its daemon has not started", newPool("worker"), to("n", api.NodeDone),
			nodes.Node{Phase: nodes.Waiting, Current: before, Desired: target, Why: "waits for its daemon to start the update"},
		},
		{
			"it drains", newPool("worker"), has(to("n", api.NodeWorking, "desiredDrain", "drain-"+target), corev1.NodeDrainInProgress, corev1.ConditionTrue, "Draining", "Pods are evicted"),
			nodes.Node{Phase: nodes.Draining, Current: before, Desired: target, Since: new(now.Add(-time.Hour))},
		},
		{
			"its drain is blocked", newPool("worker"), blocked("n"),
			nodes.Node{Phase: nodes.Draining, Current: before, Desired: target, Attempt: 2, Since: new(now.Add(-time.Hour)), Why: "Pod shop/web-0 stays: the budget shop/web needs 3 healthy pods"},
		},
		{
			"its host changes", newPool("worker"), has(to("n", api.NodeWorking, "desiredDrain", "drain-"+target, "lastAppliedDrain", "drain-"+target), corev1.NodeMaintenanceInProgress, corev1.ConditionTrue, "", ""),
			nodes.Node{Phase: nodes.Applying, Current: before, Desired: target, Since: new(now.Add(-time.Hour))},
		},
		{"its host changes without a drain", newPool("worker"), to("n", api.NodeWorking), nodes.Node{Phase: nodes.Applying, Current: before, Desired: target}},
		{
			"it reboots", newPool("worker"), to("n", api.NodeRebooting, "desiredDrain", "drain-"+target, "lastAppliedDrain", "drain-"+target),
			nodes.Node{Phase: nodes.Rebooting, Current: before, Desired: target},
		},
		{
			"it failed", newPool("worker"), to("n", api.NodeDegraded, "reason", "the disk is full"),
			nodes.Node{Phase: nodes.Degraded, Current: before, Desired: target, Why: "the disk is full"},
		},
		{
			"it is done and not ready", newPool("worker"), has(newNodeWithout(at("n", target)), corev1.NodeReady, corev1.ConditionUnknown, "", "the kubelet is silent"),
			nodes.Node{Phase: nodes.Done, Current: target, Desired: target, Since: new(now.Add(-time.Hour)), Why: "has condition Ready=Unknown: the kubelet is silent"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// Another unavailable node uses the only slot.
			other := cordoned(at("z", target), "")
			s, err := nodes.NewStatus(nodes.Cluster{At: now, Pools: []*mcfgv1.MachineConfigPool{tt.pool}, Nodes: []*corev1.Node{tt.node, other}}, "")
			require.NoError(t, err)
			require.Len(t, s.Pools[0].Nodes, 2)
			tt.want.Name = "n"
			assert.Contains(t, s.Pools[0].Nodes, tt.want)
		})
	}
}

// newNodeWithout returns a node without conditions.
func newNodeWithout(n *corev1.Node) *corev1.Node {
	n.Status.Conditions = nil
	return n
}

// invalid returns a pool with an invalid selector.
func invalid() *mcfgv1.MachineConfigPool {
	p := newPool("infra")
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "infra", Operator: "Bogus"}}}
	return p
}

func TestStatusNamesAnInvalidNodeSelector(t *testing.T) {
	c := nodes.Cluster{At: now, Pools: []*mcfgv1.MachineConfigPool{newPool("worker"), invalid()}, Nodes: []*corev1.Node{at("n", before)}}
	s, err := nodes.NewStatus(c, "")
	require.NoError(t, err)
	assert.Equal(t, nodes.PoolDegraded, s.Pools[0].State)
	assert.Contains(t, s.Pools[0].SpecError, "spec.nodeSelector is invalid")
	assert.Equal(t, "waits because it may belong to MachineConfigPool infra, whose spec.nodeSelector is invalid", s.Pools[1].Nodes[0].Why)
	var out bytes.Buffer
	require.NoError(t, s.Text(&out))
	assert.Contains(t, out.String(), s.Pools[0].SpecError)
}

func TestNodeThatCannotStageSaysWhy(t *testing.T) {
	c := nodes.Cluster{At: now, Pools: []*mcfgv1.MachineConfigPool{newPool("worker", with(pool.NodesWaiting, "Node n waits"))}, Nodes: []*corev1.Node{at("n", before)}}
	c.Machines = unstageable("n", target)
	s, err := nodes.NewStatus(c, "")
	require.NoError(t, err)
	assert.Equal(t, nodes.PoolUpdating, s.Pools[0].State)
	assert.Equal(t, nodes.Waiting, s.Pools[0].Nodes[0].Phase)
	assert.Equal(t, "cannot stage MachineConfig "+target+": no space", s.Pools[0].Nodes[0].Why)
}

// TestControlPlanePoolNamesTheOneForWhichItWaits has a master that is being updated.
func TestControlPlanePoolNamesTheOneForWhichItWaits(t *testing.T) {
	master, waits, arbiter := to("m-0", api.NodeWorking), at("m-1", before), at("a-0", before)
	for n, role := range map[*corev1.Node]string{master: "master", waits: "master", arbiter: "arbiter"} {
		n.Labels["role"] = role
	}
	why := func() map[string]string {
		s, err := nodes.NewStatus(nodes.Cluster{
			Pools: []*mcfgv1.MachineConfigPool{newPool("arbiter"), newPool("master")}, Nodes: []*corev1.Node{master, waits, arbiter},
		}, "")
		require.NoError(t, err)
		why := map[string]string{}
		for _, p := range s.Pools {
			for _, n := range p.Nodes {
				why[n.Name] = n.Why
			}
		}
		return why
	}
	assert.Equal(t, map[string]string{
		"m-0": "", "m-1": "waits for another control-plane node: they are updated one at a time",
		"a-0": "waits for a node of MachineConfigPool master, which is unavailable or failed: control-plane nodes are updated one at a time",
	}, why())
	master = at("m-0", before)
	master.Labels["role"] = "master"
	assert.Equal(t, map[string]string{"m-0": "", "m-1": "", "a-0": ""}, why())
}

func TestDoneNodesAreOnlyCounted(t *testing.T) {
	s, err := nodes.NewStatus(nodes.Cluster{At: now, Pools: []*mcfgv1.MachineConfigPool{newPool("worker")}, Nodes: []*corev1.Node{at("a", target)}}, "")
	require.NoError(t, err)
	assert.Equal(t, []nodes.Pool{{
		Name: "worker", State: nodes.PoolUpdated, Config: target, Total: 1, Done: 1, MaxUnavailable: 1, Nodes: []nodes.Node{},
	}}, s.Pools)
}

func TestPoolsHaveAState(t *testing.T) {
	all := func(p *mcfgv1.MachineConfigPool) { p.Spec.NodeSelector = &metav1.LabelSelector{} }
	unrendered := func(p *mcfgv1.MachineConfigPool) { p.Spec.Configuration.Name = "" }
	for _, tt := range []struct {
		name   string
		change []func(*mcfgv1.MachineConfigPool)
		node   *corev1.Node
		want   nodes.PoolState
	}{
		{"it is updated", nil, at("a", target), nodes.PoolUpdated},
		{"it is updated although it is paused", []func(*mcfgv1.MachineConfigPool){paused}, at("a", target), nodes.PoolUpdated},
		{"it is updating", nil, at("a", before), nodes.PoolUpdating},
		{"it is paused", []func(*mcfgv1.MachineConfigPool){paused}, at("a", before), nodes.PoolPaused},
		{"it has no config", []func(*mcfgv1.MachineConfigPool){unrendered}, at("a", before), nodes.PoolEmpty},
		{"it has a degraded node", nil, to("a", api.NodeDegraded), nodes.PoolDegraded},
		{"it cannot be rendered", []func(*mcfgv1.MachineConfigPool){with(mcfgv1.MachineConfigPoolRenderDegraded, "why")}, at("a", target), nodes.PoolDegraded},
		{"it has an invalid field", []func(*mcfgv1.MachineConfigPool){slots("two")}, at("a", before), nodes.PoolDegraded},
		{"it would select all nodes", []func(*mcfgv1.MachineConfigPool){all}, at("a", before), nodes.PoolDegraded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := nodes.Cluster{At: now, Pools: []*mcfgv1.MachineConfigPool{newPool("worker", tt.change...)}, Nodes: []*corev1.Node{tt.node}}
			s, err := nodes.NewStatus(c, "")
			require.NoError(t, err)
			assert.Equal(t, tt.want, s.Pools[0].State)
		})
	}
}

// large returns a cluster in which much happens.
func large() nodes.Cluster {
	c := nodes.Cluster{At: now, Pools: []*mcfgv1.MachineConfigPool{
		newPool("worker", with(pool.NodesWaiting, nodesWait), slots("10%")),
		newPool("master", paused),
		newPool("infra", with(mcfgv1.MachineConfigPoolRenderDegraded, "MachineConfig 99-infra is invalid: spec.config.storage.files[0].path is \"/proc/x\", but files in /proc do not survive a reboot; choose another path")),
		newPool("edge"), newPool("gpu"),
	}}
	c.Nodes = append(c.Nodes,
		cordoned(has(to("w-0000", api.NodeDegraded, "reason", "writing /etc/app.conf:\nno space left\x1b[31m on device"), corev1.NodeMaintenancePlanned, corev1.ConditionTrue, "Degraded", ""), "3"),
		has(cordoned(to("w-0001", api.NodeWorking, "desiredDrain", "drain-"+target), "1"), corev1.NodeDrainInProgress, corev1.ConditionTrue, "Draining", ""),
		blocked("w-0002"),
		to("w-0003", api.NodeRebooting),
	)
	for i := 4; i < 35; i++ {
		c.Nodes = append(c.Nodes, at(fmt.Sprintf("w-%04d", i), before))
	}
	for i := 35; i < 100; i++ {
		c.Nodes = append(c.Nodes, at(fmt.Sprintf("w-%04d", i), target))
	}
	master, silent, poolless, contested := at("m-0", before), newNode("silent"), at("poolless", before), at("contested", before)
	master.Labels["role"], poolless.Labels["role"] = "master", "other"
	c.Pools[4].Spec.NodeSelector.MatchLabels, contested.Labels["gpu"] = map[string]string{"gpu": ""}, ""
	contested.Labels["role"] = "edge"
	released := at("released", before)
	released.Annotations[api.NodeReleasedAnnotation] = ""
	c.Nodes = append(c.Nodes, master, silent, poolless, contested, released)
	return c
}

func TestStatusTextMatchesTheGoldenFile(t *testing.T) {
	s, err := nodes.NewStatus(large(), "")
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, s.Text(&out))
	golden.Assert(t, "status", out.String()+"\n"+s.Summary()+"\n")
	assert.NotContains(t, out.String(), "\x1b")
}

func TestStatusWithoutPoolsSaysSo(t *testing.T) {
	s, err := nodes.NewStatus(nodes.Cluster{At: now}, "")
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, s.Text(&out))
	assert.Equal(t, "There are no MachineConfigPools yet.\n", out.String())
	assert.Equal(t, "There are no MachineConfigPools yet.", s.Summary())
}

func TestStatusOfOnePoolOmitsTheOthers(t *testing.T) {
	s, err := nodes.NewStatus(large(), "master")
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, s.Text(&out))
	assert.Equal(t, 1, strings.Count(out.String(), "Pool "))
	assert.NotContains(t, out.String(), "poolless")
	_, err = nodes.NewStatus(large(), "workers")
	require.EqualError(t, err, `there is no MachineConfigPool "workers": the pools are edge, gpu, infra, master, worker`)
}

func TestStatusTextOfAHugeClusterIsShort(t *testing.T) {
	c := nodes.Cluster{At: now, Pools: []*mcfgv1.MachineConfigPool{newPool("worker")}}
	for i := range 2000 {
		c.Nodes = append(c.Nodes, at(fmt.Sprintf("w-%04d", i), before), newNode(fmt.Sprintf("silent-%04d", i)))
	}
	s, err := nodes.NewStatus(c, "")
	require.NoError(t, err)
	assert.Len(t, s.Pools[0].Nodes, 2000)
	var out bytes.Buffer
	require.NoError(t, s.Text(&out))
	assert.Less(t, strings.Count(out.String(), "\n"), 30)
	assert.Contains(t, out.String(), "… and 1980 more")
	assert.Contains(t, out.String(), "2000 nodes without a daemon, not counted above: silent-0000, ")
}

// assertHarmless compares a text with names and messages from the cluster that contain control characters with one without them.
func assertHarmless(t *testing.T, text func(evil string) string) {
	t.Helper()
	harmless, got := text("x"), text("\x1b[2J\n\t\r\x9bx")
	assert.Contains(t, harmless, "x")
	assert.Equal(t, printable.Lines(got), got)
	assert.NotContains(t, got, "\t")
	assert.Equal(t, strings.Count(harmless, "\n"), strings.Count(got, "\n"), "%s\n%s", harmless, got)
}

func TestStatusTextContainsNoControlCharacters(t *testing.T) {
	status := func(evil string) *nodes.Status {
		c := nodes.Cluster{At: now, Pools: []*mcfgv1.MachineConfigPool{
			newPool("worker"+evil, with(mcfgv1.MachineConfigPoolRenderDegraded, "render"+evil), with(pool.NodesWaiting, "waits"+evil), slots("2")),
			newPool("edge"+evil, with(mcfgv1.MachineConfigPoolNodeDegraded, "node"+evil), slots("y"+evil)),
			newPool("infra" + evil), newPool("gpu" + evil),
		}}
		c.Pools[0].Spec.NodeSelector.MatchLabels["role"] = "worker"
		c.Pools[0].Spec.Configuration.Name += evil
		for _, p := range c.Pools[2:] {
			p.Spec.NodeSelector.MatchLabels["role"] = "both"
		}
		stray, silent, both := at("stray"+evil, before), newNode("silent"+evil), at("both"+evil, before)
		stray.Labels["role"], both.Labels["role"] = "none", "both"
		c.Nodes = []*corev1.Node{
			at("a"+evil, before), at("b", "from"+evil), stray, silent, both,
			newNode("c", "currentConfig", before, "desiredConfig", "to"+evil, "state", api.NodeDegraded, "reason", "no space"+evil),
			has(newNodeWithout(at("d", target)), corev1.NodeReady, corev1.ConditionUnknown, "", "silent"+evil),
			has(to("e", api.NodeWorking, "desiredDrain", "drain-"+target), corev1.NodeDrainInProgress, corev1.ConditionTrue, "Blocked", "budget"+evil),
		}
		s, err := nodes.NewStatus(c, "")
		require.NoError(t, err)
		return s
	}
	t.Run("the text", func(t *testing.T) {
		assertHarmless(t, func(evil string) string {
			var out bytes.Buffer
			require.NoError(t, status(evil).Text(&out))
			return out.String()
		})
	})
	t.Run("the summary", func(t *testing.T) {
		assertHarmless(t, func(evil string) string { return status(evil).Summary() })
	})
}
