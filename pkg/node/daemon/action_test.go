//go:build linux

package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/machine"
	"github.com/cluster-version/cvo/pkg/node/progress"
)

// initSystem records its calls. Each fails with err.
type initSystem struct {
	calls []string
	// lacks is a unit that does not exist.
	lacks string
	err   error
}

func (i *initSystem) call(call string) error {
	i.calls = append(i.calls, call)
	return i.err
}

func (i *initSystem) HasUnit(_ context.Context, unit string) (bool, error) {
	return i.err == nil && unit != i.lacks, i.err
}
func (i *initSystem) CanReload(context.Context, string) (bool, error) { return true, nil }
func (i *initSystem) HasFailed(context.Context, string) (bool, error) { return false, nil }
func (i *initSystem) ReloadUnitFiles(context.Context) error           { return i.call("reload files") }

func (i *initSystem) Restart(_ context.Context, unit string) error { return i.call("restart " + unit) }

func (i *initSystem) Reload(_ context.Context, unit string) error { return i.call("reload " + unit) }
func (i *initSystem) Reboot(context.Context) error                { return i.call("reboot") }

// machineWith returns the server and the host of a machine that must change /etc/motd, and the name of the config.
func machineWith(t *testing.T, boot int) (s *server, root, name string) {
	s = &server{}
	s.spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","contents":{"source":"data:,hello"}}]}}`)
	mc, err := config.Render("worker", []*mcfgv1.MachineConfig{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: s.spec}}, "")
	require.NoError(t, err)
	s.spec = mc.Spec
	root = t.TempDir()
	booted(t, root, boot)
	return s, root, mc.Name
}

// booted makes the folder the root of a machine that has booted this many times.
func booted(t *testing.T, root string, boot int) {
	t.Helper()
	for name, data := range map[string]string{
		"/proc/1/stat":                    fmt.Sprintf("1 (init) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 %d 9 10", boot),
		"/proc/sys/kernel/random/boot_id": "0a1b\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(root+name), 0o755))
		require.NoError(t, os.WriteFile(root+name, []byte(data), 0o600))
	}
}

// process returns the daemon of a new process.
func process(t *testing.T, s *server, root string, init *initSystem) *Daemon {
	h, err := host.Open(root, host.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, h.Close()) })
	return New(s, h, machine.New(h, machine.Options{Init: init}), clock.RealClock{}, "n", "1.0.0")
}

func TestNodeBecomesCurrentAfterItsReboot(t *testing.T) {
	s, root, name := machineWith(t, 1)
	init := &initSystem{}
	drained := newNode(map[string]string{
		api.DesiredConfigAnnotation: name, api.DesiredDrainAnnotation: "drain-" + name, api.AppliedDrainAnnotation: "drain-" + name,
	})
	for range 2 { // the daemon may be restarted before the reboot
		d := process(t, s, root, init)
		_, after, err := d.step(t.Context(), drained)
		require.ErrorIs(t, err, machine.ErrRebooting)
		p, err := d.progress(drained)
		require.NoError(t, err)
		assert.Equal(t, progress.Rebooting, p.Step)
		assert.Equal(t, requestRetry.Max, after)
		current, err := d.host.Current()
		require.NoError(t, err)
		assert.Empty(t, current)
	}
	assert.Equal(t, []string{"reboot", "reboot"}, init.calls)
	assert.False(t, s.written)

	booted(t, root, 2)
	d := process(t, s, root, init)
	written, _, err := d.step(t.Context(), drained)
	require.NoError(t, err)
	assert.Equal(t, "uncordon-"+name, written.Annotations[api.DesiredDrainAnnotation])
	current, err := d.host.Current()
	require.NoError(t, err)
	assert.Equal(t, name, current.Name)
	assert.Len(t, init.calls, 2)
}

// restartOf returns a policy that restarts a service instead of the machine.
func restartOf(service operatorv1.NodeDisruptionPolicyServiceName) operatorv1.NodeDisruptionPolicyConfig {
	return operatorv1.NodeDisruptionPolicyConfig{Files: []operatorv1.NodeDisruptionPolicySpecFile{{
		Path: "/etc/motd",
		Actions: []operatorv1.NodeDisruptionPolicySpecAction{{
			Type: operatorv1.RestartSpecAction, Restart: &operatorv1.RestartService{ServiceName: service},
		}},
	}}}
}

