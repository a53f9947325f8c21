package plan_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/plan"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// parseBudgets reads budgets such as "web:3/2/2@10s": of 3 pods, 2 are healthy and 2 must be, and the budget has been at zero for 10 s.
func parseBudgets(t *testing.T, text string) []policyv1.PodDisruptionBudget {
	t.Helper()
	var budgets []policyv1.PodDisruptionBudget
	for field := range strings.FieldsSeq(text) {
		name, counts, found := strings.Cut(field, ":")
		require.True(t, found, field)
		counts, age, _ := strings.Cut(counts, "@")
		b := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{name: ""}}
		_, err := fmt.Sscanf(counts, "%d/%d/%d", &b.Status.ExpectedPods, &b.Status.CurrentHealthy, &b.Status.DesiredHealthy)
		require.NoError(t, err, field)
		b.Status.DisruptionsAllowed = max(b.Status.CurrentHealthy-b.Status.DesiredHealthy, 0)
		if age != "" {
			d, err := time.ParseDuration(age)
			require.NoError(t, err, field)
			b.Status.Conditions = []metav1.Condition{{
				Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(now.Add(-d)),
			}}
		}
		budgets = append(budgets, b)
	}
	return budgets
}

// parseNodes reads nodes and their pods, such as "a:web,web b: c:web+db,web!". A pod has the labels that its name lists, and "!" makes it
// unready.
func parseNodes(t *testing.T, text string) (nodes []*corev1.Node, pods []*corev1.Pod) {
	t.Helper()
	for field := range strings.FieldsSeq(text) {
		name, list, found := strings.Cut(field, ":")
		require.True(t, found, field)
		nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		for i, app := range strings.Split(list, ",") {
			if app == "" {
				continue
			}
			ready := corev1.ConditionTrue
			if app, found = strings.CutSuffix(app, "!"); found {
				ready = corev1.ConditionFalse
			}
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("%s-%s-%d", app, name, i), Labels: map[string]string{}}}
			for l := range strings.SplitSeq(app, "+") {
				p.Labels[l] = ""
			}
			p.Spec.NodeName = name
			p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}
			pods = append(pods, p)
		}
	}
	return nodes, pods
}

func namesOf(nodes []*corev1.Node) string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return strings.Join(names, " ")
}

// describe returns the nodes that start and the causes of the others, such as "a; b Slot".
func describe(p plan.Plan) string {
	parts := []string{namesOf(p.Start)}
	for _, w := range p.Waiting {
		parts = append(parts, w.Node.Name+" "+string(w.Cause))
	}
	return strings.Join(parts, "; ")
}

