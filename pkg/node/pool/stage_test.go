package pool_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// TestStage describes candidates as letters with the state of their staging: nothing for one that has none, "r" requested, "s" staged, "f" failed,
// "o" staged another config, "x" failed to stage another config, and "n" without a MachineConfigNode.
func TestStage(t *testing.T) {
	for _, tt := range []struct {
		name       string
		candidates string
		nodes      int
		// request, waiting and failed are names.
		request, waiting, failed string
	}{
		{name: "it stages nothing without candidates", nodes: 10},
		{name: "one node of a small pool stages", candidates: "a b c", nodes: 3, request: "a", waiting: "a b c"},
		{name: "a fifth of a pool stages, rounded down", candidates: "a b c d", nodes: 14, request: "a b", waiting: "a b c d"},
		{name: "nodes that stage count", candidates: "a b:r c", nodes: 10, request: "a", waiting: "a b c"},
		{name: "a full share stages no other node", candidates: "a:r b:r c", nodes: 10, waiting: "a b c"},
		{name: "a smaller pool stages no other node", candidates: "a:r b:r c", nodes: 5, waiting: "a b c"},
		{name: "staged nodes do not count", candidates: "a:s b:s c", nodes: 5, request: "c", waiting: "c"},
		{name: "failed nodes do not count and are skipped", candidates: "a:f b:f c", nodes: 5, request: "c", waiting: "c", failed: "a b"},
		{name: "a result for another config does not count", candidates: "a:o b:x c", nodes: 10, request: "a b", waiting: "a b c"},
		{name: "a node without a MachineConfigNode waits for it", candidates: "a:n b", nodes: 5, request: "b", waiting: "a b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var candidates []*corev1.Node
			machines := map[string]*mcfgv1.MachineConfigNode{}
			for field := range strings.FieldsSeq(tt.candidates) {
				name, state, _ := strings.Cut(field, ":")
				candidates = append(candidates, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
				m := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
				config, failure := "new", ""
				if state == "o" || state == "x" {
					config = "old"
				}
				if state == "f" || state == "x" {
					failure = "no space"
				}
				if state != "" {
					m.Annotations = map[string]string{api.StageAnnotation: config}
				}
				if state != "" && state != "r" {
					pool.SetStaged(&m.Status.Conditions, config, failure, time.Now())
				}
				if state != "n" {
					machines[name] = m
				}
			}

			got := pool.Stage("new", candidates, tt.nodes, machines)

			var request []string
			for _, m := range got.Request {
				request = append(request, m.Name)
			}
			assert.Equal(t, tt.request, strings.Join(request, " "))
			assert.Equal(t, tt.waiting, strings.Join(slices.Sorted(maps.Keys(got.Waiting)), " "))
			assert.Equal(t, tt.failed, strings.Join(slices.Sorted(maps.Keys(got.Failed)), " "))
			for _, why := range got.Failed {
				assert.Equal(t, "cannot stage MachineConfig new: no space", why)
			}
		})
	}
}

// TestResultOfAnEarlierRequestIsStale has a daemon that has not reported the newest request yet.
func TestResultOfAnEarlierRequestIsStale(t *testing.T) {
	m := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.StageAnnotation: "new"}}}
	for _, failure := range []string{"", "no space"} {
		pool.SetStaged(&m.Status.Conditions, "old", failure, time.Now())
		for _, config := range []string{"old", "new"} {
			staged, why := pool.IsStaged(m, config)
			assert.False(t, staged, config)
			assert.Empty(t, why, config)
		}
	}
}

// TestFailedCountsNodesThatCannotStage has a node that an administrator cordons and holds to examine why it cannot stage the config.
func TestFailedCountsNodesThatCannotStage(t *testing.T) {
	t.Parallel()
	p := &mcfgv1.MachineConfigPool{}
	p.Spec.Configuration.Name = "b"
	m := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{api.StageAnnotation: "b"}}}
	pool.SetStaged(&m.Status.Conditions, "b", "no space", time.Time{})
	machines := map[string]*mcfgv1.MachineConfigNode{"n": m}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
		api.CurrentConfigAnnotation: "a", api.DesiredConfigAnnotation: "a", api.NodeStateAnnotation: api.NodeDone, api.NodeHoldAnnotation: "",
	}}}
	n.Spec.Unschedulable = true
	assert.Equal(t, 1, pool.Failed(p, []*corev1.Node{n}, machines))
	p.Spec.Configuration.Name = "c"
	assert.Zero(t, pool.Failed(p, []*corev1.Node{n}, machines), "the failure is of another config")
	p.Spec.Configuration.Name, n.Annotations[api.DesiredConfigAnnotation] = "b", "b"
	assert.Zero(t, pool.Failed(p, []*corev1.Node{n}, machines), "it has staged the config since")
	n.Annotations[api.NodeStateAnnotation] = api.NodeDegraded
	assert.Equal(t, 1, pool.Failed(p, []*corev1.Node{n}, machines))
	n.Annotations[api.NodeStateAnnotation], n.Annotations[api.NodeReasonAnnotation] = api.NodeWorking, "no space"
	assert.Equal(t, 1, pool.Failed(p, []*corev1.Node{n}, machines), "its daemon tries again")
	n.Annotations[api.CurrentConfigAnnotation] = "b"
	assert.Zero(t, pool.Failed(p, []*corev1.Node{n}, machines))
	n.Annotations[api.CurrentConfigAnnotation] = "a"
	p.Spec.Configuration.Name = "c"
	assert.Zero(t, pool.Failed(p, []*corev1.Node{n}, machines), "the failure is of another config")
}
