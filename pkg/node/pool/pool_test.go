package pool_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// parseNodes reads nodes such as "a:v0→v1/Degraded! b:v1→v1^". The state defaults to Done if both configs are equal, and to Working
// otherwise. "!" makes a node not ready, "^" cordons it.
func parseNodes(t *testing.T, text string) []*corev1.Node {
	t.Helper()
	var nodes []*corev1.Node
	for field := range strings.FieldsSeq(text) {
		name, rest, found := strings.Cut(field, ":")
		require.True(t, found, field)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
		ready := corev1.ConditionTrue
		if rest, found = strings.CutSuffix(rest, "!"); found {
			ready = corev1.ConditionFalse
		}
		rest, n.Spec.Unschedulable = strings.CutSuffix(rest, "^")
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		configs, state, _ := strings.Cut(rest, "/")
		current, desired, found := strings.Cut(configs, "→")
		require.True(t, found, field)
		if state == "" {
			state = api.NodeWorking
			if current == desired {
				state = api.NodeDone
			}
		}
		for key, value := range map[string]string{
			api.CurrentConfigAnnotation: current, api.DesiredConfigAnnotation: desired, api.NodeStateAnnotation: state,
		} {
			if value != "" {
				n.Annotations[key] = value
			}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func namesOf(nodes []*corev1.Node) string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return strings.Join(names, " ")
}

func poolAt(target string) *mcfgv1.MachineConfigPool {
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker", Generation: 3}}
	p.Spec.Configuration.Name = target
	return p
}

// next returns the nodes that start if nothing but the slots limits them.
func next(c pool.Candidates) []*corev1.Node { return c.Start[:min(c.Capacity, len(c.Start))] }

func TestSelectRespectsMaxUnavailable(t *testing.T) {
	for _, tt := range []struct {
		name           string
		maxUnavailable int
		nodes          string
		capacity       int
		next, retarget string
	}{
		{"it finds nothing to do", 1, "a:v1→v1 b:v1→v1 c:v1→v1", 1, "", ""},
		{"it counts a node that is not ready", 1, "a:v1→v1 b:v1→v1 c:v1→v1!", 0, "", ""},
		{"it counts a node in progress", 1, "a:v1→v1 b:v1→v1! c:v0→v1", 0, "", ""},
		{"it starts no node that is not ready", 2, "a:v0→v0! b:v0→v0 c:v0→v0", 1, "b", ""},
		{"it fills one of three slots", 3, "a:v1→v1 b:v1→v1! c:v0→v1 d:v0→v0 e:v0→v0", 1, "d", ""},
		{"it waits for the node in progress", 1, "a:v1→v1 b:v1→v1 c:v0→v1 d:v0→v0 e:v0→v0", 0, "", ""},
		{"it starts a node that failed to apply an obsolete config", 1, "a:v1→v1 b:v0.1→v0.2/Degraded c:v0→v0", 1, "b", ""},
		{"it counts a node that is degraded at its config", 1, "a:v1→v1 b:v1→v1/Degraded c:v0→v0", 0, "", ""},
		{"it does not start a node that differs from its config", 2, "a:v0→v0/Degraded b:v0→v0 c:v0→v0", 1, "b", ""},
		{"it returns a node from a config that failed", 1, "a:v1→v1 b:v1→v1 c:v1→v2/Degraded d:v1→v1", 1, "c", ""},
		{"it retargets a node whose daemon has not begun", 1, "a:v1→v1 c:v1→v2/Done d:v1→v1", 0, "", "c"},
		{"it fills two of four slots", 4, "a:v1→v1 b:v1→v1! c:v0→v1 d:v0→v0 e:v0→v0 f:v0→v0 g:v0→v0 h:v1→v1 i:v1→v1", 2, "d e", ""},
		{"it counts a ready node that failed to apply this config", 2, "a:v0→v1/Degraded b:v0→v0 c:v0→v0", 1, "b", ""},
		{"it stops after one failure", 1, "a:v0→v1/Degraded b:v0→v0", 0, "", ""},
		{"it counts a node only once if it failed and is not ready", 2, "a:v0→v1/Degraded! b:v0→v0 c:v0→v0", 1, "b", ""},
		{"it counts a cordoned node and leaves it alone", 2, "a:v0→v0^ b:v0→v0 c:v0→v0", 1, "b", ""},
		{"it retargets a cordoned node in progress, which keeps its slot", 1, "a:v0→v0.5^ b:v0→v0", 0, "", "a"},
		{"it retargets a node in progress that is not ready", 2, "a:v0→v0.5! b:v0→v0 c:v0→v0", 1, "b", "a"},
		{"it retargets no node that restores its content", 3, "a:v0→v0/Working b:v0→v0/Working^ c:v0→v0", 1, "c", ""},
		{"it retargets a node whose undo failed", 1, "a:v0→v0.5/Degraded^ b:v0→v0", 0, "", "a"},
		{"it starts nodes without a config", 2, "a:→/Done b:→/Done c:→/Done", 2, "a b", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := pool.Select(poolAt("v1"), parseNodes(t, tt.nodes), tt.maxUnavailable)

			assert.Equal(t, tt.capacity, c.Capacity)
			assert.Equal(t, tt.next, namesOf(next(c)))
			assert.Equal(t, tt.retarget, namesOf(c.Retarget))
		})
	}
}

// TestNodeThatRetriesAnObsoleteConfigNeedsASlot has a node that tries a config again that the pool no longer has, before and after its drain has begun.
func TestNodeThatRetriesAnObsoleteConfigNeedsASlot(t *testing.T) {
	nodes := parseNodes(t, "a:v0→v0.5 b:v0→v0")
	nodes[0].Annotations[api.NodeReasonAnnotation], nodes[0].Annotations[api.DesiredDrainAnnotation] = "failed", "drain-v0.5"
	c := pool.Select(poolAt("v1"), nodes, 1)
	assert.Empty(t, c.Retarget)
	assert.Equal(t, "a b", namesOf(c.Start))
	assert.Zero(t, c.Capacity, "its drain may begin meanwhile")

	nodes[0].Annotations[api.CordonAnnotation], nodes[0].Spec.Unschedulable = "1", true
	c = pool.Select(poolAt("v1"), nodes, 1)
	assert.Equal(t, "a", namesOf(c.Retarget))
	assert.Equal(t, "b", namesOf(c.Start))
}

// Clusters whose nodes had images of their own keep the annotations.
func TestNodesWithImagesCountUntilTheirImagesAreEqual(t *testing.T) {
	for _, image := range []string{api.DesiredImageAnnotation, api.CurrentImageAnnotation} {
		for _, state := range []string{api.NodeDone, api.NodeWorking} {
			nodes := parseNodes(t, "a:v1→v1/"+state+" b:v1→v1 c:v1→v1")
			nodes[0].Annotations[image] = "i1"
			assert.Zero(t, pool.Select(poolAt("v1"), nodes, 1).Capacity, "%s %s", image, state)
		}
	}
}

func TestMaxUnavailableIsReadAndRoundedDown(t *testing.T) {
	for _, tt := range []struct {
		value string
		nodes int
		want  int
	}{
		{"", 4, 1},
		{"2", 4, 2},
		{"0", 4, 1},
		{"0%", 4, 1},
		{"50%", 4, 2},
		{"60%", 4, 2},
		{"10%", 9, 1},
		{"100%", 3, 3},
		{`"60"`, 4, 0},
		{"40 %", 4, 0},
		{"50 percent", 4, 0},
		{"-1", 4, 0},
		{"-10%", 4, 0},
		{"-10%", 0, 0},
	} {
		t.Run("it reads "+tt.value, func(t *testing.T) {
			p := poolAt("v1")
			if tt.value != "" {
				value := intstr.FromString(strings.Trim(tt.value, `"`))
				if number, err := strconv.Atoi(tt.value); err == nil {
					value = intstr.FromInt(number)
				}
				p.Spec.MaxUnavailable = &value
			}
			most, err := pool.MaxUnavailable(p, tt.nodes)

			assert.Equal(t, tt.want, most)
			if tt.want == 0 {
				require.ErrorContains(t, err, "set a number such as 2 or a percentage")
				return
			}
			require.NoError(t, err)
			for _, p.Name = range []string{api.ControlPlanePool, api.ArbiterPool} {
				most, err = pool.MaxUnavailable(p, tt.nodes)
				require.NoError(t, err)
				assert.Equal(t, 1, most, p.Name)
			}
		})
	}
}

func TestNodesStartByZoneAndAge(t *testing.T) {
	var nodes []*corev1.Node
	for place := range strings.FieldsSeq("ZZZ/200 ZZZ/1500 ZZZ/42 RRR/100 RRR/42 QQQ/42 /200 /900 /42") {
		zone, age, _ := strings.Cut(place, "/")
		seconds, err := strconv.Atoi(age)
		require.NoError(t, err)
		n := parseNodes(t, "n:v0→v0")[0]
		n.Name, n.CreationTimestamp = place, metav1.NewTime(epoch.Add(time.Duration(seconds)*time.Second))
		if zone != "" {
			n.Labels = map[string]string{corev1.LabelTopologyZone: zone}
		}
		nodes = append(nodes, n)
	}
	order := strings.Fields("QQQ/42 RRR/42 RRR/100 ZZZ/42 ZZZ/200 ZZZ/1500 /42 /200 /900")
	for count := 1; count <= len(order); count++ {
		assert.Equal(t, strings.Join(order[:count], " "), namesOf(next(pool.Select(poolAt("v1"), nodes, count))))
	}
}

func TestIsReadyFollowsTheConditions(t *testing.T) {
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) corev1.Node {
		return corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: kind, Status: status}}}}
	}
	for _, tt := range []struct {
		name string
		node corev1.Node
		want bool
	}{
		{"it accepts a node without conditions", corev1.Node{}, true},
		{"it accepts a ready node", condition(corev1.NodeReady, corev1.ConditionTrue), true},
		{"it rejects a node that is not ready", condition(corev1.NodeReady, corev1.ConditionFalse), false},
		{"it rejects an unknown state", condition(corev1.NodeReady, corev1.ConditionUnknown), false},
		{"it rejects a full disk", condition(corev1.NodeDiskPressure, corev1.ConditionTrue), false},
		{"it rejects an unknown state of the disk", condition(corev1.NodeDiskPressure, corev1.ConditionUnknown), false},
		{"it rejects a node without a network", condition(corev1.NodeNetworkUnavailable, corev1.ConditionTrue), false},
		{"it ignores memory pressure", condition(corev1.NodeMemoryPressure, corev1.ConditionTrue), true},
		{"it rejects a cordoned node", corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, pool.IsReady(&tt.node)) })
	}
}

