package pool_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

func TestChangesTargetAndTaintNodes(t *testing.T) {
	foreign := corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}
	pending := corev1.Taint{Key: api.UpdateInProgressTaint, Effect: corev1.TaintEffectPreferNoSchedule}
	for _, tt := range []struct {
		name    string
		nodes   string
		tainted string // nodes with the taint
		paused  bool
		want    string // node: target, taint
	}{
		{"it does not change an updated node", "a:v1→v1", "", false, ""},
		{"it targets a node", "a:v0→v0", "", false, "a target"},
		{"it removes the taint of an updated node", "a:v1→v1", "a", false, "a untaint"},
		{"it targets a node and removes its taint", "a:v0→v0", "a", false, "a target untaint"},
		{"it taints a node that waits for a slot", "a:v0→v1 b:v0→v0", "", false, "b taint"},
		{"it writes a waiting node once", "a:v0→v1 b:v0→v0", "b", false, ""},
		{"it targets a node once", "a:v0→v1", "", false, ""},
		{"it targets a node without a config", "a:→/Done", "", false, "a target"},
		{"it writes nothing while the pool is paused", "a:v0→v0 b:v0→v0 c:v0→v1", "b", true, ""},
		{"it retargets a node in progress", "a:v0→v0.5^ b:v0→v0", "", false, "a target; b taint"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := poolAt("v1")
			p.Spec.Paused = tt.paused
			nodes := parseNodes(t, tt.nodes)
			for _, n := range nodes {
				n.Annotations["theirs"] = "kept"
				n.Spec.Taints = []corev1.Taint{foreign}
				if strings.Contains(tt.tainted, n.Name) {
					n.Spec.Taints = append(n.Spec.Taints, pending)
				}
			}
			var got []string
			candidates := pool.Select(p, nodes, 1)
			for _, c := range pool.Changes(p, nodes, slices.Concat(next(candidates), candidates.Retarget), func(*corev1.Node) string { return "" }) {
				n := c.Node.DeepCopy()
				c.Apply(n, "v1")
				text := n.Name
				if n.Annotations[api.DesiredConfigAnnotation] != c.Node.Annotations[api.DesiredConfigAnnotation] {
					assert.Equal(t, "v1", n.Annotations[api.DesiredConfigAnnotation])
					text += " target"
				}
				text += map[int]string{1: " taint", -1: " untaint"}[len(n.Spec.Taints)-len(c.Node.Spec.Taints)]
				got = append(got, text)
				assert.Equal(t, "kept", n.Annotations["theirs"])
				assert.Contains(t, n.Spec.Taints, foreign)
			}
			assert.Equal(t, tt.want, strings.Join(got, "; "), fmt.Sprint(got))
		})
	}
}

func TestReleaseRemovesOnlyWhatTheStageHasWritten(t *testing.T) {
	taint := corev1.Taint{Key: api.UpdateInProgressTaint, Effect: corev1.TaintEffectPreferNoSchedule}
	for _, tt := range []struct {
		name, state string
		cordoned    bool // by the stage; otherwise by an administrator
		tainted     bool
		want        string
	}{
		{"it keeps a cordon while the daemon may change the host", api.NodeWorking, true, true, "changed, cordoned, v1 v1 1 earlier"},
		{"it writes nothing while there is nothing to remove", api.NodeWorking, true, false, "cordoned, v1 v1 1 earlier"},
		{"it lifts a cordon of ours that the daemon has left", api.NodeReleased, true, false, "changed"},
		{"it keeps the cordon of an administrator", api.NodeReleased, false, false, "changed, cordoned"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := &corev1.Node{}
			n.Annotations = map[string]string{
				api.NodeStateAnnotation: tt.state, api.DesiredConfigAnnotation: "v1", api.SlotReleasedAnnotation: "earlier", "theirs": "kept", api.NodeJobAnnotation: "v1",
			}
			n.Spec.Unschedulable = true
			if tt.cordoned {
				n.Annotations[api.CordonAnnotation] = "1"
			}
			foreign := corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}
			n.Spec.Taints = []corev1.Taint{foreign}
			if tt.tainted {
				n.Spec.Taints = append(n.Spec.Taints, taint)
			}
			var got []string
			if pool.Release(n) {
				got = append(got, "changed")
			}
			if n.Spec.Unschedulable {
				got = append(got, "cordoned")
			}
			var left []string
			for _, name := range []string{api.DesiredConfigAnnotation, api.NodeJobAnnotation, api.CordonAnnotation, api.SlotReleasedAnnotation} {
				if value := n.Annotations[name]; value != "" {
					left = append(left, value)
				}
			}
			if len(left) > 0 {
				got = append(got, strings.Join(left, " "))
			}
			assert.Equal(t, tt.want, strings.Join(got, ", "))
			assert.Equal(t, []corev1.Taint{foreign}, n.Spec.Taints)
			assert.Equal(t, "kept", n.Annotations["theirs"])
			assert.False(t, pool.Release(n), "once")
		})
	}
}

// TestChangesRequireJobs has a node for each change of the Job after its update.
func TestChangesRequireJobs(t *testing.T) {
	jobs := map[string]string{"a": "v1", "b": "", "c": "v1", "d": ""}
	for _, isPaused := range []bool{false, true} {
		p := poolAt("v1")
		p.Spec.Paused = isPaused
		nodes := parseNodes(t, "a:v0→v0 b:v1→v1 c:v1→v1 d:v1→v1")
		nodes[1].Annotations[api.NodeJobAnnotation], nodes[2].Annotations[api.NodeJobAnnotation] = "v1", "v1"
		targeted := nodes[:1]
		if isPaused {
			targeted, nodes = nil, nodes[1:]
		}
		got := map[string]string{}
		for _, c := range pool.Changes(p, nodes, targeted, func(n *corev1.Node) string { return jobs[n.Name] }) {
			n := c.Node.DeepCopy()
			c.Apply(n, "v1")
			got[n.Name] = n.Annotations[api.DesiredConfigAnnotation] + " " + n.Annotations[api.NodeJobAnnotation]
		}
		want := map[string]string{"a": "v1 v1", "b": "v1 "}
		if isPaused {
			delete(want, "a")
		}
		assert.Equal(t, want, got, "paused: %v", isPaused)
	}
}
