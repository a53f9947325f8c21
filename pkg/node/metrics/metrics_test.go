package metrics

import (
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/drain"
	"github.com/cluster-version/cvo/pkg/node/pool"
	"github.com/cluster-version/cvo/pkg/node/progress"
	"github.com/cluster-version/cvo/test/exposition"
	"github.com/cluster-version/cvo/test/golden"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newNode returns a ready node of a role that runs config current. A node with another desired config is being drained since epoch; blocker delays
// the drain.
func newNode(name, role, current, desired, blocker string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"node-role.kubernetes.io/" + role: ""}, Annotations: map[string]string{
			api.CurrentConfigAnnotation: current, api.DesiredConfigAnnotation: desired, api.NodeStateAnnotation: api.NodeDone,
		},
	}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if current != desired {
		n.Spec.Unschedulable = true
		n.Annotations[api.NodeStateAnnotation], n.Annotations[api.DesiredDrainAnnotation] = api.NodeWorking, "drain-"+desired
		n.Status.Conditions, _, _ = drain.Conditions(n, blocker, epoch)
	}
	return n
}

// newPool returns a pool of a role with its status since epoch.
func newPool(role string, nodes []*corev1.Node, o pool.StatusOptions, change func(*mcfgv1.MachineConfigPool)) *mcfgv1.MachineConfigPool {
	p := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: role}}
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + role: ""}}
	p.Spec.Configuration.Name = role + "-2"
	if change != nil {
		change(p)
	}
	p.Status = pool.Status(p, pool.Assign([]*mcfgv1.MachineConfigPool{p}, nodes).Nodes[role], o, epoch)
	return p
}

// exampleState has a pool in each state.
func exampleState() state {
	s := state{
		isOverridden: map[string]bool{"worker-2": true},
		nodes: []*corev1.Node{
			newNode("master-a", "master", "master-2", "master-2", ""),
			newNode("worker-a", "worker", "worker-1", "worker-2", "Pod shop/web stays: it likes it here"),
			newNode("worker-b", "worker", "worker-1", "worker-2", ""),
			newNode("worker-c", "worker", "worker-1", "worker-1", ""),
			newNode("edge-a", "edge", "edge-1", "edge-1", ""),
			newNode("gpu-a", "gpu", "gpu-2", "gpu-2", ""),
			{ObjectMeta: metav1.ObjectMeta{Name: "silent", Labels: map[string]string{"node-role.kubernetes.io/worker": ""}}},
		},
	}
	s.pools = []*mcfgv1.MachineConfigPool{
		newPool("master", s.nodes, pool.StatusOptions{}, nil),
		newPool("worker", s.nodes, pool.StatusOptions{}, func(p *mcfgv1.MachineConfigPool) { p.Spec.MaxUnavailable = new(intstr.FromInt(2)) }),
		newPool("edge", s.nodes, pool.StatusOptions{}, func(p *mcfgv1.MachineConfigPool) { p.Spec.Paused = true }),
		newPool("gpu", s.nodes, pool.StatusOptions{RenderError: "50-motd: a text of any length"}, nil),
		newPool("new", nil, pool.StatusOptions{}, func(p *mcfgv1.MachineConfigPool) { p.Spec.Configuration.Name = "" }),
	}
	return s
}

// registryOf returns a registry with the gauges of a state at a time, and these collectors.
func registryOf(t *testing.T, s state, now time.Time, others ...prometheus.Collector) prometheus.Gatherer {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(prometheus.CollectorFunc(func(out chan<- prometheus.Metric) {
		for _, m := range s.metrics(describe(), now) {
			out <- m
		}
	})))
	for _, c := range others {
		require.NoError(t, registry.Register(c))
	}
	return registry
}

func TestExpositionMatchesTheGoldenFile(t *testing.T) {
	golden.Assert(t, "exposition", exposition.Text(t, registryOf(t, exampleState(), epoch.Add(time.Hour))))
}

// TestDrainIsAnErrorAfterAnHour has a drain that no pod delays, and one that a pod delays.
func TestDrainIsAnErrorAfterAnHour(t *testing.T) {
	s := exampleState()
	text := exposition.Text(t, registryOf(t, s, epoch.Add(time.Hour-time.Second)))
	assert.Contains(t, text, `mcc_drain_err{node="worker-a"} 0`)
	assert.Contains(t, text, `cvo_node_drain_blocked_seconds{node="worker-a",pool="worker"} 3599`)
	text = exposition.Text(t, registryOf(t, s, epoch.Add(time.Hour)))
	assert.Contains(t, text, `mcc_drain_err{node="worker-a"} 1`)
	assert.Contains(t, text, `mcc_drain_err{node="worker-b"} 1`)
	assert.NotContains(t, text, `cvo_node_drain_blocked_seconds{node="worker-b"`)
}