func TestIsDraining(t *testing.T) {
	for _, tt := range []struct {
		name, node      string
		request, answer string
		want            bool
	}{
		{"it has its config", "a:v1→v1", "uncordon-v1", "uncordon-v1", false},
		{"it has just been targeted", "a:v0→v1", "uncordon-v0", "uncordon-v0", true},
		{"it has never been drained", "a:v0→v1", "", "", true},
		{"it is being drained", "a:v0→v1^", "drain-v1", "uncordon-v0", true},
		{"it is drained", "a:v0→v1^", "drain-v1", "drain-v1", false},
		{"it was drained for another config", "a:v0→v1^", "drain-v0.5", "drain-v0.5", true},
		{"it waits for the end of its cordon", "a:v0→v1^", "uncordon-v1", "drain-v1", false},
		{"it failed and serves", "a:v0→v1/Degraded", "uncordon-v0", "uncordon-v0", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := parseNodes(t, tt.node)[0]
			n.Annotations[api.DesiredDrainAnnotation], n.Annotations[api.AppliedDrainAnnotation] = tt.request, tt.answer
			assert.Equal(t, tt.want, pool.IsDraining(n))
		})
	}
}

func TestOnlyControlPlaneNodesAreUpdatedWithoutADrain(t *testing.T) {
	for _, tt := range []struct {
		name     string
		nodes    string // "m" in the name of a node makes it a control-plane node
		stranded string
	}{
		{"it strands the only node", "m0:v0→v0", "m0"},
		{"it drains a control-plane node beside a worker", "m0:v0→v0 w0:v0→v0", ""},
		{"it ignores nodes that are cordoned or not ready", "m0:v0→v0 w0:v0→v0^ w1:v0→v0!", "m0"},
		{"it drains the only worker", "w0:v0→v0", ""},
		{"it drains one of three control-plane nodes", "m0:v0→v0 m1:v0→v0^ m2:v0→v0", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, label := range []string{"control-plane", "master", "arbiter"} {
				nodes := parseNodes(t, tt.nodes)
				var stranded, undrained []*corev1.Node
				for _, n := range nodes {
					if strings.HasPrefix(n.Name, "m") {
						n.Labels = map[string]string{"node-role.kubernetes.io/" + label: ""}
					}
					if pool.IsStranded(n, nodes) {
						stranded = append(stranded, n)
					}
					if pool.IsUndrained(n, nodes) {
						undrained = append(undrained, n)
					}
				}
				assert.Equal(t, tt.stranded, namesOf(stranded))
				assert.Equal(t, tt.stranded, namesOf(undrained))
			}
		})
	}
	n := parseNodes(t, "w0:→v0")
	assert.True(t, pool.IsUndrained(n[0], n), "it has no config")
	n[0].Annotations[api.DesiredDrainAnnotation] = "drain-v0"
	assert.False(t, pool.IsUndrained(n[0], n), "the host differs from the content")
}

