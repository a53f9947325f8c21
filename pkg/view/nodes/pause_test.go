package nodes_test

import (
	"fmt"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/view/nodes"
)

// TestPauseReportsThatNodesMayBelongToAnotherPool has a pool whose selector is invalid.
func TestPauseReportsThatNodesMayBelongToAnotherPool(t *testing.T) {
	infra := newPool("infra")
	infra.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "infra", Operator: "Bogus"}}}
	c := nodes.Cluster{At: now, Pools: []*mcfgv1.MachineConfigPool{newPool("worker", paused), infra}, Nodes: []*corev1.Node{at("a", before)}}
	for name, want := range map[string]string{
		"worker": "no longer paused; the update of 1 of 1 node to " + target +
			" cannot start: each node waits because it may belong to MachineConfigPool infra, whose spec.nodeSelector is invalid",
		"infra": `not paused (no change); its nodes are not known: spec.nodeSelector is invalid: "Bogus" is not a valid label selector operator. ` +
			"Correct it: until then, no node outside pool master starts its update",
	} {
		got, err := nodes.NewPause(c, name, false)
		require.NoError(t, err)
		assert.Equal(t, "MachineConfigPool "+name+" is "+want, got.Message)
	}
}

func TestPauseReportsTheDeferredUpdates(t *testing.T) {
	sources := func(p *mcfgv1.MachineConfigPool) {
		p.Spec.Configuration.Source = []corev1.ObjectReference{{Name: "00-worker"}, {Name: "99-worker"}}
	}
	const from = target + " (rendered from 00-worker, 99-worker)"
	deferred := []*corev1.Node{at("a", before), at("b", before), at("c", target)}
	running := append([]*corev1.Node{to("d", api.NodeWorking)}, deferred...)
	invalid := func(p *mcfgv1.MachineConfigPool) { p.Spec.MaxUnavailable = new(intstr.FromString("x")) }
	for _, tt := range []struct {
		name    string
		pool    *mcfgv1.MachineConfigPool
		nodes   []*corev1.Node
		paused  bool
		want    string
		changed bool
	}{
		{"it pauses a pool", newPool("worker", sources), deferred, true, "paused; this defers the update of 2 of 3 nodes to " + from, true},
		{
			"it pauses a running update", newPool("worker", sources), running, true,
			"paused; this defers the update of 2 of 4 nodes to " + from + "; 1 node already started, and will finish", true,
		},
		{"it pauses an updated pool", newPool("worker", sources), deferred[2:], true, "paused; no node waits for " + target, true},
		{"it does not pause twice", newPool("worker", sources, paused), deferred, true, "already paused (no change); this defers the update of 2 of 3 nodes to " + from, false},
		{"it resumes a pool", newPool("worker", sources, paused), deferred, false, "no longer paused; the update of 2 of 3 nodes to " + from + " starts, at most 1 at a time", true},
		{"it resumes an updated pool", newPool("worker", paused), deferred[2:], false, "no longer paused; no node waits for " + target, true},
		{
			"it resumes an invalid pool", newPool("worker", sources, paused, invalid), deferred, false,
			"no longer paused; the update of 2 of 3 nodes to " + from + " cannot start, because spec.maxUnavailable is invalid", true,
		},
		{"it does not resume twice", newPool("worker"), deferred[2:], false, "not paused (no change); no node waits for " + target, false},
		{
			"it pauses a new pool", newPool("worker", func(p *mcfgv1.MachineConfigPool) { p.Spec.Configuration.Name = "" }), nil, true,
			"paused; it has no rendered config yet", true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := nodes.NewPause(nodes.Cluster{At: now, Pools: []*mcfgv1.MachineConfigPool{tt.pool}, Nodes: tt.nodes}, "worker", tt.paused)
			require.NoError(t, err)
			assert.Equal(t, "MachineConfigPool worker is "+tt.want, got.Message)
			assert.Equal(t, fmt.Sprint(tt.paused, tt.changed), fmt.Sprint(got.Paused, got.Changed))
		})
	}
}
