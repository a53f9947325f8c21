package update

import (
	"fmt"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// stagingPool is the workers' pool of ten nodes. None has staged the config, and all may be unavailable.
type stagingPool struct {
	*memory
	t *testing.T
	r *pools
}

func newStagingPool(t *testing.T) *stagingPool {
	m := newMemory(10)
	m.pools[1].Spec.Paused, m.pools[1].Spec.MaxUnavailable = false, new(intstr.FromInt32(10))
	for i := range m.nodes {
		m.machines = append(m.machines, mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: m.nodes[i].Name, ResourceVersion: fmt.Sprint(i + 1)}})
	}
	return &stagingPool{m, t, m.controller()}
}

// reconcile returns the nodes with a new request to stage.
func (s *stagingPool) reconcile() []string {
	s.t.Helper()
	s.requested = nil
	s.r.nextPlan = time.Time{}
	_, err := s.r.Reconcile(s.t.Context(), reconcile.Request{})
	require.NoError(s.t, err)
	return s.requested
}

// answer plays the daemon of a node: it has staged the requested config, unless failure says why it cannot.
func (s *stagingPool) answer(node int, failure string) {
	s.version++
	m := newMachine(s.nodes[node].Name, s.config())
	m.ResourceVersion = fmt.Sprint(s.version)
	pool.SetStaged(&m.Status.Conditions, s.config(), failure, time.Now())
	s.machines[node] = m
}

func (s *stagingPool) config() string { return s.pools[1].Spec.Configuration.Name }

// assigned returns the nodes that got the config.
func (s *stagingPool) assigned() (names []string) {
	for _, n := range s.nodes {
		if n.Annotations[api.DesiredConfigAnnotation] != "" {
			names = append(names, n.Name)
		}
	}
	return names
}

func TestOnlyStagedNodesGetTheConfig(t *testing.T) {
	s := newStagingPool(t)
	assert.Equal(t, []string{"n0", "n1"}, s.reconcile(), "a fifth of the pool")
	assert.Equal(t, "Node n0 stages MachineConfig "+s.config()+" (and 9 other nodes)", pool.Message(&s.pools[1], pool.NodesWaiting))
	assert.Empty(t, s.reconcile(), "the cache does not show the requests yet")

	s.answer(1, "")
	assert.Equal(t, []string{"n2"}, s.reconcile())
	assert.Equal(t, []string{"n1"}, s.assigned())
	s.answer(0, "no space")
	assert.Equal(t, []string{"n3"}, s.reconcile())
	assert.Equal(t, []string{"n1"}, s.assigned())
	assert.Equal(t, "Node n0 cannot stage MachineConfig "+s.config()+": no space; Node n2 stages MachineConfig "+s.config()+" (and 7 other nodes)",
		pool.Message(&s.pools[1], pool.NodesWaiting))
	assert.False(t, pool.IsTrue(&s.pools[1], mcfgv1.MachineConfigPoolDegraded))

	for i := 2; i < 10; i++ {
		s.answer(i, "")
		s.reconcile()
	}
	assert.Equal(t, []string{"n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"}, s.assigned())
	assert.Equal(t, "Node n0 cannot stage MachineConfig "+s.config()+": no space", pool.Message(&s.pools[1], pool.NodesWaiting))
	s.answer(0, "")
	s.reconcile()
	assert.Len(t, s.assigned(), 10)
	assert.Empty(t, pool.Message(&s.pools[1], pool.NodesWaiting))
}

func TestPausedPoolStagesNothing(t *testing.T) {
	s := newStagingPool(t)
	s.pools[1].Spec.Paused = true
	assert.Empty(t, s.reconcile())
	require.NotEmpty(t, s.config())

	s.pools[1].Spec.Paused = false
	assert.NotEmpty(t, s.reconcile())
}

func TestRefusedNodesStageNothing(t *testing.T) {
	s := newStagingPool(t)
	s.nodes[0].Annotations[api.DaemonReleaseAnnotation] = "0.9.0"

	assert.Equal(t, []string{"n1", "n2"}, s.reconcile(), "the daemon of n0 is of another release")
}

// TestNodesThatHoldASlotDoNotWaitForStaging has a node whose update to another config is in progress.
func TestNodesThatHoldASlotDoNotWaitForStaging(t *testing.T) {
	s := newStagingPool(t)
	s.nodes[4].Annotations[api.DesiredConfigAnnotation] = "rendered-worker-old"
	s.nodes[4].Annotations[api.NodeStateAnnotation] = api.NodeWorking

	assert.Equal(t, []string{"n0", "n1"}, s.reconcile())

	assert.Equal(t, s.config(), s.nodes[4].Annotations[api.DesiredConfigAnnotation])
}

// TestNodesThatCannotStageAreNamedWithoutASlot has other nodes in all slots.
func TestNodesThatCannotStageAreNamedWithoutASlot(t *testing.T) {
	s := newStagingPool(t)
	s.pools[1].Spec.MaxUnavailable = new(intstr.FromInt32(1))
	s.reconcile()
	s.answer(1, "")
	s.answer(0, "no space")
	s.reconcile()
	s.reconcile()

	assert.Equal(t, []string{"n1"}, s.assigned())
	assert.Equal(t, "Node n0 cannot stage MachineConfig "+s.config()+": no space", pool.Message(&s.pools[1], pool.NodesWaiting))
}

func TestOnlyStagingMatters(t *testing.T) {
	before := newMachine("n", "new")
	before.Status.Conditions = []metav1.Condition{{Type: "Updated", Status: metav1.ConditionTrue}}
	after := before.DeepCopy()
	after.Status.Conditions[0].Status = metav1.ConditionFalse
	assert.False(t, mattersToStaging(&before, after))
	pool.SetStaged(&after.Status.Conditions, "new", "", time.Now())
	assert.True(t, mattersToStaging(&before, after))
	other := newMachine("n", "other")
	other.Status = before.Status
	assert.True(t, mattersToStaging(&before, &other), "another client has changed the request")
}