func TestPolicyReplacesTheDrainAndTheReboot(t *testing.T) {
	s, root, name := machineWith(t, 1)
	init := &initSystem{}
	d := process(t, s, root, init)
	d.policies = restartOf("motd.service")
	written, _, err := d.step(t.Context(), newNode(map[string]string{api.DesiredConfigAnnotation: name}))
	require.NoError(t, err)
	assert.Equal(t, api.NodeDone, written.Annotations[api.NodeStateAnnotation])
	assert.Equal(t, name, written.Annotations[api.CurrentConfigAnnotation])
	assert.Empty(t, written.Annotations[api.DesiredDrainAnnotation])
	assert.Equal(t, []string{"restart motd.service"}, init.calls)
}

// TestChangeWithAnActionThatMustFailDoesNotBegin has an action that would fail in the undo, too. The node returns to its former config without
// one.
func TestChangeWithAnActionThatMustFailDoesNotBegin(t *testing.T) {
	s, root, name := machineWith(t, 1)
	init := &initSystem{lacks: "motd.service"}
	d := process(t, s, root, init)
	d.policies = restartOf("motd.service")
	written, after, err := d.step(t.Context(), newNode(map[string]string{api.DesiredConfigAnnotation: name}))
	require.NoError(t, err)
	assert.Equal(t, requestRetry.Max, after)
	assert.Equal(t, api.NodeDegraded, written.Annotations[api.NodeStateAnnotation])
	assert.Equal(t, "Restart of unit motd.service would fail on this node: the unit does not exist. Change the node disruption policy",
		written.Annotations[api.NodeReasonAnnotation])
	assert.NoFileExists(t, root+"/etc/motd")

	written, _, err = d.step(t.Context(), newNode(map[string]string{api.DesiredConfigAnnotation: ""}))
	require.NoError(t, err)
	assert.Equal(t, api.NodeDone, written.Annotations[api.NodeStateAnnotation])
	assert.Empty(t, init.calls)
}

func TestInitSystemWithoutAnAnswerDegradesTheNode(t *testing.T) {
	s, root, name := machineWith(t, 1)
	d := process(t, s, root, &initSystem{err: errors.New("connection refused")})
	written, after, err := d.step(t.Context(), newNode(map[string]string{api.DesiredConfigAnnotation: name}))
	require.NoError(t, err)
	assert.Equal(t, requestRetry.Max, after)
	assert.Equal(t, "connection refused", written.Annotations[api.NodeReasonAnnotation])
	assert.NoFileExists(t, root+"/etc/motd")
}

