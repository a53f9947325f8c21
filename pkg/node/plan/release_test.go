package plan_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/plan"
)

// release marks nodes such as "a=shop/web b=" as ones that have released their slot, with the budget that blocked the drain.
func release(nodes []*corev1.Node, text string) {
	for field := range strings.FieldsSeq(text) {
		name, budget, _ := strings.Cut(field, "=")
		i := slices.IndexFunc(nodes, func(n *corev1.Node) bool { return n.Name == name })
		nodes[i].Annotations = map[string]string{api.SlotReleasedAnnotation: strings.TrimSpace("2026-01-01T00:00:00Z " + budget)}
	}
}

func TestNodesThatReleasedTheirSlotWaitForTheOthers(t *testing.T) {
	for _, tt := range []struct {
		name              string
		budgets           string
		nodes             string
		released          string
		held, unstageable string // one node each
		leader            string
		slots             int
		want              string
	}{
		{name: "it starts the others first", nodes: "a: b: c:", released: "a=", slots: 1, want: "b; a Slot; c Slot"},
		{name: "it leaves a slot empty as long as others start", nodes: "a: b:", released: "a=", slots: 2, want: "b; a Returned"},
		{name: "it starts them when no other is left", nodes: "a: b:", released: "a= b=", slots: 1, want: "a; b Slot"},
		{name: "it starts one whose budget allows an eviction", budgets: "web:9/9/8", nodes: "a:web b:", released: "a=shop/web", slots: 2, want: "a b"},
		{name: "it waits while the budget allows none", budgets: "web:9/8/8@1s", nodes: "a:web b:", released: "a=shop/web", slots: 2, want: "b; a Returned"},
		{name: "it waits for the others if the budget is gone", budgets: "web:9/9/8", nodes: "a:web b:", released: "a=shop/db", slots: 2, want: "b; a Returned"},
		{name: "it ignores another budget", budgets: "web:9/9/8", nodes: "a:web b:", released: "a=", slots: 2, want: "b; a Returned"},
		{name: "it does not wait for a held node", nodes: "a: b:", released: "a=", held: "b", slots: 2, want: "a; b Refused"},
		{name: "it does not wait for a node that cannot stage the config", nodes: "a: b:", released: "a=", unstageable: "b", slots: 2, want: "a; b Refused"},
		{name: "it does not wait for a node that is passed over", budgets: "web:9/8/8", nodes: "a: b:web", released: "a=", slots: 2, want: "a; b ZeroBudget"},
		{name: "the node of the leader does not wait for them", nodes: "a: m:", released: "a=", leader: "m", slots: 1, want: "m; a ControlPlane"},
		{name: "they wait for the node of the leader", nodes: "a: m:", released: "a= m=", leader: "m", slots: 1, want: "a; m ControlPlane"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nodes, pods := parseNodes(t, tt.nodes)
			release(nodes, tt.released)
			x := plan.NewIndex(parseBudgets(t, tt.budgets))
			for _, p := range pods {
				x.AddPod(p)
			}
			p := plan.Pool{
				Name: "worker", Candidates: nodes, Slots: tt.slots, Leader: tt.leader, UpdatesControlPlane: tt.leader != "",
				Refused: map[string]string{}, Unstageable: map[string]string{},
			}
			for _, n := range nodes {
				switch n.Name {
				case tt.held:
					n.Annotations = map[string]string{api.NodeHoldAnnotation: "audit"}
					p.Refused[n.Name] = "is held"
				case tt.unstageable:
					p.Refused[n.Name], p.Unstageable[n.Name] = "no space", "no space"
				}
			}
			assert.Equal(t, tt.want, describe(x.Plan([]plan.Pool{p}, now)[0]))
		})
	}
	assert.Equal(t, "waits for the other nodes of its pool: its drain was blocked, so it released its slot", plan.Wait{Cause: plan.Returned}.String())
}

func TestSlotsAreReleasedOnlyIfAnotherNodeStarts(t *testing.T) {
	for _, tt := range []struct {
		name     string
		budgets  string
		nodes    string // candidates
		released string // of the candidates
		blocked  string // all draining nodes
		refused  bool
		limit    string
		zone     string // of all nodes, of which one may be unavailable
		master   bool
		want     string
	}{
		{name: "it releases a slot", nodes: "b:", blocked: "a:", want: "a"},
		{name: "it keeps the slot without another candidate", blocked: "a:"},
		{name: "it keeps the slot if the candidates are refused", nodes: "b:", blocked: "a:", refused: true},
		{name: "it releases no more slots than nodes start", nodes: "c:", blocked: "a: b:", want: "a"},
		{name: "it releases several slots", nodes: "c: d: e:", blocked: "a: b:", want: "a b"},
		{name: "it keeps the slot for a node whose drain would be blocked, too", budgets: "web:9/8/8", nodes: "b:web", blocked: "a:web"},
		{name: "it keeps the slot for a node that has released its own", nodes: "b:", released: "b=", blocked: "a:"},
		{name: "it keeps all slots for such a node", nodes: "c:", released: "c=", blocked: "a: b:"},
		{name: "it releases only the slot that another node can use", budgets: "db:3/3/3", nodes: "c:db", blocked: "a: b:db", want: "b"},
		{name: "it releases it for a node whose budget allows an eviction", budgets: "web:9/9/8", nodes: "b:web", released: "b=shop/web", blocked: "a:", want: "a"},
		{name: "it releases a slot among the canaries", nodes: "b:", blocked: "a:", limit: "waits for the canaries", want: "a"},
		{name: "it releases a slot of the zone", nodes: "b:", blocked: "a:", zone: "z", want: "a"},
		{name: "it releases the slot of the control plane", nodes: "b:", blocked: "a:", master: true, want: "a"},
		{name: "it frees the budget for the next node", budgets: "db:3/3/3", nodes: "b:db", blocked: "a:db", want: "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nodes, pods := parseNodes(t, tt.nodes)
			blocked, more := parseNodes(t, tt.blocked)
			release(nodes, tt.released)
			x := plan.NewIndex(parseBudgets(t, tt.budgets))
			for _, p := range append(pods, more...) {
				x.AddPod(p)
			}
			p := plan.Pool{
				Name: "worker", Candidates: nodes, Draining: blocked, Blocked: blocked, Slots: len(blocked), Used: len(blocked), Limited: tt.limit,
				UpdatesControlPlane: tt.master, UsedByZone: map[string]int{}, Refused: map[string]string{},
			}
			if tt.zone != "" {
				p.Slots, p.PerZone, p.UsedByZone[tt.zone] = 2, 1, 1
				for _, n := range append(nodes, blocked...) {
					n.Labels = map[string]string{corev1.LabelTopologyZone: tt.zone}
				}
			}
			if tt.refused {
				p.Refuse("waits for its window")
			}
			before := maps.Clone(p.UsedByZone)
			plans := 0
			planner := func(pools []plan.Pool) []plan.Plan {
				plans++
				return x.Plan(pools, now)
			}
			pools := []plan.Pool{p}
			assert.Equal(t, tt.want, namesOf(plan.Releases(pools, x.Plan(pools, now), planner)[0]))
			if tt.want == "" {
				assert.LessOrEqual(t, plans, 1, "many nodes may be blocked for long")
			}
			assert.Equal(t, before, p.UsedByZone, "the pool is not changed")
			assert.Len(t, pools[0].Draining, len(blocked))
		})
	}
}