func TestPodsMoveToReadyNodesThatTheirSpecAllows(t *testing.T) {
	taints := map[string][]corev1.Taint{
		"none": nil, "soft": {{Key: "a", Effect: corev1.TaintEffectPreferNoSchedule}}, "hard": {{Key: "a", Effect: corev1.TaintEffectNoSchedule}},
	}
	for _, tt := range []struct {
		node, taint, selector string
		tolerates             bool
		want                  bool
	}{
		{"own:a→a", "none", "", false, false},
		{"n:a→a", "none", "", false, true},
		{"n:a→a!", "none", "", false, false},
		{"n:a→a^", "none", "", true, false},
		{"n:a→a", "none", "yes", false, true},
		{"n:a→a", "none", "no", false, false},
		{"n:a→a", "soft", "", false, true},
		{"n:a→a", "hard", "", false, false},
		{"n:a→a", "hard", "", true, true},
	} {
		nodes := parseNodes(t, tt.node)
		nodes[0].Labels = map[string]string{"wanted": "yes"}
		nodes[0].Spec.Taints = taints[tt.taint]
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "own"}}
		if tt.selector != "" {
			pod.Spec.NodeSelector = map[string]string{"wanted": tt.selector}
		}
		if tt.tolerates {
			pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}
		assert.Equal(t, tt.want, pool.CanMove(pod, nodes), "%+v", tt)
	}
}

