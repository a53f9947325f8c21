//go:build linux

package daemon

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/disruption"
	"github.com/cluster-version/cvo/pkg/node/machine"
	"github.com/cluster-version/cvo/pkg/node/progress"
	played "github.com/cluster-version/cvo/test/machine"
)

// TestDriftDegradesTheNode changes a file of the current config and restores it, each time without a request to the daemon.
func TestDriftDegradesTheNode(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(file string) error
		want   string
	}{
		"edited":   {func(file string) error { return os.WriteFile(file, []byte("bye"), 0o600) }, "different data"},
		"removed":  {os.Remove, "missing"},
		"chmod":    {func(file string) error { return os.Chmod(file, 0o600) }, "mode 0600 instead of 0644"},
		"renamed":  {func(file string) error { return os.Rename(file, file+".old") }, "missing"},
		"replaced": {func(file string) error { return os.Rename(file+".new", file) }, "different data"},
		"touched":  {func(file string) error { return os.Chtimes(file, time.Now(), time.Now()) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, m, config := currentMachine(t)
			d := process(t, s, m)
			step := func(n *corev1.Node) *corev1.Node {
				t.Helper()
				written, after, err := d.step(t.Context(), n)
				require.NoError(t, err)
				assert.Zero(t, after)
				if written != nil {
					return written
				}
				return n
			}
			n := step(newNode(map[string]string{api.DesiredConfigAnnotation: config}))
			assert.Equal(t, api.NodeDone, n.Annotations[api.NodeStateAnnotation])

			file := m.Root + "/etc/motd"
			require.NoError(t, os.WriteFile(file+".new", nil, 0o644))
			require.NoError(t, os.Chmod(file+".new", 0o644))
			require.NoError(t, tt.change(file))
			awaitChange(t, d)
			n = step(n)
			if tt.want == "" {
				assert.Equal(t, api.NodeDone, n.Annotations[api.NodeStateAnnotation])
				return
			}
			want := "the host differs from MachineConfig " + config + ": /etc/motd: " + tt.want + ". Restore the content of that MachineConfig, or run 'cvo nodes retry n'"
			assert.Equal(t, api.NodeDegraded, n.Annotations[api.NodeStateAnnotation])
			assert.Equal(t, want, n.Annotations[api.NodeReasonAnnotation])
			p, err := d.progress(n)
			require.NoError(t, err)
			assert.Equal(t, progress.Progress{Step: progress.Updated, Current: config, Desired: config, Failure: want}, p)

			// A step without a change does not read the files again, and a new process finds the difference.
			s.written = false
			watch := d.drift.changed
			step(n)
			assert.Equal(t, watch, d.drift.changed)
			assert.False(t, s.written)
			d.drift.unwatch()
			d = process(t, s, m)
			step(n)
			assert.False(t, s.written)

			require.NoError(t, os.RemoveAll(file))
			require.NoError(t, restore(file))
			awaitChange(t, d)
			n = step(n)
			assert.Equal(t, api.NodeDone, n.Annotations[api.NodeStateAnnotation])
			assert.Empty(t, n.Annotations[api.NodeReasonAnnotation])
			d.drift.unwatch()
		})
	}
}

