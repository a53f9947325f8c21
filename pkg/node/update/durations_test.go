package update

import (
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

func TestDurationsCountOnlyUpdatesThatAreDone(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
	node := func(name, current, desired, state string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			api.CurrentConfigAnnotation: current, api.DesiredConfigAnnotation: desired, api.NodeStateAnnotation: state,
		}}}
	}
	d := durations{}
	observe := func(after time.Duration, nodes ...*corev1.Node) {
		p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
		d.observe([]*rollout{{pool: p, nodes: nodes}}, start.Add(after))
	}
	for _, name := range []string{"done", "late", "failed", "retargeted", "deleted"} {
		d.begin(node(name, "a", "b", api.NodeDone), "b", start)
	}
	d.begin(node("late", "a", "c", api.NodeWorking), "c", start.Add(time.Minute)) // it continues
	d.begin(node("joined", "", "b", api.NodeDone), "b", start)
	d.begin(node("returned", "b", "b", api.NodeDone), "b", start)
	observe(2*time.Minute, node("done", "b", "b", api.NodeDone), node("late", "a", "c", api.NodeWorking), node("joined", "b", "b", api.NodeDone),
		node("returned", "b", "b", api.NodeDone), node("failed", "a", "b", api.NodeDegraded),
		node("retargeted", "a", "x", api.NodeWorking))
	observe(4*time.Minute, node("done", "b", "b", api.NodeDone), node("late", "c", "c", api.NodeDone), node("failed", "b", "b", api.NodeDone),
		node("retargeted", "x", "x", api.NodeDone), node("deleted", "b", "b", api.NodeDone))
	assert.Equal(t, map[string][]time.Duration{"worker": {2 * time.Minute, 4 * time.Minute}}, d.samples)
}

func TestDurationIsTheNinthOfTen(t *testing.T) {
	t.Parallel()
	d := durations{}
	for i := range 4 {
		d.add("worker", time.Duration(i+1)*time.Minute)
	}
	assert.Zero(t, d.of("worker"), "four are too few")
	for i := 4; i < 10; i++ {
		d.add("worker", time.Duration(i+1)*time.Minute-time.Second)
	}
	assert.Equal(t, 9*time.Minute, d.of("worker"))
	for range maxSamples {
		d.add("worker", time.Second)
	}
	assert.Equal(t, 30*time.Second, d.of("worker"), "old ones are forgotten")
}