func TestPodsMoveToNodesThatMeetTheirAffinity(t *testing.T) {
	term := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	for _, tt := range []struct {
		name  string
		terms []corev1.NodeSelectorTerm
		want  bool
	}{
		{"it meets the second of two terms", []corev1.NodeSelectorTerm{term("other", "Exists"), term("disk", "Exists")}, true},
		{"it meets no term", []corev1.NodeSelectorTerm{term("other", "Exists"), term("disk", "In", "hdd")}, false},
		{"its label has one of the values", []corev1.NodeSelectorTerm{term("disk", "In", "ssd", "hdd")}, true},
		{"its label must not exist", []corev1.NodeSelectorTerm{term("disk", "DoesNotExist")}, false},
		{"a term is empty", []corev1.NodeSelectorTerm{{}}, false},
		{"an operator is not one of labels", []corev1.NodeSelectorTerm{term("disk", "Gt", "1")}, false},
		{"a term has fields", []corev1.NodeSelectorTerm{{MatchFields: term("metadata.name", "In", "n").MatchExpressions}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nodes := parseNodes(t, "n:a→a")
			nodes[0].Labels = map[string]string{"disk": "ssd"}
			pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "own", Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: tt.terms},
			}}}}
			assert.Equal(t, tt.want, pool.CanMove(pod, nodes))
		})
	}
}