// TestRetryRestoresTheContent has a node whose file differs, and then a service of the config.
func TestRetryRestoresTheContent(t *testing.T) {
	s, m, config := currentMachine(t)
	d := process(t, s, m)
	n := newNode(map[string]string{
		api.DesiredConfigAnnotation: config, api.DesiredDrainAnnotation: "uncordon-" + config, api.AppliedDrainAnnotation: "uncordon-" + config,
	})
	step := func() error {
		t.Helper()
		written, _, err := d.step(t.Context(), n)
		if written != nil {
			n = written
		}
		return err
	}
	// A request without a difference is followed at once, so it has no effect later.
	n.Annotations[api.NodeRetryAnnotation] = config + " 1"
	require.NoError(t, step())
	assert.Equal(t, api.NodeDone, n.Annotations[api.NodeStateAnnotation])
	file := m.Root + "/etc/motd"
	require.NoError(t, os.WriteFile(file, []byte("bye"), 0o600))
	awaitChange(t, d)
	for range 2 {
		require.NoError(t, step())
		require.Equal(t, api.NodeDegraded, n.Annotations[api.NodeStateAnnotation])
	}

	// Without a policy for the file, the node is drained and reboots.
	n.Annotations[api.NodeRetryAnnotation] = config + " 2"
	require.NoError(t, step())
	assert.Equal(t, "drain-"+config, n.Annotations[api.DesiredDrainAnnotation])
	assert.Equal(t, api.NodeWorking, n.Annotations[api.NodeStateAnnotation])
	p, err := d.progress(n)
	require.NoError(t, err)
	assert.Equal(t, progress.Draining, p.Step)
	d = process(t, s, m) // a restarted daemon continues
	require.NoError(t, step())
	assert.Empty(t, m.Calls)
	n.Annotations[api.AppliedDrainAnnotation] = n.Annotations[api.DesiredDrainAnnotation]
	require.ErrorIs(t, step(), machine.ErrRebooting)
	m.Boot()
	require.NoError(t, step())
	n.Annotations[api.AppliedDrainAnnotation] = n.Annotations[api.DesiredDrainAnnotation]
	require.NoError(t, step())
	assert.Equal(t, api.NodeDone, n.Annotations[api.NodeStateAnnotation])
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(data))
	assert.Equal(t, []string{"reboot"}, m.Calls)

	// A policy for the file spares that.
	d.policies.Files = []operatorv1.NodeDisruptionPolicySpecFile{{Path: "/etc/motd", Actions: []operatorv1.NodeDisruptionPolicySpecAction{{Type: operatorv1.NoneSpecAction}}}}
	require.NoError(t, os.Remove(file))
	awaitChange(t, d)
	n.Annotations[api.NodeRetryAnnotation] = config + " 3"
	require.NoError(t, step())
	assert.Equal(t, api.NodeDone, n.Annotations[api.NodeStateAnnotation])
	assert.FileExists(t, file)
	assert.Len(t, m.Calls, 1)
	assert.Empty(t, d.attempts.Config)
	d.drift.unwatch()
}

// TestContentThatCannotBeRestoredIsTriedAgain has a folder in the place of a file.
func TestContentThatCannotBeRestoredIsTriedAgain(t *testing.T) {
	s, m, config := currentMachine(t)
	d := process(t, s, m)
	d.policies.Files = []operatorv1.NodeDisruptionPolicySpecFile{{Path: "/etc/motd", Actions: []operatorv1.NodeDisruptionPolicySpecAction{{Type: operatorv1.NoneSpecAction}}}}
	clk := clocktesting.NewFakeClock(time.Now())
	d.clock = clk
	file := m.Root + "/etc/motd"
	require.NoError(t, os.Remove(file))
	require.NoError(t, os.MkdirAll(file+"/x", 0o755))
	n := newNode(map[string]string{api.DesiredConfigAnnotation: config, api.NodeRetryAnnotation: config + " 1"})
	n, after, err := d.step(t.Context(), n)
	require.NoError(t, err)
	assert.Equal(t, time.Nanosecond, after)
	assert.Equal(t, api.NodeDegraded, n.Annotations[api.NodeStateAnnotation])
	assert.Contains(t, n.Annotations[api.NodeReasonAnnotation], "/etc/motd")
	assert.Equal(t, 1, d.attempts.Times)

	require.NoError(t, os.RemoveAll(file))
	require.NoError(t, restore(file))
	<-d.drift.changed
	d.drift.expire(clk.Now())
	for n.Annotations[api.NodeStateAnnotation] != api.NodeDone {
		written, after, err := d.step(t.Context(), n)
		require.NoError(t, err)
		if written != nil {
			n = written
		}
		require.LessOrEqual(t, after, time.Second, "it does not wait for the next attempt")
		n.Annotations[api.AppliedDrainAnnotation] = n.Annotations[api.DesiredDrainAnnotation]
		clk.Step(after)
	}
	assert.Equal(t, api.NodeDone, n.Annotations[api.NodeStateAnnotation])
	assert.Empty(t, d.attempts.Config)
	d.drift.unwatch()
}