// TestSeriesEndWithTheirNode deletes the nodes, which leaves series by pool only.
func TestSeriesEndWithTheirNode(t *testing.T) {
	s := exampleState()
	s.nodes = nil
	assert.NotContains(t, exposition.Text(t, registryOf(t, s, epoch)), `node="`)
}

func TestMetricsAreWellFormed(t *testing.T) {
	phases := NewPhases()
	phases.WithLabelValues("worker", "Drain").Observe(1)
	registry := registryOf(t, exampleState(), epoch, phases)
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	for _, p := range problems {
		assert.NotContains(t, p.Metric, "cvo_", p.Text) // others keep OpenShift's names
	}
	c := &collector{descriptions: describe(), phases: phases}
	described := map[string]bool{}
	for desc := range collected(c.Describe) {
		described[desc.String()] = true
	}
	for m := range collected(func(out chan<- prometheus.Metric) {
		c.phases.Collect(out)
		for _, m := range exampleState().metrics(c.descriptions, epoch) {
			out <- m
		}
	}) {
		assert.True(t, described[m.Desc().String()], m.Desc())
	}
}

// collected returns what a function sends.
func collected[T any](send func(chan<- T)) <-chan T {
	values := make(chan T)
	go func() {
		defer close(values)
		send(values)
	}()
	return values
}

// TestPhasesAreCountedOnceTheyEnd makes the writes of a daemon. The second update fails while the host is changed, and another config replaces it.
func TestPhasesAreCountedOnceTheyEnd(t *testing.T) {
	phases := NewPhases()
	machine := &mcfgv1.MachineConfigNode{}
	machine.Spec.Pool.Name = "worker"
	at := func(seconds int, step progress.Step, failure string) {
		next := machine.DeepCopy()
		next.Status = progress.Status(machine.Status, progress.Progress{Step: step, Failure: failure}, epoch.Add(time.Duration(seconds)*time.Second))
		observe(phases, machine, next)
		observe(phases, next, next) // a resync
		machine = next
	}
	sums := func() map[string]float64 {
		list := map[string]float64{}
		families, err := registryOf(t, state{}, epoch, phases).Gather()
		require.NoError(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				assert.Equal(t, "worker", m.GetLabel()[1].GetValue())
				list[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleSum()
				assert.EqualValues(t, 1, m.GetHistogram().GetSampleCount())
			}
		}
		return list
	}

	at(0, progress.Updated, "")
	assert.Empty(t, sums())
	at(10, progress.Preparing, "")
	at(11, progress.Draining, "")
	at(41, progress.Applying, "")
	at(45, progress.Resuming, "")
	at(47, progress.Updated, "")
	want := map[string]float64{"Prepare": 1, "Drain": 30, "Apply": 4, "Resume": 2}
	assert.Equal(t, want, sums())

	phases.Reset()
	at(100, progress.Preparing, "")
	at(101, progress.Applying, "") // without a drain
	at(102, progress.Applying, "no space")
	at(200, progress.Preparing, "")
	assert.Equal(t, map[string]float64{"Prepare": 1}, sums())
}

// TestOnlyTheLeaderServesMetrics has a collector that would fail to read.
func TestOnlyTheLeaderServesMetrics(t *testing.T) {
	c := &collector{elected: make(chan struct{}), descriptions: describe(), phases: NewPhases()}
	c.phases.WithLabelValues("worker", "Drain").Observe(1)
	assert.Zero(t, testutil.CollectAndCount(c))
}

// TestPauseBeginsWithThePauseOrTheConfig has a pool that is paused before it gets a config, and one that is paused during an update.
func TestPauseBeginsWithThePauseOrTheConfig(t *testing.T) {
	config, later := metav1.NewTime(epoch), metav1.NewTime(epoch.Add(time.Hour))
	for _, updated := range []metav1.Time{config, later} {
		p := &mcfgv1.MachineConfigPool{}
		p.Spec.Paused = true
		p.Status.Conditions = []mcfgv1.MachineConfigPoolCondition{
			{Type: mcfgv1.MachineConfigPoolUpdated, Status: corev1.ConditionFalse, LastTransitionTime: updated},
			{Type: mcfgv1.MachineConfigPoolUpdating, Status: corev1.ConditionFalse, LastTransitionTime: later},
		}
		if updated == later {
			p.Status.Conditions[1].LastTransitionTime = config
		}
		name, reason, since := stateOf(p)
		assert.Equal(t, "Paused", name)
		assert.Empty(t, reason)
		assert.Equal(t, later.Time, since)
	}
}
