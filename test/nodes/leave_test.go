//go:build linux

package nodes_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	cvo "github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/drain"
)

// setReleased releases a node from the stage, or returns it.
func (s *stage) setReleased(node, value string) {
	s.t.Helper()
	patch := []byte(`{"metadata":{"annotations":{"` + api.NodeReleasedAnnotation + `":` + value + `}}}`)
	require.NoError(s.t, s.client.Patch(s.t.Context(), s.node(node), client.RawPatch(types.MergePatchType, patch)))
}

// eventuallyReleased waits until neither a node nor its host have anything of the stage, except for the content of the config.
func (s *stage) eventuallyReleased(node string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		n := s.node(node)
		assert.Equal(c, api.NodeReleased, n.Annotations[api.NodeStateAnnotation])
		assert.Empty(c, n.Annotations[api.CurrentConfigAnnotation])
		assert.NotContains(c, n.Annotations, api.DesiredConfigAnnotation)
		assert.NotContains(c, n.Annotations, api.CordonAnnotation)
		for _, taint := range n.Spec.Taints {
			assert.NotEqual(c, api.UpdateInProgressTaint, taint.Key)
		}
		assert.False(c, n.Spec.Unschedulable)
		assert.Empty(c, drain.Described(n))
		err := s.client.Get(s.t.Context(), client.ObjectKey{Name: node}, &mcfgv1.MachineConfigNode{})
		assert.True(c, apierrors.IsNotFound(err), "%v", err)
		assert.NoDirExists(c, s.hosts[node]+config.Folder)
		assert.NoFileExists(c, s.hosts[node]+guardFile)
	})
}

// TestReleasedNodeLeavesTheStage releases a node whose drain is in progress. It stays out of the stage until it is returned.
func TestReleasedNodeLeavesTheStage(t *testing.T) {
	s := start(t, "n1", "n2")
	s.config("00-worker", map[string]string{"/etc/motd": "hello"})
	first := s.updated("")
	end := map[string]func(){"n1": s.pod("p1", "n1"), "n2": s.pod("p2", "n2")}
	s.config("00-worker", map[string]string{"/etc/motd": "bye"})
	s.eventually(func(c *assert.CollectT) { assert.Len(c, s.cordoned(), 1) })
	released, other := "n1", "n2"
	if s.cordoned()[0] == "n2" {
		released, other = "n2", "n1"
	}

	var out bytes.Buffer
	cmd := cvo.New(command.Streams{In: strings.NewReader(""), Out: &out, Err: t.Output()})
	cmd.SetArgs([]string{"nodes", "release", released, "--timeout", limit.String(), "--kubeconfig", s.env.Kubeconfig})
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	assert.Equal(t, "node "+released+" is released from the node stage; the content of the last config stays on the host\n", out.String())
	s.eventuallyReleased(released)
	s.eventually(func(c *assert.CollectT) { assert.Equal(c, []string{other}, s.cordoned()) })
	end[other]()
	second := s.updatedPool(api.WorkerPool, first, 1)
	s.restart()
	s.config("00-worker", map[string]string{"/etc/motd": "again"})
	s.updatedPool(api.WorkerPool, second, 1)
	s.eventuallyReleased(released)
	data, err := os.ReadFile(s.hosts[released] + "/etc/motd")
	require.NoError(t, err)
	assert.Equal(t, "hello", string(data))

	s.setReleased(released, "null")
	end[released]()
	s.updated(second)
	data, err = os.ReadFile(s.hosts[released] + "/etc/motd")
	require.NoError(t, err)
	assert.Equal(t, "again", string(data))
}

// TestReleaseCompletesAChangeAfterItsReboot has the services of the host remove the folder from which they run.
func TestReleaseCompletesAChangeAfterItsReboot(t *testing.T) {
	s := prepare(t, "n1")
	h := s.playHost("n1")
	s.controller("1.0.0")
	stop := s.daemon("n1", "1.0.0")
	s.config("00-worker", map[string]string{"/etc/motd": "hello"})
	<-h.reboots
	stop()
	h.Boot()
	s.setReleased("n1", `""`)
	stop = s.daemon("n1", "1.0.0")
	s.eventuallyReleased("n1")
	assert.FileExists(t, h.Root+"/etc/motd")
	stop()
	services := len(h.systemd.Calls())
	s.daemon("n1", "1.0.1")
	s.eventually(func(c *assert.CollectT) {
		assert.Equal(c, "1.0.1", s.node("n1").Annotations[api.DaemonReleaseAnnotation])
	})
	s.config("00-worker", map[string]string{"/etc/motd": "bye"})
	s.updatedPool(api.WorkerPool, "", 0)
	s.eventuallyReleased("n1")
	assert.Len(t, h.systemd.Calls(), services, "a restarted daemon has nothing to remove")
}