// TestPermittedDaemonRestoresTheContent removes a file again and again. The daemon restores it without a request once a policy spares the node the reboot.
func TestPermittedDaemonRestoresTheContent(t *testing.T) {
	s, m, config := currentMachine(t)
	d := process(t, s, m)
	clk := clocktesting.NewFakeClock(time.Now())
	d.clock, d.mayRestore = clk, true
	n := newNode(map[string]string{api.DesiredConfigAnnotation: config})
	step := func() (after time.Duration) {
		t.Helper()
		written, after, err := d.step(t.Context(), n)
		require.NoError(t, err)
		if written != nil {
			n = written
		}
		return after
	}
	step()
	file := m.Root + "/etc/motd"
	remove := func() (delay time.Duration) {
		t.Helper()
		require.NoError(t, os.Remove(file))
		<-d.drift.changed
		d.drift.expire(clk.Now())
		delay = step()
		clk.Step(delay)
		step()
		require.Equal(t, api.NodeDegraded, n.Annotations[api.NodeStateAnnotation], "the difference is reported first")
		require.NoFileExists(t, file)
		return delay
	}
	remove()
	step()
	assert.NoFileExists(t, file, "it would need a reboot")

	d.policies.Files = []operatorv1.NodeDisruptionPolicySpecFile{{Path: "/etc/motd", Actions: []operatorv1.NodeDisruptionPolicySpecAction{
		{Type: operatorv1.RestartSpecAction, Restart: &operatorv1.RestartService{ServiceName: "crio.service"}},
	}}}
	answers := d.machine
	d.machine = unanswered{answers}
	assert.Equal(t, requestRetry.Max, step(), "it asks the init system again")
	assert.NoFileExists(t, file)
	d.machine = answers

	d.policies.Files = []operatorv1.NodeDisruptionPolicySpecFile{{Path: "/etc/motd", Actions: []operatorv1.NodeDisruptionPolicySpecAction{{Type: operatorv1.NoneSpecAction}}}}
	d.mayRestore = false
	step()
	assert.NoFileExists(t, file)
	d.mayRestore = true
	step()
	assert.FileExists(t, file)
	assert.Equal(t, api.NodeDone, n.Annotations[api.NodeStateAnnotation])
	assert.Empty(t, d.attempts.Config)
	assert.Empty(t, m.Calls)

	var delays []time.Duration
	for range 3 {
		delays = append(delays, remove())
		step()
		require.FileExists(t, file)
	}
	assert.Equal(t, []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second}, delays, "two writers do not fight at full speed")
	d.drift.unwatch()
}

// TestRestoresThatDrainBecomeRare has a policy that drains the node, and a program that removes the file as soon as the node serves again.
func TestRestoresThatDrainBecomeRare(t *testing.T) {
	s, m, config := currentMachine(t)
	d := process(t, s, m)
	clk := clocktesting.NewFakeClock(time.Now())
	d.clock, d.mayRestore = clk, true
	d.policies.Files = []operatorv1.NodeDisruptionPolicySpecFile{{Path: "/etc/motd", Actions: []operatorv1.NodeDisruptionPolicySpecAction{{Type: operatorv1.DrainSpecAction}}}}
	n := newNode(map[string]string{api.DesiredConfigAnnotation: config})
	// follow makes steps until the Node has a state and no step follows by itself. It returns the time until a drain.
	follow := func(state string) (untilDrain time.Duration) {
		t.Helper()
		for begun := clk.Now(); ; {
			onHost, err := d.host.State()
			require.NoError(t, err)
			_, _, err = d.ownRestore(t.Context(), n, onHost) // a question counts no drain
			require.NoError(t, err)
			written, after, err := d.step(t.Context(), n)
			require.NoError(t, err)
			if written != nil {
				n = written
			}
			if request := n.Annotations[api.DesiredDrainAnnotation]; request != n.Annotations[api.AppliedDrainAnnotation] {
				if request == "drain-"+config {
					untilDrain = clk.Since(begun)
				}
				n.Annotations[api.AppliedDrainAnnotation] = request
			} else if n.Annotations[api.NodeStateAnnotation] == state && written == nil {
				return untilDrain
			}
			clk.Step(after)
		}
	}
	follow(api.NodeDone)
	serve := func() (untilDrain time.Duration) {
		t.Helper()
		require.NoError(t, os.Remove(m.Root+"/etc/motd"))
		<-d.drift.changed
		d.drift.expire(clk.Now())
		d.drift.due = clk.Now()
		untilDrain = follow(api.NodeDone)
		require.FileExists(t, m.Root+"/etc/motd")
		return untilDrain
	}
	var waits []time.Duration
	for range 9 {
		waits = append(waits, serve())
	}
	const m1 = time.Minute
	assert.Equal(t, []time.Duration{0, m1, 2 * m1, 4 * m1, 8 * m1, 16 * m1, 32 * m1, 60 * m1, 60 * m1}, waits)
	clk.Step(59 * m1)
	assert.Equal(t, m1, serve(), "the other program has only become slower")
	clk.Step(2 * changeRetry.Max)
	assert.Zero(t, serve())
	assert.Equal(t, m1, serve())
	d.drift.unwatch()
}