func TestPlan(t *testing.T) {
	for _, tt := range []struct {
		name              string
		budgets           string
		nodes             string
		draining          string
		slots, free       int
		want              string
		sentence          string // of the last node that waits
		alwaysAllow, late bool   // of all budgets
	}{
		{name: "it keeps the order of the pool without budgets", nodes: "b: a: c:", slots: 2, free: 2, want: "b a; c Slot"},
		{
			name: "it starts nothing without a free slot", nodes: "a: b:", slots: 3, want: "; a Slot; b Slot",
			sentence: "waits for a free slot: at most 3 nodes may be unavailable or failed",
		},
		{name: "it prefers a node whose evictions fit", budgets: "web:9/9/8", nodes: "a:web,web b:web", slots: 1, free: 1, want: "b; a Slot"},
		{name: "it keeps the order of nodes whose evictions fit", budgets: "web:9/9/7 db:3/3/2", nodes: "a:web b:db c:", slots: 2, free: 2, want: "a b; c Slot"},
		{name: "it counts nodes of the same round", budgets: "web:9/9/8", nodes: "a:web b:web c:", slots: 2, free: 2, want: "a c; b Slot"},
		{name: "it counts draining nodes", budgets: "web:9/9/8", nodes: "a:web b:", draining: "d:web", slots: 2, free: 1, want: "b; a Slot"},
		{name: "it fills a slot although a pod waits", budgets: "web:9/9/8", nodes: "a:web b:web", slots: 2, free: 2, want: "a b"},
		{name: "it takes the shortest wait", budgets: "web:9/9/8", nodes: "a:web,web,web b:web,web", slots: 1, free: 1, want: "b; a Slot"},
		{
			name: "it takes the tightest budget among equal waits", budgets: "web:9/8/8@1s db:9/8/8@1s", nodes: "a:web b:db c:db", slots: 1, free: 1,
			want: "b; a Slot; c Slot",
		},
		{
			name: "it leaves a slot empty if many pods wait already", budgets: "web:9/9/8", nodes: "a:web", draining: "d:web,web", slots: 3, free: 2,
			want: "; a UsedBudget", sentence: "waits for PodDisruptionBudget shop/web: nodes that are being drained use up the disruptions that it allows",
		},
		{name: "it starts a node with more pods than the budget ever allows", budgets: "web:9/9/8", nodes: "a:web,web,web", slots: 1, free: 1, want: "a"},
		{name: "it starts a node whose budget has just been used", budgets: "web:9/8/8@59s", nodes: "a:web", slots: 1, free: 1, want: "a"},
		{
			name: "it passes over a node whose budget is zero for a while", budgets: "web:9/8/8@1m", nodes: "a:web b:", slots: 2, free: 2,
			want: "b; a ZeroBudget", sentence: "waits for PodDisruptionBudget shop/web, which allows no disruption now: 8 pods are healthy, and 8 must be",
		},
		{name: "it passes over a node whose budget is zero since an unknown time", budgets: "web:9/8/8", nodes: "a:web", slots: 1, free: 1, want: "; a ZeroBudget"},
		{name: "it waits for a late controller of budgets", budgets: "web:9/9/7", late: true, nodes: "a:web", slots: 1, free: 1, want: "; a ZeroBudget"},
		{name: "it starts a node whose budget is always zero", budgets: "db:3/3/3@1h", nodes: "a:db", slots: 1, free: 1, want: "a"},
		{name: "it starts such a node last", budgets: "db:3/3/3 web:9/9/8", nodes: "a:db b:web,web c:", slots: 2, free: 2, want: "c b; a Slot"},
		{
			name: "it starts nodes of a budget that is always zero one at a time", budgets: "db:3/3/3", nodes: "a:db b:db", slots: 4, free: 4,
			want:     "a; b BlockedPod",
			sentence: "waits for other nodes that are drained last: PodDisruptionBudget shop/db never allows a disruption, because 3 pods must be healthy",
		},
		{name: "it counts draining nodes of such a budget", budgets: "db:3/3/3", nodes: "a:db", draining: "d:db", slots: 4, free: 3, want: "; a BlockedPod"},
		{name: "it gives half of the slots to such nodes", budgets: "v1:1/1/1 v2:1/1/1 v3:1/1/1", nodes: "a:v1 b:v2 c:v3", slots: 4, free: 4, want: "a b; c BlockedPod"},
		{name: "it starts such a node with one slot", budgets: "v1:1/1/1", nodes: "a:v1", slots: 1, free: 1, want: "a"},
		{
			name: "it starts a node last if two budgets select its pod", budgets: "web:9/9/8 db:9/9/8", nodes: "a:web+db b:", slots: 1, free: 1,
			want: "b; a Slot",
		},
		{
			name: "it names a pod that two budgets select", budgets: "web:9/9/8 db:9/9/8", nodes: "a:web+db b:web+db", slots: 2, free: 2,
			want:     "a; b BlockedPod",
			sentence: "waits for other nodes that are drained last: several PodDisruptionBudgets select pod shop/web+db-b-0, so it cannot be evicted",
		},
		{name: "it ignores a pod that is not ready while the others are", budgets: "web:9/8/8", nodes: "a:web!", slots: 1, free: 1, want: "a"},
		{name: "it waits for a pod that is not ready while others are not", budgets: "web:9/7/8", nodes: "a:web!", slots: 1, free: 1, want: "; a ZeroBudget"},
		{name: "it ignores pods that are not ready by policy", budgets: "web:9/7/8", alwaysAllow: true, nodes: "a:web!", slots: 1, free: 1, want: "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nodes, pods := parseNodes(t, tt.nodes)
			draining, more := parseNodes(t, tt.draining)
			budgets := parseBudgets(t, tt.budgets)
			for i := range budgets {
				if tt.alwaysAllow {
					budgets[i].Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
				}
				if tt.late {
					budgets[i].Generation = 2
				}
			}
			x := plan.NewIndex(budgets)
			for _, p := range append(pods, more...) {
				x.AddPod(p)
			}

			p := x.Plan([]plan.Pool{{Name: "worker", Candidates: nodes, Draining: draining, Slots: tt.slots, Used: tt.slots - tt.free}}, now)[0]

			assert.Equal(t, tt.want, describe(p))
			idle := 0
			if len(p.Waiting) > 0 {
				idle = min(tt.free-len(p.Start), len(p.Waiting))
			}
			assert.Equal(t, idle, p.Idle)
			if tt.sentence != "" {
				assert.Equal(t, tt.sentence, p.Waiting[len(p.Waiting)-1].String())
			}
		})
	}
}

