//go:build linux

package daemon

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/machine"
	"github.com/cluster-version/cvo/pkg/node/pool"
	played "github.com/cluster-version/cvo/test/machine"
)

// accepting accepts every report.
type accepting struct {
	client.SubResourceWriter
	reports int
}

func (a *accepting) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	a.reports++
	return nil
}

// stager is a daemon whose controller requests to stage one config, and the state of its objects.
type stager struct {
	*Daemon
	t       *testing.T
	server  *server
	reports *accepting
	clock   *clocktesting.FakeClock
	state   state
	config  string
}

// newStager returns a daemon of the host in a folder. Its Node has no desired config.
func newStager(t *testing.T, root string) *stager { return newStagerOf(t, root, "") }

// newStagerOf is like newStager, for a config with an image of the operating system.
func newStagerOf(t *testing.T, root, osImage string) *stager {
	mc := &mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	mc.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","contents":{"source":"data:,hello"}}]}}`)
	mc, err := config.Render("worker", []*mcfgv1.MachineConfig{mc}, osImage)
	require.NoError(t, err)
	h, err := host.Open(root, host.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, h.Close()) })
	s := &stager{t: t, reports: &accepting{}, clock: clocktesting.NewFakeClock(time.Now()), config: mc.Name}
	s.server = &server{spec: mc.Spec, status: s.reports}
	s.Daemon = New(s.server, h, machine.New(h, machine.Options{}), s.clock, "n", "1.0.0")
	s.state.node.Object = newNode(map[string]string{api.DesiredConfigAnnotation: ""})
	s.state.machine.Object = &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.StageAnnotation: mc.Name}}}
	return s
}

// follow does what Run does after an event, except for the step of the update.
func (s *stager) follow() (after time.Duration, err error) {
	after, err = s.stage(s.t.Context(), s.state.machine.Object)
	reported, reportErr := s.report(s.t.Context(), s.state)
	require.NoError(s.t, reportErr)
	if reported != nil {
		s.state.machine.Object = reported
	}
	return after, err
}

func TestRequestedConfigIsStagedOnce(t *testing.T) {
	root := t.TempDir()
	s := newStager(t, root)
	s.server.err = errors.NewForbidden(mcfgv1.Resource("machineconfigs"), s.config, nil)
	_, err := s.follow()
	require.Error(t, err, "the API server may not know the permission yet")
	assert.Empty(t, s.state.machine.Object.Status.Conditions)
	s.server.err = nil

	for range 2 {
		after, err := s.follow()

		require.NoError(t, err)
		assert.Zero(t, after)
		staged, failure := pool.IsStaged(s.state.machine.Object, s.config)
		assert.True(t, staged)
		assert.Empty(t, failure)
		assert.Equal(t, 2, s.server.reads)
		assert.Equal(t, 1, s.reports.reports)
	}
	assert.False(t, s.server.written, "staging writes nothing to the Node")
	assert.NoFileExists(t, filepath.Join(root, "etc/motd"))

	restarted := newStager(t, root)
	restarted.state = s.state
	_, err = restarted.follow()
	require.NoError(t, err)
	_, _, err = restarted.step(t.Context(), newNode(map[string]string{api.DesiredConfigAnnotation: s.config}))
	require.NoError(t, err)
	assert.Zero(t, restarted.server.reads, "the update needs no other read")
	assert.Zero(t, restarted.reports.reports)
	assert.True(t, restarted.server.written, "it requests a drain")
}

// TestNodeThatCannotStageReportsAndRetries has a folder in the place of the file that names the staged config.
func TestNodeThatCannotStageReportsAndRetries(t *testing.T) {
	root := t.TempDir()
	s := newStager(t, root)
	obstacle := filepath.Join(root, config.Folder, "staged.json")
	require.NoError(t, os.MkdirAll(obstacle, 0o700))

	for range 2 {
		after, err := s.follow()

		require.NoError(t, err)
		assert.Equal(t, stageRetry, after)
		staged, failure := pool.IsStaged(s.state.machine.Object, s.config)
		assert.False(t, staged)
		assert.Contains(t, failure, "staged.json")
		assert.Equal(t, 1, s.server.reads)
		assert.Equal(t, 1, s.reports.reports)
	}
	require.NoError(t, os.Remove(obstacle))
	s.clock.Step(stageRetry)
	after, err := s.follow()
	require.NoError(t, err)
	assert.Zero(t, after)
	staged, _ := pool.IsStaged(s.state.machine.Object, s.config)
	assert.True(t, staged)
	assert.False(t, s.server.written)
}

// TestHostThatBootcHasNotBootedStagesNoImage has a host with the program bootc that was not installed from an image.
func TestHostThatBootcHasNotBootedStagesNoImage(t *testing.T) {
	root := t.TempDir()
	s := newStagerOf(t, root, "registry.example.com/os@sha256:"+strings.Repeat("1", 64))
	host := played.Play(t, root)
	bootc := host.PlayBootc("")
	s.machine = machine.New(s.host, machine.Options{Init: host, Root: root})

	after, err := s.follow()
	require.NoError(t, err)
	assert.Equal(t, stageRetry, after)
	_, failure := pool.IsStaged(s.state.machine.Object, s.config)
	assert.Contains(t, failure, "bootc cannot be used: it has not booted this host")
	written, _, err := s.step(t.Context(), newNode(map[string]string{api.DesiredConfigAnnotation: s.config}))
	require.NoError(t, err)
	assert.Equal(t, api.NodeUnreconcilable, written.Annotations[api.NodeStateAnnotation])

	bootc.SetState("booted", "registry.example.com/os:9")
	s.clock.Step(stageRetry)
	_, err = s.follow()
	require.NoError(t, err)
	staged, _ := pool.IsStaged(s.state.machine.Object, s.config)
	assert.True(t, staged)
	assert.Empty(t, bootc.Commands(), "staging does not change the next boot")
}

func TestNodeDoesNotReportWithoutARequest(t *testing.T) {
	s := newStager(t, t.TempDir())
	s.state.machine.Object.Annotations = nil

	after, err := s.follow()

	require.NoError(t, err)
	assert.Zero(t, after)
	assert.Zero(t, s.reports.reports)
	assert.Zero(t, s.server.reads)
}
