//go:build linux

package nodes_test

import (
	"slices"
	"syscall"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
)

// kill kills the newest process with an argument: "controller", or the name of the node of a daemon.
func (s *stage) kill(argument string) {
	s.t.Helper()
	for _, cmd := range slices.Backward(s.commands) {
		if slices.Contains(cmd.Args, argument) {
			require.NoError(s.t, cmd.Process.Kill())
			_ = cmd.Wait() // it reports the signal
			return
		}
	}
	require.Fail(s.t, "no process", argument)
}

// setReady sets the condition Ready of a node, as a kubelet or the node lifecycle controller would.
func (s *stage) setReady(node string, is corev1.ConditionStatus) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) { // the controller writes the status, too
		n := &corev1.Node{}
		require.NoError(c, s.client.Get(s.t.Context(), client.ObjectKey{Name: node}, n))
		i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
		n.Status.Conditions[i].Status = is
		require.NoError(c, s.client.Status().Update(s.t.Context(), n))
	})
}

// TestNodesSurviveFaults interrupts an update of two nodes during the drain of the first one.
func TestNodesSurviveFaults(t *testing.T) {
	for name, fault := range map[string]func(*stage){
		"the daemon is killed": func(s *stage) {
			s.kill("n1")
			s.daemon("n1", "1.0.0")
		},
		"the controller is killed": func(s *stage) {
			s.kill("controller")
			s.controller("1.0.0")
		},
		// Without an API server, the controller ends after some time because it loses its Lease. Here it is killed, too, so that the test does
		// not depend on that time.
		"the API server is killed": func(s *stage) {
			s.down = time.Now()
			require.NoError(s.t, s.env.KillAPIServer())
			s.kill("controller")
			s.eventually(func(c *assert.CollectT) { // the next one needs the same port
				err := s.client.Get(s.t.Context(), client.ObjectKey{Name: "n1"}, &corev1.Node{})
				require.ErrorIs(c, err, syscall.ECONNREFUSED)
			})
			require.NoError(s.t, s.env.StartAPIServer(s.t.Context()))
			s.ready = time.Now()
			s.controller("1.0.0")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, "n1", "n2")
			s.config("00-worker", nil)
			before := s.updated("")
			end := s.pod("app", "n1")
			s.config("50-motd", map[string]string{"/etc/motd": "hello"})
			s.eventuallyDeleted("app")

			fault(s)
			end()

			s.updated(before)
			assert.Empty(t, s.cordoned())
			for _, root := range s.hosts {
				assert.FileExists(t, root+"/etc/motd")
			}
		})
	}
}

// TestLostNodeKeepsItsSlot loses a node during its drain. No other node starts until it is back.
func TestLostNodeKeepsItsSlot(t *testing.T) {
	s := start(t, "n1", "n2")
	s.config("00-worker", nil)
	before := s.updated("")
	end := s.pod("app", "n1")
	s.config("50-motd", map[string]string{"/etc/motd": "hello"})
	s.eventuallyDeleted("app")
	lost := time.Now()

	s.kill("n1")
	s.setReady("n1", corev1.ConditionUnknown)

	s.eventually(func(c *assert.CollectT) {
		p := &mcfgv1.MachineConfigPool{}
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: api.WorkerPool}, p))
		assert.EqualValues(c, 1, p.Status.UnavailableMachineCount)
		status := string(s.cvo("", "nodes", "status", "worker"))
		assert.Regexp(c, `(?m)^ *n1 +Draining .*worker-`, status)
		assert.Regexp(c, `(?m)^ *n2 +Waiting .*waits for a free slot`, status)
	})
	end() // a node that is lost for a long time loses its pods, too
	s.eventually(func(c *assert.CollectT) {
		n := &corev1.Node{}
		require.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: "n1"}, n))
		assert.Equal(c, n.Annotations[api.DesiredDrainAnnotation], n.Annotations[api.AppliedDrainAnnotation])
	})
	returned := time.Now()
	s.setReady("n1", corev1.ConditionTrue)
	s.daemon("n1", "1.0.0")

	s.updated(before)
	assert.Empty(t, s.cordoned())
	for _, r := range s.requests(lost) {
		isN2 := r.Object.Resource == "nodes" && r.Object.Name == "n2" && r.Object.Subresource == "" && r.Write()
		assert.False(t, isN2 && r.Received.Before(returned), "%+v", r)
	}
}
