package update

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/controlplane"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// serverAge is the time for which the refusal of an API server counts.
const serverAge = 10 * time.Second

// server is the API server of the only control-plane node.
type server struct {
	url string
	// status is the answer to /readyz; 0 for 200.
	status, requests int
}

func newServer(t *testing.T) *server {
	s := &server{}
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.requests++
		if s.status != 0 {
			w.WriteHeader(s.status)
			_, _ = w.Write([]byte("[-]etcd failed: reason withheld\n"))
		}
	}))
	t.Cleanup(listener.Close)
	s.url = listener.URL
	return s
}

func (s *server) guard(m *memory, clk clock.PassiveClock) *controlplane.Guard {
	return controlplane.New(m, m, &rest.Config{Host: s.url}, clk)
}

// slow is a clock on which every plan needs a second.
type slow struct{ *clocktesting.FakePassiveClock }

func (slow) Since(time.Time) time.Duration { return time.Second }

// waitingForServer returns the controller of a number of nodes. Only the first is a control-plane node, and its API server is not
// ready.
func waitingForServer(t *testing.T, nodes int) (*memory, *server, *pools, *clocktesting.FakePassiveClock) {
	t.Helper()
	m := newMemory(nodes)
	m.nodes[0].Labels["node-role.kubernetes.io/master"] = ""
	m.configs = append(m.configs, newConfig("00-master", "/etc/example", "x"))
	m.configs[len(m.configs)-1].Labels[api.MachineConfigRoleLabel] = api.ControlPlanePool
	s := newServer(t)
	s.status = http.StatusInternalServerError
	r, clk := m.controller(), clocktesting.NewFakePassiveClock(time.Now())
	r.guard = s.guard(m, clk)
	return m, s, r, clk
}

// TestPlansAfterARefusalUseATenthOfTheTime has a control-plane node that is planned twice, because its API server is not ready.
func TestPlansAfterARefusalUseATenthOfTheTime(t *testing.T) {
	_, s, r, clk := waitingForServer(t, 1)
	r.clock = slow{clk}

	_, err := r.Reconcile(t.Context(), reconcile.Request{})

	require.NoError(t, err)
	require.Equal(t, 1, s.requests)
	assert.Equal(t, 2*planShare*time.Second, r.nextPlan.Sub(clk.Now()))
}

// TestPoolReportsWhyTheControlPlaneWaits has a single control-plane node whose API server is not ready.
func TestPoolReportsWhyTheControlPlaneWaits(t *testing.T) {
	m, s, r, clk := waitingForServer(t, 2)
	m.pools[1].Spec.Paused = false
	reconcilePools := func() time.Duration {
		result, err := r.Reconcile(t.Context(), reconcile.Request{})
		require.NoError(t, err)
		return result.RequeueAfter
	}

	for range 3 {
		assert.Equal(t, serverAge, reconcilePools())
		assert.Equal(t, "Node n0 waits for the API server: /readyz answers 500: etcd failed", pool.Message(&m.pools[0], pool.NodesWaiting))
	}
	assert.Empty(t, m.nodes[0].Annotations[api.DesiredConfigAnnotation])
	assert.NotEmpty(t, m.nodes[1].Annotations[api.DesiredConfigAnnotation], "workers do not wait for it")
	s.status = http.StatusOK
	clk.SetTime(clk.Now().Add(serverAge))
	assert.Zero(t, reconcilePools())
	assert.NotEmpty(t, m.nodes[0].Annotations[api.DesiredConfigAnnotation])
	assert.Empty(t, pool.Message(&m.pools[0], pool.NodesWaiting))
	for range 3 {
		reconcilePools()
	}
	assert.Equal(t, 2, s.requests, "none while no node is to start")
}
