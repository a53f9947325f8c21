//go:build linux

package daemon

import (
	"maps"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
	"github.com/cluster-version/cvo/pkg/node/machine"
	played "github.com/cluster-version/cvo/test/machine"
)

// leave makes the steps of a released node, each by a new daemon, until the node does not change. The controller answers its requests.
func leave(t *testing.T, s *server, m *played.Machine, n *corev1.Node) *corev1.Node {
	t.Helper()
	n = n.DeepCopy()
	n.Annotations[api.NodeReleasedAnnotation] = ""
	for range 10 {
		written, after, err := process(t, s, m).step(t.Context(), n)
		require.NoError(t, err)
		if written == nil {
			require.Zero(t, after)
			require.NoDirExists(t, m.Root+config.Folder)
			return n
		}
		n = written
		if n.Annotations[api.NodeStateAnnotation] == api.NodeReleased {
			require.NoDirExists(t, m.Root+config.Folder)
		}
		n.Annotations[api.AppliedDrainAnnotation] = n.Annotations[api.DesiredDrainAnnotation]
	}
	t.Fatal("the daemon has no last step")
	return nil
}

func TestReleasedNodeUndoesTheChangeThatHasNotRebooted(t *testing.T) {
	s, m, name := machineWith(t)
	drained := newNode(map[string]string{
		api.DesiredConfigAnnotation: name, api.DesiredDrainAnnotation: "drain-" + name, api.AppliedDrainAnnotation: "drain-" + name,
	})
	_, _, err := process(t, s, m).step(t.Context(), drained)
	require.ErrorIs(t, err, machine.ErrRebooting)

	n := leave(t, s, m, drained)
	assert.Equal(t, api.NodeReleased, n.Annotations[api.NodeStateAnnotation])
	assert.Equal(t, "uncordon-", n.Annotations[api.DesiredDrainAnnotation])
	assert.NoFileExists(t, m.Root+"/etc/motd")
	assert.Equal(t, []string{"reboot"}, m.Calls)
}

func TestReleasedNodeKeepsTheConfigWithWhichItHasRebooted(t *testing.T) {
	s, m, name := machineWith(t)
	drained := newNode(map[string]string{
		api.DesiredConfigAnnotation: name, api.DesiredDrainAnnotation: "drain-" + name, api.AppliedDrainAnnotation: "drain-" + name,
	})
	_, _, err := process(t, s, m).step(t.Context(), drained)
	require.ErrorIs(t, err, machine.ErrRebooting)
	m.Boot()

	n := leave(t, s, m, drained)
	assert.Equal(t, api.NodeReleased, n.Annotations[api.NodeStateAnnotation])
	assert.Empty(t, n.Annotations[api.CurrentConfigAnnotation])
	assert.Equal(t, "uncordon-"+name, n.Annotations[api.DesiredDrainAnnotation])
	assert.FileExists(t, m.Root+"/etc/motd")

	// The node returns to the stage. Its disk has the content, so it is neither drained nor rebooted.
	delete(n.Annotations, api.NodeReleasedAnnotation)
	d := process(t, s, m)
	require.NoError(t, d.rejoin(n))
	written, after, err := d.step(t.Context(), n)
	require.NoError(t, err)
	assert.Nil(t, written, "the controller removes the former config first")
	assert.Zero(t, after)
	n.Annotations[api.DesiredConfigAnnotation] = ""
	written, _, err = d.step(t.Context(), n)
	require.NoError(t, err)
	assert.Equal(t, api.NodeDone, written.Annotations[api.NodeStateAnnotation])
	written.Annotations[api.DesiredConfigAnnotation] = name
	written, _, err = d.step(t.Context(), written)
	require.NoError(t, err)
	assert.Equal(t, api.NodeDone, written.Annotations[api.NodeStateAnnotation])
	assert.Equal(t, name, written.Annotations[api.CurrentConfigAnnotation])
	assert.Len(t, m.Calls, 1)
}

func TestReleaseWaitsForTheEndOfTheCordon(t *testing.T) {
	s, m, name := machineWith(t)
	d := process(t, s, m)
	require.NoError(t, d.host.MakeFolder())
	draining := newNode(map[string]string{
		api.DesiredConfigAnnotation: name, api.DesiredDrainAnnotation: "drain-" + name, api.NodeReleasedAnnotation: "",
	})
	written, _, err := d.step(t.Context(), draining)
	require.NoError(t, err)
	assert.Equal(t, "uncordon-", written.Annotations[api.DesiredDrainAnnotation])
	written, after, err := d.step(t.Context(), written)
	require.NoError(t, err)
	assert.Nil(t, written)
	assert.Zero(t, after, "the controller's answer is an event")
	assert.DirExists(t, m.Root+config.Folder)
}

func TestReleaseThatFailsDegradesTheNode(t *testing.T) {
	s, m, _ := machineWith(t)
	fails := true
	h, err := host.Open(m.Root, host.Options{Tree: tree.Options{Step: func(operation, path string) error {
		if fails && operation == "remove" && path == config.Folder {
			return unix.EIO
		}
		return nil
	}}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, h.Close()) })
	require.NoError(t, h.MakeFolder())
	d := New(s, h, machine.New(h, machine.Options{Init: m}), clock.RealClock{}, "n", "1.0.0")
	n := newNode(map[string]string{api.NodeReleasedAnnotation: ""})
	written, after, err := d.step(t.Context(), n)
	require.NoError(t, err)
	assert.Equal(t, requestRetry.Max, after)
	assert.Equal(t, api.NodeDegraded, written.Annotations[api.NodeStateAnnotation])
	assert.Equal(t, "releasing the node: remove /var/lib/cvo-node: input/output error", written.Annotations[api.NodeReasonAnnotation])

	fails = false
	written, _, err = d.step(t.Context(), written)
	require.NoError(t, err)
	assert.Equal(t, api.NodeReleased, written.Annotations[api.NodeStateAnnotation])
	assert.Empty(t, written.Annotations[api.NodeReasonAnnotation])
}

func TestDaemonOfAContainerRestartsForANewFolder(t *testing.T) {
	s, m, _ := machineWith(t)
	h, err := host.Open(m.Root, host.Options{Tree: tree.Options{Step: func(string, string) error { return unix.EROFS }}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, h.Close()) })
	d := New(s, h, machine.New(h, machine.Options{Init: m}), clock.RealClock{}, "n", "1.0.0")
	returned := map[string]string{api.NodeStateAnnotation: api.NodeReleased}
	require.ErrorIs(t, d.rejoin(newNode(returned)), unix.EROFS)
	released := map[string]string{api.NodeReleasedAnnotation: ""}
	maps.Copy(released, returned)
	require.NoError(t, d.rejoin(newNode(released)))
	done := newNode(map[string]string{api.NodeStateAnnotation: api.NodeDone})
	require.ErrorIs(t, d.rejoin(done), unix.EROFS, "the report of the release was lost")
	require.NoError(t, os.MkdirAll(m.Root+"/var/lib/cvo-node/content", 0o700))
	require.NoError(t, d.rejoin(done))
}