// unanswered is a machine whose init system does not answer.
type unanswered struct{ Machine }

func (unanswered) Accepts(context.Context, disruption.Action) (bool, error) {
	return false, errors.New("no answer in time")
}

// restore writes the content of the config, whatever the umask is.
func restore(file string) error {
	if err := os.WriteFile(file, []byte("hello"), 0o644); err != nil {
		return err
	}
	return os.Chmod(file, 0o644)
}

// awaitChange waits for the event of a change, and makes the next comparison due.
func awaitChange(t *testing.T, d *Daemon) {
	t.Helper()
	require.NotNil(t, d.drift.changed)
	<-d.drift.changed
	d.drift.unwatch()
}

// TestChangesSoonAfterAComparisonDelayTheNext has a program that writes a file all the time, and stops.
func TestChangesSoonAfterAComparisonDelayTheNext(t *testing.T) {
	s, m, config := currentMachine(t)
	d := process(t, s, m)
	clk := clocktesting.NewFakeClock(time.Now())
	d.clock = clk
	n := newNode(map[string]string{api.DesiredConfigAnnotation: config})
	var waits []time.Duration
	for range 9 {
		written, after, err := d.step(t.Context(), n)
		require.NoError(t, err)
		require.Zero(t, after)
		if written != nil {
			n = written
		}
		require.NoError(t, restore(m.Root+"/etc/motd"))
		<-d.drift.changed
		d.drift.expire(clk.Now())
		_, after, err = d.step(t.Context(), n)
		require.NoError(t, err)
		assert.Nil(t, d.drift.changed, "it compares later")
		waits = append(waits, after)
		clk.Step(after)
	}
	assert.Equal(t, []time.Duration{1 * time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute, time.Minute}, waits)
	_, _, err := d.step(t.Context(), n)
	require.NoError(t, err)
	clk.Step(driftInterval)
	d.drift.expire(clk.Now())
	_, after, err := d.step(t.Context(), n)
	require.NoError(t, err)
	assert.Equal(t, time.Second, after)
}

// TestNewTargetEndsARepair changes the target when the node is drained to restore a file.
func TestNewTargetEndsARepair(t *testing.T) {
	s, m, former := currentMachine(t)
	d := process(t, s, m)
	require.NoError(t, os.Remove(m.Root+"/etc/motd"))
	n := newNode(map[string]string{api.DesiredConfigAnnotation: former, api.NodeRetryAnnotation: former + " 1"})
	step := func() error {
		t.Helper()
		written, _, err := d.step(t.Context(), n)
		if written != nil {
			n = written
		}
		return err
	}
	require.NoError(t, step())
	require.Equal(t, "drain-"+former, n.Annotations[api.DesiredDrainAnnotation])
	n.Annotations[api.AppliedDrainAnnotation] = "drain-" + former

	s.spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/issue","contents":{"source":"data:,new"}}]}}`)
	mc, err := config.Render("worker", []*mcfgv1.MachineConfig{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: s.spec}}, "")
	require.NoError(t, err)
	s.spec = mc.Spec
	n.Annotations[api.DesiredConfigAnnotation] = mc.Name
	require.NoError(t, step())
	assert.Equal(t, api.NodeDegraded, n.Annotations[api.NodeStateAnnotation])
	assert.Contains(t, n.Annotations[api.NodeReasonAnnotation], "/etc/motd: missing")
	require.NoError(t, step())
	assert.Equal(t, "uncordon-"+former, n.Annotations[api.DesiredDrainAnnotation], "it must not stay cordoned")
	n.Annotations[api.AppliedDrainAnnotation] = n.Annotations[api.DesiredDrainAnnotation]

	// At the request of an administrator, the update replaces what differs.
	n.Annotations[api.NodeRetryAnnotation] = mc.Name + " 2"
	require.NoError(t, step())
	require.Equal(t, "drain-"+mc.Name, n.Annotations[api.DesiredDrainAnnotation])
	n.Annotations[api.AppliedDrainAnnotation] = n.Annotations[api.DesiredDrainAnnotation]
	require.ErrorIs(t, step(), machine.ErrRebooting)
	m.Boot()
	require.NoError(t, step())
	assert.FileExists(t, m.Root+"/etc/issue")
	state, err := d.host.State()
	require.NoError(t, err)
	assert.Equal(t, mc.Name, state.Current.Name)
}