// TestOrderWithoutBudgetsIsThatOfThePool has the nodes of pool's TestNodesStartByZoneAndAge.
func TestOrderWithoutBudgetsIsThatOfThePool(t *testing.T) {
	var nodes []*corev1.Node
	for place := range strings.FieldsSeq("ZZZ/200 ZZZ/1500 ZZZ/42 RRR/100 RRR/42 QQQ/42 /200 /900 /42") {
		zone, age, _ := strings.Cut(place, "/")
		seconds, err := time.ParseDuration(age + "s")
		require.NoError(t, err)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: place, CreationTimestamp: metav1.NewTime(now.Add(seconds))}}
		n.Annotations = map[string]string{api.NodeStateAnnotation: api.NodeDone}
		if zone != "" {
			n.Labels = map[string]string{corev1.LabelTopologyZone: zone}
		}
		nodes = append(nodes, n)
	}
	p := &mcfgv1.MachineConfigPool{}
	p.Spec.Configuration.Name = "after"
	for most := range len(nodes) + 1 {
		c := pool.Select(p, nodes, most)
		got := plan.NewIndex(nil).Plan([]plan.Pool{{Name: "worker", Candidates: c.Start, Slots: most, Used: most - c.Capacity}}, now)[0]
		assert.Equal(t, namesOf(c.Start[:most]), namesOf(got.Start))
		assert.Len(t, got.Waiting, len(nodes)-most)
	}
}