// TestPoolsWithAControlPlaneNodeRunTheControlPlane has a custom pool whose selector an administrator has written.
func TestPoolsWithAControlPlaneNodeRunTheControlPlane(t *testing.T) {
	nodes := parseNodes(t, "a:v0→v0 b:v0→v0")
	assert.False(t, pool.UpdatesControlPlane("custom", nodes))
	assert.True(t, pool.UpdatesControlPlane(api.ArbiterPool, nodes))
	nodes[1].Labels = map[string]string{"node-role.kubernetes.io/arbiter": ""}
	assert.True(t, pool.UpdatesControlPlane("custom", nodes))
}

func TestRestorationsUseFreeSlots(t *testing.T) {
	for _, tt := range []struct {
		others, restoring string // nodes beside n, and those of them that request a drain to restore their content
		perZone           int
		want              string
	}{
		{"a:v1→v1", "", 0, ""},
		{"a:v1→v1!", "", 0, "waits for a slot: 2 nodes of MachineConfigPool worker may be unavailable at the same time, and z (and 1 other node) is"},
		{"a:v1→v1/Degraded", "", 0, ""}, // it serves
		{"a:v0→v1/Degraded", "", 0, ""}, // so does that one
		{"a:v1→v1/Working", "a", 0, ""}, // it waits, too
		{"a:v1→v1/Working!", "a", 0, "at the same time"},
		{"a:v1→v1/Working^", "a", 0, "at the same time"}, // its drain has begun
		{"a:v0→v1/Working", "", 0, "at the same time"},   // it has a slot
		{"j:v1→v1", "", 0, "at the same time"},           // a Job must succeed after its update
		{"a:v1→v1", "", 1, "waits for a slot in its zone: 1 node of MachineConfigPool worker may be unavailable in a zone, and z is"},
	} {
		t.Run(tt.others, func(t *testing.T) {
			nodes := parseNodes(t, "n:v1→v1/Working z:v1→v1! "+tt.others)
			for _, n := range nodes {
				if n.Name == "n" || n.Name == tt.restoring {
					n.Annotations[api.DesiredDrainAnnotation] = "drain-v1"
				}
				if n.Name == "j" {
					n.Annotations[api.NodeJobAnnotation] = "v1"
				}
				if n.Name == "n" || n.Name == "z" {
					n.Labels = map[string]string{corev1.LabelTopologyZone: "eu"}
				}
				if n.Name == tt.restoring && n.Spec.Unschedulable {
					n.Annotations[api.CordonAnnotation] = "1"
				}
			}
			p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
			p.Spec.MaxUnavailable, p.Spec.Configuration.Name = new(intstr.FromInt32(2)), "v1"
			got := pool.SlotRefusal(p, nodes, nodes[0], tt.perZone)
			assert.Equal(t, tt.want == "", got == "", got)
			assert.Contains(t, got, tt.want)
		})
	}
}

// TestNodesWaitForTheJobAfterTheirUpdate has nodes that must run a Job after their update. Only the first one has its config and is done.
func TestNodesWaitForTheJobAfterTheirUpdate(t *testing.T) {
	p := poolAt("v1")
	for _, tt := range []struct {
		nodes                 string
		awaits                bool
		used, started, isDone int
	}{
		{"a:v1→v1", true, 1, 1, 0},
		{"a:v1→v1/Degraded", false, 1, 1, 0},
		{"a:v0→v0", true, 0, 0, 0}, // it has a slot of its own if the config of the pool changes
		{"a:v0→v1", false, 1, 1, 0},
	} {
		nodes := parseNodes(t, tt.nodes)
		nodes[0].Annotations[api.NodeJobAnnotation] = "v1"
		assert.Equal(t, tt.awaits, pool.AwaitsJob(nodes[0]), tt.nodes)
		assert.Equal(t, tt.used, pool.Used(p, nodes), tt.nodes)
		started, done := pool.Targeted(p, nodes)
		assert.Equal(t, []int{tt.started, tt.isDone}, []int{started, done}, tt.nodes)
		assert.False(t, pool.IsUpdated(p, nodes), tt.nodes)
	}
	nodes := parseNodes(t, "a:v1→v1")
	assert.True(t, pool.IsUpdated(p, nodes))
	assert.Zero(t, pool.Used(p, nodes))
}