// TestNodeRecoversWhenTheFileIsRestoredAfterARollback restores the file by hand after the guard has undone the repair.
func TestNodeRecoversWhenTheFileIsRestoredAfterARollback(t *testing.T) {
	s, m, config := currentMachine(t)
	d := process(t, s, m)
	require.NoError(t, os.Remove(m.Root+"/etc/motd"))
	n := newNode(map[string]string{
		api.DesiredConfigAnnotation: config, api.NodeRetryAnnotation: config + " 1",
		api.DesiredDrainAnnotation: "drain-" + config, api.AppliedDrainAnnotation: "drain-" + config,
	})
	_, _, err := d.step(t.Context(), n)
	require.ErrorIs(t, err, machine.ErrRebooting)
	change, _, err := d.host.Pending()
	require.NoError(t, err)
	require.NoError(t, d.host.RollBack(change, "a check failed: kubelet"))
	n, _, err = d.step(t.Context(), n)
	require.NoError(t, err)
	assert.Contains(t, n.Annotations[api.NodeReasonAnnotation], "a check failed: kubelet")
	assert.Equal(t, []string{"reboot"}, m.Calls)

	require.NoError(t, restore(m.Root+"/etc/motd"))
	d.drift.unwatch()
	for range 2 {
		written, _, err := d.step(t.Context(), n)
		require.NoError(t, err)
		if written != nil {
			n = written
		}
		n.Annotations[api.AppliedDrainAnnotation] = n.Annotations[api.DesiredDrainAnnotation]
	}
	assert.Equal(t, api.NodeDone, n.Annotations[api.NodeStateAnnotation])
	d.drift.unwatch()
}

// currentMachine is machineWith, for a machine that has the config.
func currentMachine(t *testing.T) (s *server, m *played.Machine, name string) {
	s, m, name = machineWith(t)
	content, err := config.Decode(&mcfgv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: s.spec})
	require.NoError(t, err)
	h := process(t, s, m).host
	require.NoError(t, h.Begin(name, content))
	require.NoError(t, h.Resume())
	require.NoError(t, h.Confirm(name))
	return s, m, name
}

func TestHostThatCannotBeComparedIsComparedAgain(t *testing.T) {
	s, m, config := currentMachine(t)
	d := process(t, s, m)
	state, err := d.host.State()
	require.NoError(t, err)
	clk := clocktesting.NewFakeClock(time.Now())
	d.clock = clk
	blob := m.Root + "/var/lib/cvo-node/content/" + state.Current.Digest
	require.NoError(t, os.Rename(blob, blob+".moved"))
	n, after, err := d.step(t.Context(), newNode(map[string]string{api.DesiredConfigAnnotation: config}))
	require.NoError(t, err)
	assert.Equal(t, driftInterval, after)
	assert.Equal(t, api.NodeDegraded, n.Annotations[api.NodeStateAnnotation])
	assert.Contains(t, n.Annotations[api.NodeReasonAnnotation], "no such file")

	require.NoError(t, os.Rename(blob+".moved", blob))
	clk.Step(10 * time.Second)
	_, after, err = d.step(t.Context(), n)
	require.NoError(t, err)
	assert.Equal(t, driftInterval-10*time.Second, after, "steps for other reasons neither compare nor prolong the wait")
	clk.Step(after)
	n, after, err = d.step(t.Context(), n)
	require.NoError(t, err)
	assert.Zero(t, after)
	assert.Equal(t, api.NodeDone, n.Annotations[api.NodeStateAnnotation])
	d.drift.unwatch()
}