// TestControlPlane plans the pools master, arbiter and worker of a cluster.
func TestControlPlane(t *testing.T) {
	const refusal = "waits for etcd"
	for _, tt := range []struct {
		name                    string
		budgets                 string
		masters, arbiters, work string
		used, usedArbiters      int
		leader, refusal         string
		want                    [3]string
		sentence                string // of the first master that waits
		// other has the pools for which masters and arbiters wait although their own pool has a free slot.
		other [2]string
	}{
		{name: "it starts the only node, which has the leader", masters: "m0:", leader: "m0", want: [3]string{"m0"}},
		{name: "it starts workers beside the only node", masters: "m0:", work: "w0: w1: w2:", leader: "m0", want: [3]string{"m0", "", "w0 w1 w2"}},
		{
			name: "it starts one of three nodes, and not the leader's", masters: "m0: m1: m2:", work: "w0: w1: w2:", leader: "m0",
			want: [3]string{"m1; m2 ControlPlane; m0 ControlPlane", "", "w0 w1 w2"}, sentence: "waits for another control-plane node: they are updated one at a time",
		},
		{
			name: "it starts none beside an unavailable one", masters: "m1: m2:", used: 1, leader: "m0",
			want: [3]string{"; m1 ControlPlane; m2 ControlPlane"},
		},
		{name: "it starts the leader's node last", masters: "m0:", leader: "m0", want: [3]string{"m0"}},
		{
			name: "it lets the leader's node wait although its evictions fit", budgets: "web:9/9/8", masters: "m0: m1:web,web", leader: "m0",
			want: [3]string{"m1; m0 ControlPlane"},
		},
		{
			name: "it lets the leader's node wait for one that is passed over", budgets: "web:9/8/8", masters: "m0: m1:web", leader: "m0",
			want: [3]string{"; m1 ZeroBudget; m0 Leader"}, sentence: "waits for PodDisruptionBudget shop/web, which allows no disruption now: 8 pods are healthy, and 8 must be",
		},
		{
			name: "it starts no node that the guard refuses", masters: "m0: m1:", arbiters: "a0:", work: "w0:", leader: "m0", refusal: refusal,
			want: [3]string{"; m1 Refused; m0 Refused", "; a0 Refused", "w0"}, sentence: refusal,
		},
		{name: "it counts arbiters", masters: "m0: m1:", arbiters: "a0:", want: [3]string{"m0; m1 ControlPlane", "; a0 ControlPlane"}, other: [2]string{"", "master"}},
		{name: "it starts no master beside an unavailable arbiter", masters: "m0:", usedArbiters: 1, want: [3]string{"; m0 ControlPlane"}, other: [2]string{"arbiter"}},
		{name: "it starts no arbiter beside an unavailable master", arbiters: "a0:", used: 1, want: [3]string{"", "; a0 ControlPlane"}, other: [2]string{"", "master"}},
		{name: "it ignores the leader among workers", work: "w0: w1: w2:", leader: "w0", want: [3]string{"", "", "w0 w1 w2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := plan.NewIndex(parseBudgets(t, tt.budgets))
			var pools []plan.Pool
			for i, text := range []string{tt.masters, tt.arbiters, tt.work} {
				nodes, pods := parseNodes(t, text)
				for _, p := range pods {
					x.AddPod(p)
				}
				p := plan.Pool{Name: []string{api.ControlPlanePool, api.ArbiterPool, api.WorkerPool}[i], Candidates: nodes, Slots: 3, Leader: tt.leader}
				p.Used = []int{tt.used, tt.usedArbiters, 0}[i]
				p.UpdatesControlPlane = pool.IsControlPlanePool(p.Name)
				p.Refused = map[string]string{}
				pools = append(pools, p)
			}

			plans := plan.Guarded(pools, func(pools []plan.Pool) []plan.Plan { return x.Plan(pools, now) }, func(*corev1.Node) string { return tt.refusal })

			for i, want := range tt.want {
				assert.Equal(t, want, describe(plans[i]), pools[i].Name)
			}
			if tt.sentence != "" {
				assert.Equal(t, tt.sentence, plans[0].Waiting[0].String())
			}
			for i, want := range tt.other {
				if want != "" {
					assert.Contains(t, plans[i].Waiting[0].String(), "waits for a node of MachineConfigPool "+want+",")
				}
				for _, w := range plans[i].Waiting {
					assert.Equal(t, want, w.OtherPool)
				}
			}
		})
	}
	leader := plan.Wait{Cause: plan.Leader}
	assert.Equal(t, "waits for the other nodes of its pool: it runs the leading controller, which has to move once", leader.String())
}

