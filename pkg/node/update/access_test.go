package update

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// newBothPools returns a cluster with one node of the control plane and one worker, whose pools are not paused.
func newBothPools(t *testing.T) (*memory, *pools) {
	m := newMemory(2)
	m.nodes[0].Labels = map[string]string{"node-role.kubernetes.io/master": ""}
	m.pools[1].Spec.Paused = false
	m.configs = append(m.configs, newConfig("00-master", "/etc/example", "x"))
	m.configs[len(m.configs)-1].Labels[api.MachineConfigRoleLabel] = api.ControlPlanePool
	r := m.controller()
	r.guard = newServer(t).guard(m, r.clock)
	return m, r
}

// TestConfigsAreReadableBeforeTheyAreAssigned has a new node in each pool, and then another config of the workers.
func TestConfigsAreReadableBeforeTheyAreAssigned(t *testing.T) {
	m, r := newBothPools(t)
	for range 2 {
		_, err := r.Reconcile(t.Context(), reconcile.Request{})
		require.NoError(t, err)
		for i, role := range []string{api.ControlPlaneConfigReader, api.MachineConfigReader} {
			desired := m.nodes[i].Annotations[api.DesiredConfigAnnotation]
			require.Equal(t, m.pools[i].Spec.Configuration.Name, desired)
			assert.Contains(t, m.readable[role], desired)
		}
		m.configs[0].Spec.KernelArguments, m.configs[0].ResourceVersion = []string{"quiet"}, "2"
		m.nodes[1].Annotations[api.CurrentConfigAnnotation] = m.nodes[1].Annotations[api.DesiredConfigAnnotation]
	}
	assert.Empty(t, m.unreadable, "assigned before its role was written")
}

func TestOnlyPoolsWithoutAccessWait(t *testing.T) {
	for _, tt := range []struct {
		name    string
		refusal error
		isError bool
		want    string
	}{
		{
			"the role cannot be written", errors.New("busy"), true,
			"Node n1 waits because its daemon may not read the config yet: ClusterRole machine-config-daemon-configs cannot be written: busy",
		},
		{
			"the role does not exist", apierrors.NewNotFound(rbacv1.Resource("clusterroles"), api.MachineConfigReader), false,
			"Node n1 waits for ClusterRole machine-config-daemon-configs, which allows its daemon to read the config and does not exist: restore it from the release",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, r := newBothPools(t)
			m.refusedRoles = map[string]error{api.MachineConfigReader: tt.refusal}
			for range 2 {
				_, err := r.Reconcile(t.Context(), reconcile.Request{})
				assert.Equal(t, tt.isError, errors.Is(err, tt.refusal), "%v", err)
				assert.NotEmpty(t, m.nodes[0].Annotations[api.DesiredConfigAnnotation], "another role has this config")
				assert.Empty(t, m.nodes[1].Annotations[api.DesiredConfigAnnotation])
				assert.Equal(t, tt.want, pool.Message(&m.pools[1], pool.NodesWaiting))
			}

			if !tt.isError {
				assert.Equal(t, 1, m.attempts[api.MachineConfigReader])
				r.access.observe(api.MachineConfigReader, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}})
			}
			m.refusedRoles, r.nextPlan = nil, r.clock.Now()
			_, err := r.Reconcile(t.Context(), reconcile.Request{})
			require.NoError(t, err)
			assert.Contains(t, m.readable[api.MachineConfigReader], m.nodes[1].Annotations[api.DesiredConfigAnnotation])
			assert.Empty(t, pool.Message(&m.pools[1], pool.NodesWaiting))
			assert.Empty(t, m.unreadable)
		})
	}
}

// TestNodeThatHoldsASlotWaitsForAccess has a worker whose update to another config is in progress.
func TestNodeThatHoldsASlotWaitsForAccess(t *testing.T) {
	m, r := newBothPools(t)
	m.nodes[1].Annotations[api.DesiredConfigAnnotation] = "rendered-worker-old"
	m.refusedRoles = map[string]error{api.MachineConfigReader: errors.New("busy")}
	_, err := r.Reconcile(t.Context(), reconcile.Request{})
	require.ErrorContains(t, err, "busy")
	assert.Equal(t, "rendered-worker-old", m.nodes[1].Annotations[api.DesiredConfigAnnotation])
	assert.Contains(t, pool.Message(&m.pools[1], pool.NodesWaiting), "Node n1 waits because its daemon may not read the config yet")

	m.refusedRoles = nil
	_, err = r.Reconcile(t.Context(), reconcile.Request{})
	require.NoError(t, err)
	assert.Equal(t, m.pools[1].Spec.Configuration.Name, m.nodes[1].Annotations[api.DesiredConfigAnnotation])
	assert.Empty(t, pool.Message(&m.pools[1], pool.NodesWaiting))
}

// TestNodeThatHoldsASlotWaitsForItsDaemon is the same with a daemon of another release.
func TestNodeThatHoldsASlotWaitsForItsDaemon(t *testing.T) {
	m, r := newBothPools(t)
	r.options.Release, m.release = "1.1.0", "1.1.0"
	m.nodes[1].Annotations[api.DesiredConfigAnnotation] = "rendered-worker-old"
	m.nodes[1].Annotations[api.DaemonReleaseAnnotation] = "1.0.0"
	_, err := r.Reconcile(t.Context(), reconcile.Request{})
	require.NoError(t, err)
	assert.Equal(t, "rendered-worker-old", m.nodes[1].Annotations[api.DesiredConfigAnnotation])
	assert.Equal(t, `Node n1 waits for its daemon of release 1.1.0: the running one is of release "1.0.0"`, pool.Message(&m.pools[1], pool.NodesWaiting))
}

func TestChangedRolesAreRepaired(t *testing.T) {
	m, r := newBothPools(t)
	reconcilePools := func() []string {
		m.readable = map[string][]string{}
		_, err := r.Reconcile(t.Context(), reconcile.Request{})
		require.NoError(t, err)
		return m.readable[api.MachineConfigReader]
	}
	want := reconcilePools()
	require.Len(t, want, 1)
	assert.Empty(t, reconcilePools(), "the role is not written again")
	emptied := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: api.MachineConfigReader}}
	m.set(emptied)
	for _, role := range []*rbacv1.ClusterRole{emptied, nil} { // nil is its deletion
		r.access.observe(api.MachineConfigReader, role)
		assert.Equal(t, want, reconcilePools())
		assert.Empty(t, reconcilePools())
	}
}
