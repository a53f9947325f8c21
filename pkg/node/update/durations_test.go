package update

import (
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
	assert.Len(t, d.seconds("worker"), maxSamples)
}

func TestDurationsAreRestoredOnce(t *testing.T) {
	t.Parallel()
	d := durations{}
	d.add("worker", 1600*time.Millisecond) // before the policy exists
	for range 2 {
		d.restore("worker", []int32{60, 120})
	}
	d.restore("infra", nil)
	d.add("worker", 3*time.Second)
	assert.Equal(t, []int32{60, 120, 2, 3}, d.seconds("worker"))
	assert.Empty(t, d.seconds("infra"))
}

// TestDurationsAloneAreRarelyWritten has samples that the stored policy does not have.
func TestDurationsAloneAreRarelyWritten(t *testing.T) {
	t.Parallel()
	m := newMemory(1)
	r := m.controller()
	p := &api.NodeRolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "worker", Generation: 1}}
	m.policies = []api.NodeRolloutPolicy{*p}
	report := func(seconds ...int32) (stored []int32, isWritten bool) {
		p := m.policies[0].DeepCopy()
		before := p.ResourceVersion
		require.NoError(t, r.writePolicy(t.Context(), p, p.DeepCopy(), seconds))
		return m.policies[0].Status.RecentDurations, m.policies[0].ResourceVersion != before
	}
	for n := range 6 {
		seconds := []int32{1, 2, 3, 4, 5, 6}[:n]
		stored, isWritten := report(seconds...)
		assert.Equal(t, seconds, append([]int32{}, stored...))
		assert.True(t, isWritten)
		_, isWritten = report(seconds...)
		assert.False(t, isWritten, "nothing has changed")
	}
	_, isWritten := report(2, 3, 4, 5, 6)
	assert.False(t, isWritten, "five are stored")
	m.policies[0].Generation++
	stored, _ := report(2, 3, 4, 5, 6)
	assert.Equal(t, []int32{2, 3, 4, 5, 6}, stored)
}