func TestControlPlaneNodesStartOneAtATime(t *testing.T) {
	nodes, _ := parseNodes(t, "m0: m1:")
	x := plan.NewIndex(nil)
	for free, want := range []string{"; m0 ControlPlane; m1 ControlPlane", "; m0 ControlPlane; m1 ControlPlane", "; m0 ControlPlane; m1 ControlPlane", "m0; m1 ControlPlane"} {
		p := x.Plan([]plan.Pool{{Name: "custom", UpdatesControlPlane: true, Candidates: nodes, Slots: 3, Used: 3 - free}}, now)[0]
		assert.Equal(t, want, describe(p), "%d of 3 slots are free", free)
		assert.Equal(t, "waits for another control-plane node: they are updated one at a time", p.Waiting[0].String())
	}
}

func TestNodesWithoutADrainNeedNoBudget(t *testing.T) {
	nodes, pods := parseNodes(t, "a:web b:web c:web d:web")
	x := plan.NewIndex(parseBudgets(t, "web:9/9/8"))
	for _, p := range pods {
		x.AddPod(p)
	}
	pool := plan.Pool{Name: "worker", Candidates: nodes[1:], Draining: nodes[:1], Slots: 4, Used: 2, Undrained: map[string]bool{"a": true, "d": true}}
	assert.Equal(t, "b d; c Slot", describe(x.Plan([]plan.Pool{pool}, now)[0]))

	x = plan.NewIndex(parseBudgets(t, "web:9/8/8"))
	for _, p := range pods {
		x.AddPod(p)
	}
	assert.Equal(t, "d; b ZeroBudget; c ZeroBudget", describe(x.Plan([]plan.Pool{pool}, now)[0]))
}

func TestPoolsShareBudgets(t *testing.T) {
	nodes, pods := parseNodes(t, "a:web b:web c:")
	x := plan.NewIndex(parseBudgets(t, "web:9/9/8"))
	for _, p := range pods {
		x.AddPod(p)
	}
	plans := x.Plan([]plan.Pool{
		{Name: "worker", Candidates: nodes[:1], Slots: 1},
		{Name: "infra", Candidates: nodes[1:], Slots: 1},
	}, now)
	assert.Equal(t, "a", describe(plans[0]))
	assert.Equal(t, "c; b Slot", describe(plans[1]))
}

// TestNodesThatShareABudgetDoNotMeet updates 100 nodes, 10 at a time. The first ten share a budget that allows one disruption. While there are
// other nodes, the evictions of all draining nodes fit.
func TestNodesThatShareABudgetDoNotMeet(t *testing.T) {
	var text strings.Builder
	for i := range 100 {
		fmt.Fprintf(&text, "n%02d:%s ", i, map[bool]string{true: "web"}[i < 10])
	}
	left, pods := parseNodes(t, text.String())
	x := plan.NewIndex(parseBudgets(t, "web:10/10/9"))
	for _, p := range pods {
		x.AddPod(p)
	}
	started := 0
	for len(left) >= 20 {
		p := x.Plan([]plan.Pool{{Name: "worker", Candidates: left, Slots: 10}}, now)[0]
		require.Len(t, p.Start, 10)
		sharing := 0
		for _, n := range p.Start {
			if n.Name < "n10" {
				sharing++
			}
		}
		assert.Equal(t, 1, sharing, namesOf(p.Start))
		left = left[:0]
		for _, w := range p.Waiting {
			left = append(left, w.Node)
		}
		started += len(p.Start)
	}
	assert.Equal(t, 90, started)
}

