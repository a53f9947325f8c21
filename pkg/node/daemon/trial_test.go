//go:build linux

package daemon

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/guard"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/machine"
	played "github.com/cluster-version/cvo/test/machine"
)

// guarded returns the daemon of a new process on a machine with a guard.
func guarded(t *testing.T, s *server, m *played.Machine) *Daemon {
	d := process(t, s, m)
	d.machine = machine.New(d.host, machine.Options{Init: m, Guard: func(context.Context) ([]string, error) { return []string{"/guard"}, nil }})
	d.policies = restartOf("motd.service")
	return d
}

// runGuard runs the guard as another process for a time, or until no change is pending.
func runGuard(t *testing.T, m *played.Machine, within time.Duration) {
	t.Helper()
	h, err := host.Open(m.Root, host.Options{})
	require.NoError(t, err)
	defer h.Close()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		ctx, end := context.WithTimeout(t.Context(), within)
		defer end()
		uptime := func() time.Duration { return time.Since(begun) }
		require.NoError(t, guard.New(h, machine.New(h, machine.Options{Init: m}), clock.RealClock{}, uptime, guard.Options{}).Run(ctx))
	})
}

// TestChangeWithoutARebootIsConfirmedAfterItsTrial restarts the daemon during the trial, and has an API server that does not answer at its end.
func TestChangeWithoutARebootIsConfirmedAfterItsTrial(t *testing.T) {
	s, m, name := machineWith(t)
	n := newNode(map[string]string{api.DesiredConfigAnnotation: name})
	step := func() (written *corev1.Node, current string, err error) {
		t.Helper()
		d := guarded(t, s, m)
		written, after, err := d.step(t.Context(), n)
		if err == nil && written == nil {
			assert.Equal(t, trialInterval, after)
		}
		state, stateErr := d.host.State()
		require.NoError(t, stateErr)
		return written, state.Current.Name, err
	}
	for range 3 {
		written, current, err := step()
		require.NoError(t, err)
		assert.Nil(t, written)
		assert.Empty(t, current)
	}
	restarts := []string{"reload files", "restart " + config.GuardUnit, "restart motd.service"}
	assert.Equal(t, restarts, m.Calls, "a restarted daemon does not repeat the actions")

	runGuard(t, m, 59*time.Second)
	_, current, err := step()
	require.NoError(t, err)
	assert.Empty(t, current)

	runGuard(t, m, 2*time.Minute)
	s.err = errors.New("connection refused")
	_, current, err = step()
	require.ErrorIs(t, err, s.err)
	assert.Empty(t, current, "the node does not reach the API server")
	s.err = nil
	written, current, err := step()
	require.NoError(t, err)
	assert.Equal(t, name, current)
	assert.Equal(t, api.NodeDone, written.Annotations[api.NodeStateAnnotation])
	assert.Equal(t, restarts, m.Calls)
}

// TestGuardThatDoesNotJudgeAChangeIsReported has a guard that runs late, and another change after that.
func TestGuardThatDoesNotJudgeAChangeIsReported(t *testing.T) {
	s, m, name := machineWith(t)
	clk := clocktesting.NewFakeClock(time.Now())
	d := guarded(t, s, m)
	d.clock = clk
	n := newNode(map[string]string{api.DesiredConfigAnnotation: name})
	step := func() (isWritten bool) {
		t.Helper()
		written, _, err := d.step(t.Context(), n)
		require.NoError(t, err)
		if written != nil {
			n = written
		}
		return written != nil
	}
	assert.False(t, step(), "the trial begins")
	assert.False(t, step())
	clk.Step(trialLimit - time.Second)
	assert.False(t, step())
	clk.Step(time.Second)
	assert.True(t, step())
	assert.Equal(t, api.NodeDegraded, n.Annotations[api.NodeStateAnnotation])
	assert.Equal(t, "cvo-node-guard.service has neither accepted nor undone MachineConfig "+name+" for 35m0s. Run 'systemctl status cvo-node-guard.service' "+
		"on node n, and start the service if it does not run", n.Annotations[api.NodeReasonAnnotation])
	clk.Step(trialInterval)
	assert.False(t, step())

	runGuard(t, m, 2*time.Minute)
	assert.True(t, step())
	assert.Equal(t, api.NodeDone, n.Annotations[api.NodeStateAnnotation])
	assert.Empty(t, n.Annotations[api.NodeReasonAnnotation])

	s.spec.Config.Raw = bytes.Replace(s.spec.Config.Raw, []byte("hello"), []byte("other"), 1)
	mc, err := config.Render("worker", []*mcfgv1.MachineConfig{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: s.spec}}, "")
	require.NoError(t, err)
	s.spec, n.Annotations[api.DesiredConfigAnnotation] = mc.Spec, mc.Name
	assert.False(t, step())
	assert.False(t, step(), "the trial of another change begins")
	clk.Step(trialLimit)
	assert.True(t, step())
}

// TestChangeThatBreaksAServiceIsRolledBack has a service that fails after its restart has succeeded, because of its unit or of another file.
func TestChangeThatBreaksAServiceIsRolledBack(t *testing.T) {
	restart := restartOf("kubelet.service").Files[0].Actions
	for path, tt := range map[string]struct {
		config   string
		policies operatorv1.NodeDisruptionPolicyConfig
	}{
		"/etc/systemd/system/kubelet.service": {
			`"systemd":{"units":[{"name":"kubelet.service","contents":"broken"}]}`,
			operatorv1.NodeDisruptionPolicyConfig{Units: []operatorv1.NodeDisruptionPolicySpecUnit{{Name: "kubelet.service", Actions: restart}}},
		},
		"/etc/kubelet": {
			`"storage":{"files":[{"path":"/etc/kubelet","overwrite":true,"contents":{"source":"data:,broken"}}]}`,
			operatorv1.NodeDisruptionPolicyConfig{Files: []operatorv1.NodeDisruptionPolicySpecFile{{Path: "/etc/kubelet", Actions: restart}}},
		},
	} {
		t.Run(path, func(t *testing.T) {
			s, m, _ := machineWith(t)
			s.spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},` + tt.config + `}`)
			mc, err := config.Render("worker", []*mcfgv1.MachineConfig{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: s.spec}}, "")
			require.NoError(t, err)
			s.spec = mc.Spec
			m.Write(path, "sound")
			isBroken := false
			m.During = func(call string) error {
				if call == "restart kubelet.service" {
					data, err := os.ReadFile(m.Root + path)
					require.NoError(t, err)
					isBroken = string(data) == "broken"
				}
				return nil
			}
			m.Unit = func(unit string) (exists, hasFailed bool, err error) {
				return true, unit == "kubelet.service" && isBroken, nil
			}
			n := newNode(map[string]string{api.DesiredConfigAnnotation: mc.Name})
			d := guarded(t, s, m)
			d.policies = tt.policies
			_, _, err = d.step(t.Context(), n)
			require.NoError(t, err)
			state, err := d.host.State()
			require.NoError(t, err)
			assert.Empty(t, state.Current)
			assert.FileExists(t, m.Root+"/etc/systemd/system/sysinit.target.wants/"+config.GuardUnit)
			assert.True(t, isBroken)

			runGuard(t, m, time.Hour)
			assert.False(t, isBroken)
			n, _, err = guarded(t, s, m).step(t.Context(), n)
			require.NoError(t, err)
			assert.Equal(t, api.NodeDegraded, n.Annotations[api.NodeStateAnnotation])
			assert.Contains(t, n.Annotations[api.NodeReasonAnnotation], "the node returned to its former config: a check failed for 10m0s: unit kubelet.service has failed")
		})
	}
}
