package pool_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// draining returns nodes like parseNodes does, with a cordon of the stage, and a drain before the update to v1 that is blocked and began age ago.
func draining(t *testing.T, text string, age time.Duration) []*corev1.Node {
	t.Helper()
	nodes := parseNodes(t, text)
	for _, n := range nodes {
		n.Spec.Unschedulable = true
		n.Annotations[api.CordonAnnotation], n.Annotations[api.DesiredDrainAnnotation] = "1", "drain-v1"
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeDrainInProgress, Status: corev1.ConditionTrue, Reason: "Blocked", LastTransitionTime: metav1.NewTime(epoch.Add(-age)),
		})
	}
	return nodes
}

func TestNodesWithABlockedDrainReleaseTheirSlot(t *testing.T) {
	without := func(annotation string) func(*corev1.Node) {
		return func(n *corev1.Node) { delete(n.Annotations, annotation) }
	}
	for _, tt := range []struct {
		name   string
		node   string
		age    time.Duration
		change func(*corev1.Node)
		want   string
		after  time.Duration
	}{
		{name: "it finds a node", node: "a:v0→v1", age: time.Hour, want: "a"},
		{name: "it finds a node without a config", node: "a:→v1/Working", age: time.Hour, want: "a"},
		{name: "it waits for the time", node: "a:v0→v1", age: time.Hour - time.Second, after: time.Second},
		{name: "it leaves a node that drains", node: "a:v0→v1", age: 2 * time.Hour, change: func(n *corev1.Node) { n.Status.Conditions[1].Reason = "Draining" }},
		{name: "it leaves a node that has no drain to do", node: "a:v0→v1", age: time.Hour, change: without(api.DesiredDrainAnnotation)},
		{name: "it leaves a node whose content is restored", node: "a:v1→v1/Working", age: time.Hour},
		{name: "it leaves a node that gets another config", node: "a:v0→v2", age: time.Hour},
		{name: "it leaves a node that would stay cordoned", node: "a:v0→v1", age: time.Hour, change: without(api.CordonAnnotation)},
		{name: "it leaves a node that is not ready", node: "a:v0→v1!", age: time.Hour},
		{name: "it leaves a node that tries a config again", node: "a:v0→v1", age: time.Hour, change: func(n *corev1.Node) { n.Annotations[api.NodeReasonAnnotation] = "failed" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nodes := draining(t, tt.node, tt.age)
			if tt.change != nil {
				tt.change(nodes[0])
			}
			blocked, after := pool.Blocked(poolAt("v1"), nodes, time.Hour, epoch)
			assert.Equal(t, tt.want, namesOf(blocked))
			assert.Equal(t, tt.after, after)
		})
	}

	nodes := append(draining(t, "a:v0→v1", time.Hour), draining(t, "b:v0→v1", 2*time.Hour)...)
	blocked, _ := pool.Blocked(poolAt("v1"), nodes, time.Hour, epoch)
	assert.Equal(t, "b a", namesOf(blocked), "the oldest drain is the first")

	pool.ReleaseSlot(nodes[1], "", epoch).Apply(nodes[1], "v1")
	blocked, _ = pool.Blocked(poolAt("v1"), nodes, time.Hour, epoch)
	assert.Empty(t, blocked, "the slot of the first one is not free yet")
}

// TestReleasedSlotKeepsTheJob has a node whose Job before the update has run.
func TestReleasedSlotKeepsTheJob(t *testing.T) {
	n := draining(t, "a:v0→v1", time.Hour)[0]
	n.Annotations[api.NodeJobAnnotation] = "v1"
	pool.ReleaseSlot(n, "", epoch).Apply(n, "v1")
	assert.Equal(t, "v0", n.Annotations[api.NodeJobAnnotation])
}

// TestNodesThatReleasedTheirSlotComeLast follows a node from its release to its next start.
func TestNodesThatReleasedTheirSlotComeLast(t *testing.T) {
	p := poolAt("v1")
	nodes := append(draining(t, "a:v0→v1 b:v0→v1", time.Hour), parseNodes(t, "c:v0→v0")...)
	pool.ReleaseSlot(nodes[0], "shop/web", epoch.Add(time.Second)).Apply(nodes[0], "v1")
	pool.ReleaseSlot(nodes[1], "", epoch).Apply(nodes[1], "v1")
	for i, budget := range []string{"shop/web", ""} {
		assert.Equal(t, "v0", nodes[i].Annotations[api.DesiredConfigAnnotation])
		found, is := pool.SlotReleased(nodes[i])
		assert.True(t, is)
		assert.Equal(t, budget, found)
	}
	_, is := pool.SlotReleased(nodes[2])
	assert.False(t, is)
	assert.Empty(t, pool.Changes(p, nodes[:2], nil, noJob), "they have the taint")

	candidates := pool.Select(p, nodes, 3)
	assert.Equal(t, "c", namesOf(candidates.Start), "the others still have their cordons")
	assert.Empty(t, candidates.Retarget, "they return to their config first")
	assert.Equal(t, 1, candidates.Capacity)

	for _, n := range nodes[:2] {
		n.Spec.Unschedulable, n.Annotations[api.NodeStateAnnotation] = false, api.NodeDone
	}
	candidates = pool.Select(p, nodes, 3)
	assert.Equal(t, "c b a", namesOf(candidates.Start))
	assert.Equal(t, 3, candidates.Capacity)

	for _, change := range pool.Changes(p, nodes, nodes[:1], noJob) {
		change.Apply(change.Node, "v1")
	}
	assert.Equal(t, "v1", nodes[0].Annotations[api.DesiredConfigAnnotation])
	assert.NotContains(t, nodes[0].Annotations, api.SlotReleasedAnnotation)
	assert.Contains(t, nodes[1].Annotations, api.SlotReleasedAnnotation)

	for _, change := range pool.Changes(poolAt("v0"), nodes[1:2], nil, noJob) { // the pool returns to the config of the node
		change.Apply(change.Node, "v0")
	}
	assert.NotContains(t, nodes[1].Annotations, api.SlotReleasedAnnotation)

	first := draining(t, "a:→v1/Working", time.Hour)[0]
	pool.ReleaseSlot(first, "", epoch).Apply(first, "v1")
	assert.NotContains(t, first.Annotations, api.DesiredConfigAnnotation)
}

// noJob requires no Job after the update of a node.
func noJob(*corev1.Node) string { return "" }