// TestEachCandidateStartsOrWaits plans random clusters.
func TestEachCandidateStartsOrWaits(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		apps := []string{"web", "db", "vm", "cache"}
		var budgets, text strings.Builder
		for _, app := range apps[:random.IntN(len(apps)+1)] {
			expected := 1 + random.IntN(6)
			fmt.Fprintf(&budgets, "%s:%d/%d/%d@%ds ", app, expected, random.IntN(expected+1), random.IntN(expected+1), random.IntN(120))
		}
		for i := range random.IntN(12) {
			fmt.Fprintf(&text, "n%d:", i)
			for range random.IntN(4) {
				fmt.Fprintf(&text, "%s,", []string{"web", "db", "vm", "cache", "web!", "web+db", "job"}[random.IntN(7)])
			}
			text.WriteString(" ")
		}
		nodes, pods := parseNodes(t, text.String())
		x := plan.NewIndex(parseBudgets(t, budgets.String()))
		for _, p := range pods {
			x.AddPod(p)
		}
		drained := random.IntN(len(nodes) + 1)
		slots := 1 + random.IntN(6)
		input := plan.Pool{Name: "worker", Draining: nodes[:drained], Candidates: nodes[drained:], Slots: slots, Used: random.IntN(slots + 1)}

		p := x.Plan([]plan.Pool{input}, now)[0]

		all := append([]*corev1.Node{}, p.Start...)
		for _, w := range p.Waiting {
			all = append(all, w.Node)
			assert.Equal(t, p.Idle == 0, w.Cause == plan.Slot, "seed %d: %s %s", seed, w.Node.Name, w)
		}
		assert.ElementsMatch(t, input.Candidates, all, "seed %d", seed)
		assert.LessOrEqual(t, len(p.Start)+p.Idle, slots-input.Used, "seed %d", seed)
		assert.Equal(t, p, x.Plan([]plan.Pool{input}, now)[0], "seed %d: the same plan again", seed)
	}
}

// TestNodesWithADaemonOfAnotherReleaseWait has two nodes with a daemon of each release: one can start, the update of the other to an older config
// is in progress.
func TestNodesWithADaemonOfAnotherReleaseWait(t *testing.T) {
	var nodes []*corev1.Node
	for _, release := range []string{"1.0.0", "1.1.0"} {
		start := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "start-" + release, Annotations: map[string]string{
			api.NodeStateAnnotation: api.NodeDone, api.DaemonReleaseAnnotation: release,
		}}}
		retarget := start.DeepCopy()
		retarget.Name, retarget.Annotations[api.DesiredConfigAnnotation], retarget.Annotations[api.NodeStateAnnotation] = "retarget-"+release, "old", api.NodeWorking
		nodes = append(nodes, start, retarget)
	}
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	p.Spec.Configuration.Name, p.Spec.MaxUnavailable = "new", new(intstr.FromInt32(4))

	input, err := plan.NewPool(p, pool.Membership{Nodes: map[string][]*corev1.Node{"worker": nodes}}, nodes, "1.1.0", "")

	require.NoError(t, err)
	require.Len(t, input.Retarget, 1)
	assert.Equal(t, "retarget-1.1.0", input.Retarget[0].Name)
	require.Len(t, input.Held, 1)
	assert.Equal(t, "retarget-1.0.0", input.Held[0].Name)
	result := plan.NewIndex(nil).Plan([]plan.Pool{input}, now)[0]
	require.Len(t, result.Start, 1)
	assert.Equal(t, "start-1.1.0", result.Start[0].Name)
	require.Len(t, result.Waiting, 1)
	assert.Equal(t, plan.Refused, result.Waiting[0].Cause)
	assert.Equal(t, `waits for its daemon of release 1.1.0: the running one is of release "1.0.0"`, result.Waiting[0].String())
}

// TestNodesThatCannotStageAreSkipped has a pool with a slot for the node of the leading controller, and another node that cannot stage the config.
func TestNodesThatCannotStageAreSkipped(t *testing.T) {
	nodes, _ := parseNodes(t, "a: leader:")
	machines := map[string]*mcfgv1.MachineConfigNode{}
	for i, n := range nodes {
		machines[n.Name] = &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Annotations: map[string]string{api.StageAnnotation: "new"}}}
		pool.SetStaged(&machines[n.Name].Status.Conditions, "new", []string{"no space", ""}[i], now)
	}
	input := plan.Pool{Name: "master", UpdatesControlPlane: true, Leader: "leader", Candidates: nodes, Slots: 1, Refused: map[string]string{}}

	assert.Empty(t, input.RequireStaged("new", 2, machines))

	const why = "cannot stage MachineConfig new: no space"
	result := plan.NewIndex(nil).Plan([]plan.Pool{input}, now)[0]
	assert.Equal(t, "leader; a Refused", describe(result))
	assert.Equal(t, why, result.Waiting[0].String())
	input.Used = 1
	result = plan.NewIndex(nil).Plan([]plan.Pool{input}, now)[0]
	require.Len(t, result.Waiting, 2)
	assert.Equal(t, why, result.Waiting[0].String(), "it does not wait for a slot")
	assert.Equal(t, plan.ControlPlane, result.Waiting[1].Cause)
}