func TestUnitThatCannotBeEnabledDegradesANodeWithoutAConfig(t *testing.T) {
	s, root, _ := machineWith(t, 1)
	s.spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"systemd":{"units":[{"name":"a@.service","enabled":true,"contents":"[Install]\nWantedBy=a.target"}]}}`)
	mc, err := config.Render("worker", []*mcfgv1.MachineConfig{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: s.spec}}, "")
	require.NoError(t, err)
	s.spec = mc.Spec
	d := process(t, s, root, &initSystem{})
	written, after, err := d.step(t.Context(), newNode(map[string]string{api.DesiredConfigAnnotation: mc.Name}))
	require.NoError(t, err)
	assert.Equal(t, requestRetry.Max, after)
	assert.Equal(t, api.NodeDegraded, written.Annotations[api.NodeStateAnnotation])
	assert.Contains(t, written.Annotations[api.NodeReasonAnnotation], "finding unit a@.service: a template without DefaultInstance cannot be enabled")
	assert.Empty(t, written.Annotations[api.DesiredDrainAnnotation])
}

func TestOnlyAnotherTargetFollowsARollBack(t *testing.T) {
	s, root, name := machineWith(t, 1)
	init := &initSystem{}
	d := process(t, s, root, init)
	drained := newNode(map[string]string{
		api.DesiredConfigAnnotation: name, api.DesiredDrainAnnotation: "drain-" + name, api.AppliedDrainAnnotation: "drain-" + name,
	})
	_, _, err := d.step(t.Context(), drained)
	require.ErrorIs(t, err, machine.ErrRebooting)
	change, _, err := d.host.Pending()
	require.NoError(t, err)
	require.NoError(t, d.host.RollBack(change, "a check failed: kubelet")) // before the reboot, so none follows

	n := drained
	for written := n; written != nil; {
		n = written
		var after time.Duration
		written, after, err = d.step(t.Context(), n)
		require.NoError(t, err)
		assert.Zero(t, after, "no attempt follows by itself")
	}
	assert.Equal(t, api.NodeDegraded, n.Annotations[api.NodeStateAnnotation])
	assert.Equal(t, "the node returned to its former config: a check failed: kubelet. Change or delete the MachineConfig that causes this", n.Annotations[api.NodeReasonAnnotation])
	assert.Equal(t, "uncordon-", n.Annotations[api.DesiredDrainAnnotation])
	assert.NoFileExists(t, root+"/etc/motd")

	n.Annotations[api.DesiredConfigAnnotation] = "" // the MachineConfig is deleted
	n.Annotations[api.AppliedDrainAnnotation] = "uncordon-"
	written, _, err := d.step(t.Context(), n)
	require.NoError(t, err)
	assert.Equal(t, api.NodeDone, written.Annotations[api.NodeStateAnnotation])
	init.calls = nil
	_, _, err = d.step(t.Context(), drained)
	require.ErrorIs(t, err, machine.ErrRebooting)
	assert.Equal(t, []string{"reboot"}, init.calls, "the same config is a new target now")
}

func TestHostWithoutABackEndStagesNoKernelArguments(t *testing.T) {
	s, root, _ := machineWith(t, 1)
	s.spec.KernelArguments = []string{"quiet"}
	mc, err := config.Render("worker", []*mcfgv1.MachineConfig{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: s.spec}}, "")
	require.NoError(t, err)
	s.spec = mc.Spec
	const want = "unsupported: this node cannot change kernel arguments: remove that from the MachineConfigs of its pool, or move the node to another pool"
	for _, isStaged := range []bool{false, true} { // an earlier daemon may have staged it
		d := process(t, s, root, &initSystem{})
		if isStaged {
			content, err := config.Decode(mc)
			require.NoError(t, err)
			require.NoError(t, d.host.Stage(mc.Name, content))
		}
		after, err := d.stage(t.Context(), &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.StageAnnotation: mc.Name}}})
		require.NoError(t, err)
		assert.Equal(t, stageRetry, after)
		assert.Equal(t, want, d.staging.failure)

		// A node that has the target already reports the same, without a drain.
		written, _, err := d.step(t.Context(), newNode(map[string]string{api.DesiredConfigAnnotation: mc.Name}))
		require.NoError(t, err)
		assert.Equal(t, api.NodeUnreconcilable, written.Annotations[api.NodeStateAnnotation])
		assert.Equal(t, want, written.Annotations[api.NodeReasonAnnotation])
		assert.Empty(t, written.Annotations[api.DesiredDrainAnnotation])
		assert.NoFileExists(t, root+"/etc/motd")
	}
}

// TestNewTargetDuringTheRebootNeedsOneMoreReboot changes the target before and after the reboot, and after one that leaves another file.
func TestNewTargetDuringTheRebootNeedsOneMoreReboot(t *testing.T) {
	for _, tt := range []struct {
		name      string
		isBooted  bool
		isChanged bool
		current   bool
		reboots   int
	}{
		{"before the reboot", false, false, false, 2},
		{"after the reboot", true, false, true, 2},
		{"after the reboot, with a changed file", true, true, false, 2}, // the second one is that of the undo
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, root, first := machineWith(t, 1)
			init := &initSystem{}
			drained := func(name string) *corev1.Node {
				return newNode(map[string]string{
					api.DesiredConfigAnnotation: name, api.DesiredDrainAnnotation: "drain-" + name, api.AppliedDrainAnnotation: "drain-" + name,
				})
			}
			_, _, err := process(t, s, root, init).step(t.Context(), drained(first))
			require.ErrorIs(t, err, machine.ErrRebooting)
			if tt.isBooted {
				booted(t, root, 2)
			}
			if tt.isChanged {
				require.NoError(t, os.WriteFile(root+"/etc/motd", nil, 0o600))
			}

			s.spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","contents":{"source":"data:,newer"}}]}}`)
			mc, err := config.Render("worker", []*mcfgv1.MachineConfig{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: s.spec}}, "")
			require.NoError(t, err)
			s.spec = mc.Spec
			d := process(t, s, root, init)
			_, _, err = d.step(t.Context(), drained(mc.Name))
			require.ErrorIs(t, err, machine.ErrRebooting)
			current, err := d.host.Current()
			require.NoError(t, err)
			assert.Equal(t, tt.current, current.Name == first)
			assert.Len(t, init.calls, tt.reboots)
		})
	}
}