// TestNodesOfAFullZoneWait has a node of zone b that uses a slot, and nodes without a zone.
func TestNodesOfAFullZoneWait(t *testing.T) {
	p := plan.Pool{Name: "worker", Slots: 6, Used: 1, PerZone: 1, UsedByZone: map[string]int{"b": 1}}
	for _, name := range []string{"a1", "a2", "b1", "c1", "none1", "none2"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		if zone := name[:1]; zone != "n" {
			n.Labels[corev1.LabelTopologyZone] = zone
		}
		p.Candidates = append(p.Candidates, n)
	}
	for range 2 { // a plan does not change its input
		result := plan.NewIndex(nil).Plan([]plan.Pool{p}, now)[0]
		assert.Equal(t, "a1 c1 none1 none2", namesOf(result.Start))
		require.Len(t, result.Waiting, 2)
		assert.Equal(t, "waits for zone a, of which at most 1 node may be unavailable or failed", result.Waiting[0].String())
		assert.Equal(t, "waits for zone b, of which at most 1 node may be unavailable or failed", result.Waiting[1].String())
		assert.Zero(t, result.Idle, "no budget frees the slot")
	}

	// Nodes with a pod that no drain may evict are limited, too.
	budgets := parseBudgets(t, "db:1/1/1")
	_, pods := parseNodes(t, "a1:db a2: b1:db c1: none1: none2:")
	index := plan.NewIndex(budgets)
	for _, pod := range pods {
		index.AddPod(pod)
	}
	result := index.Plan([]plan.Pool{p}, now)[0]
	assert.Equal(t, "a2 c1 none1 none2", namesOf(result.Start))
	assert.Equal(t, plan.Zone, result.Waiting[0].Cause)

	p.PerZone = 2
	assert.Equal(t, "a1 a2 b1 c1 none1", namesOf(plan.NewIndex(nil).Plan([]plan.Pool{p}, now)[0].Start))
	p.PerZone = 0
	assert.Equal(t, "a1 a2 b1 c1 none1", namesOf(plan.NewIndex(nil).Plan([]plan.Pool{p}, now)[0].Start))
}

func TestLimitedPoolStartsOnlySoMany(t *testing.T) {
	p := plan.Pool{Name: "worker", Slots: 5, Limit: 1, Limited: "waits for the canaries"}
	for _, name := range []string{"n1", "n2", "n3"} {
		p.Candidates = append(p.Candidates, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	assert.True(t, p.CanStart())
	plans := plan.NewIndex(nil).Plan([]plan.Pool{p}, time.Time{})
	assert.Equal(t, p.Candidates[:1], plans[0].Start)
	require.Len(t, plans[0].Waiting, 2)
	assert.Equal(t, "waits for the canaries", plans[0].Waiting[0].String())
	assert.Zero(t, plans[0].Idle)

	p.Limit, p.Slots = 5, 1
	plans = plan.NewIndex(nil).Plan([]plan.Pool{p}, time.Time{})
	assert.Equal(t, plan.Slot, plans[0].Waiting[0].Cause, "the slots limit more")

	p.Limit, p.Slots = 0, 5
	assert.False(t, p.CanStart())
	assert.Empty(t, plan.NewIndex(nil).Plan([]plan.Pool{p}, time.Time{})[0].Start)
}
