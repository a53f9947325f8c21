//go:build linux

package daemon

import (
	"context"
	"crypto/rand"
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
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/disruption"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/machine"
	"github.com/cluster-version/cvo/pkg/node/progress"
	played "github.com/cluster-version/cvo/test/machine"
)

// machineWith returns the server and the machine of a node that must change /etc/motd, and the name of the config.
func machineWith(t *testing.T) (s *server, m *played.Machine, name string) {
	s = &server{}
	s.spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","contents":{"source":"data:,hello"}}]}}`)
	mc, err := config.Render("worker", []*mcfgv1.MachineConfig{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: s.spec}}, "")
	require.NoError(t, err)
	s.spec = mc.Spec
	return s, played.Play(t, t.TempDir()), mc.Name
}

// process returns the daemon of a new process.
func process(t *testing.T, s *server, m *played.Machine) *Daemon {
	h, err := host.Open(m.Root, host.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, h.Close()) })
	d := New(s, h, machine.New(h, machine.Options{Init: m}), clock.RealClock{}, "n", "1.0.0")
	d.recall(t.Context())
	return d
}

func TestNodeBecomesCurrentAfterItsReboot(t *testing.T) {
	s, m, name := machineWith(t)
	drained := newNode(map[string]string{
		api.DesiredConfigAnnotation: name, api.DesiredDrainAnnotation: "drain-" + name, api.AppliedDrainAnnotation: "drain-" + name,
	})
	for range 2 { // the daemon may be restarted before the reboot
		d := process(t, s, m)
		_, after, err := d.step(t.Context(), drained)
		require.ErrorIs(t, err, machine.ErrRebooting)
		p, err := d.progress(drained)
		require.NoError(t, err)
		assert.Equal(t, progress.Rebooting, p.Step)
		assert.Equal(t, requestRetry.Max, after)
		state, err := d.host.State()
		require.NoError(t, err)
		assert.Empty(t, state.Current)
	}
	assert.Equal(t, []string{"reboot", "reboot"}, m.Calls)
	assert.False(t, s.written)

	m.Boot()
	d := process(t, s, m)
	written, _, err := d.step(t.Context(), drained)
	require.NoError(t, err)
	assert.Equal(t, "uncordon-"+name, written.Annotations[api.DesiredDrainAnnotation])
	state, err := d.host.State()
	require.NoError(t, err)
	assert.Equal(t, name, state.Current.Name)
	assert.Len(t, m.Calls, 2)
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
	s, m, name := machineWith(t)
	d := process(t, s, m)
	d.policies = restartOf("motd.service")
	written, _, err := d.step(t.Context(), newNode(map[string]string{api.DesiredConfigAnnotation: name}))
	require.NoError(t, err)
	assert.Equal(t, api.NodeDone, written.Annotations[api.NodeStateAnnotation])
	assert.Equal(t, name, written.Annotations[api.CurrentConfigAnnotation])
	assert.Empty(t, written.Annotations[api.DesiredDrainAnnotation])
	assert.Equal(t, []string{"restart motd.service"}, m.Calls)
}

// TestChangeWithAnActionThatMustFailDoesNotBegin has an action that would fail in the undo, too. The node returns to its former config without
// one.
func TestChangeWithAnActionThatMustFailDoesNotBegin(t *testing.T) {
	s, m, name := machineWith(t)
	m.Unit = func(unit string) (exists, hasFailed bool, err error) { return unit != "motd.service", false, nil }
	d := process(t, s, m)
	d.policies = restartOf("motd.service")
	written, after, err := d.step(t.Context(), newNode(map[string]string{api.DesiredConfigAnnotation: name}))
	require.NoError(t, err)
	assert.Equal(t, requestRetry.Max, after)
	assert.Equal(t, api.NodeDegraded, written.Annotations[api.NodeStateAnnotation])
	assert.Equal(t, "Restart of unit motd.service would fail on this node: the unit does not exist. Change the node disruption policy",
		written.Annotations[api.NodeReasonAnnotation])
	assert.NoFileExists(t, m.Root+"/etc/motd")

	written, _, err = d.step(t.Context(), newNode(map[string]string{api.DesiredConfigAnnotation: ""}))
	require.NoError(t, err)
	assert.Equal(t, api.NodeDone, written.Annotations[api.NodeStateAnnotation])
	assert.Empty(t, m.Calls)
}

// TestObstacleAfterTheDrainEndsTheCordon has a node that is drained when the obstacle appears. It serves, so it gets its pods back.
func TestObstacleAfterTheDrainEndsTheCordon(t *testing.T) {
	s, m, name := machineWith(t)
	m.Unit = func(unit string) (exists, hasFailed bool, err error) { return unit != "motd.service", false, nil }
	d := process(t, s, m)
	d.policies = restartOf("motd.service")
	n := newNode(map[string]string{
		api.DesiredConfigAnnotation: name, api.DesiredDrainAnnotation: "drain-" + name, api.AppliedDrainAnnotation: "drain-" + name,
	})
	written, _, err := d.step(t.Context(), n)
	require.NoError(t, err)
	assert.Equal(t, api.NodeDegraded, written.Annotations[api.NodeStateAnnotation])
	written, _, err = d.step(t.Context(), written)
	require.NoError(t, err)
	assert.Equal(t, "uncordon-", written.Annotations[api.DesiredDrainAnnotation])
	assert.Empty(t, m.Calls)
}

func TestInitSystemWithoutAnAnswerDegradesTheNode(t *testing.T) {
	s, m, name := machineWith(t)
	m.Unit = func(string) (exists, hasFailed bool, err error) {
		return false, false, errors.New("connection refused")
	}
	d := process(t, s, m)
	written, after, err := d.step(t.Context(), newNode(map[string]string{api.DesiredConfigAnnotation: name}))
	require.NoError(t, err)
	assert.Equal(t, requestRetry.Max, after)
	assert.Equal(t, "connection refused", written.Annotations[api.NodeReasonAnnotation])
	assert.NoFileExists(t, m.Root+"/etc/motd")
}

func TestUnitThatCannotBeEnabledDegradesANodeWithoutAConfig(t *testing.T) {
	s, m, _ := machineWith(t)
	s.spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"systemd":{"units":[{"name":"a@.service","enabled":true,"contents":"[Install]\nWantedBy=a.target"}]}}`)
	mc, err := config.Render("worker", []*mcfgv1.MachineConfig{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: s.spec}}, "")
	require.NoError(t, err)
	s.spec = mc.Spec
	d := process(t, s, m)
	written, after, err := d.step(t.Context(), newNode(map[string]string{api.DesiredConfigAnnotation: mc.Name}))
	require.NoError(t, err)
	assert.Equal(t, requestRetry.Max, after)
	assert.Equal(t, api.NodeDegraded, written.Annotations[api.NodeStateAnnotation])
	assert.Contains(t, written.Annotations[api.NodeReasonAnnotation], "finding unit a@.service: a template without DefaultInstance cannot be enabled")
	assert.Empty(t, written.Annotations[api.DesiredDrainAnnotation])
}

// services starts services of a host, whose program may be impossible to run.
type services struct {
	*played.Machine
	run     func(request string) error
	failure error
}

func (s *services) Run(_ context.Context, _ string, command []string) (started bool, err error) {
	if s.failure != nil {
		return true, s.failure
	}
	return true, s.run(command[len(command)-1])
}

// TestServiceThatCannotRunDegradesTheNode has services that systemd starts but whose program does not run, as on a file system mounted noexec.
func TestServiceThatCannotRunDegradesTheNode(t *testing.T) {
	s, m, name := machineWith(t)
	init := &services{Machine: m, failure: errors.New(`systemd reports the result "failed"`)}
	init.run = func(request string) error {
		h, err := host.Open(m.Root, host.Options{})
		require.NoError(t, err)
		defer h.Close()
		return machine.New(h, machine.Options{Init: init}).Serve(t.Context(), request)
	}
	n := newNode(map[string]string{
		api.DesiredConfigAnnotation: name, api.DesiredDrainAnnotation: "drain-" + name, api.AppliedDrainAnnotation: "drain-" + name,
	})
	step := func() error { // of a new daemon
		d := process(t, s, m)
		d.machine = machine.NewRemote(d.host, init, func() ([]string, error) { return []string{"/cvo-node", "apply"}, nil }, rand.Text)
		written, _, err := d.step(t.Context(), n)
		if written != nil {
			n = written
		}
		return err
	}
	for range 10 {
		if err := step(); err != nil {
			require.ErrorIs(t, err, host.ErrBusy)
		}
	}
	assert.Equal(t, api.NodeDegraded, n.Annotations[api.NodeStateAnnotation])
	assert.Contains(t, n.Annotations[api.NodeReasonAnnotation], `systemd reports the result "failed". To find the cause, run this on the node: journalctl -u cvo-node-apply.service`)

	init.failure = nil
	n.Annotations[api.NodeRetryAnnotation], n.Annotations[api.DesiredDrainAnnotation] = name+" 1", "drain-"+name
	require.ErrorIs(t, step(), machine.ErrRebooting)
	assert.FileExists(t, m.Root+"/etc/motd")
}

func TestOnlyAnotherTargetFollowsARollBack(t *testing.T) {
	s, m, name := machineWith(t)
	d := process(t, s, m)
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
	assert.Equal(t, "the node returned to its former config: a check failed: kubelet. Change or delete the MachineConfig that causes this, "+
		"or repair the node and run 'cvo nodes retry n'", n.Annotations[api.NodeReasonAnnotation])
	assert.Equal(t, "uncordon-", n.Annotations[api.DesiredDrainAnnotation])
	assert.NoFileExists(t, m.Root+"/etc/motd")

	n.Annotations[api.DesiredConfigAnnotation] = "" // the MachineConfig is deleted
	n.Annotations[api.AppliedDrainAnnotation] = "uncordon-"
	written, _, err := d.step(t.Context(), n)
	require.NoError(t, err)
	assert.Equal(t, api.NodeDone, written.Annotations[api.NodeStateAnnotation])
	m.Calls = nil
	_, _, err = d.step(t.Context(), drained)
	require.ErrorIs(t, err, machine.ErrRebooting)
	assert.Equal(t, []string{"reboot"}, m.Calls, "the same config is a new target now")
}

// TestRequestedRetryHasOneAttempt rolls a config back twice, each time before the reboot.
func TestRequestedRetryHasOneAttempt(t *testing.T) {
	s, m, name := machineWith(t)
	d := process(t, s, m)
	n := newNode(map[string]string{
		api.DesiredConfigAnnotation: name, api.DesiredDrainAnnotation: "drain-" + name, api.AppliedDrainAnnotation: "drain-" + name,
	})
	rollBack := func() {
		t.Helper()
		_, _, err := d.step(t.Context(), n)
		require.ErrorIs(t, err, machine.ErrRebooting)
		change, _, err := d.host.Pending()
		require.NoError(t, err)
		require.NoError(t, d.host.RollBack(change, "a check failed: kubelet"))
	}
	rollBack()
	for _, tt := range []struct {
		request string
		isTried bool
	}{{"", false}, {"other 1", false}, {name + "x 1", false}, {name + " 1", true}, {name + " 1", false}, {name + " 2", true}, {name, true}} {
		n.Annotations[api.NodeRetryAnnotation] = tt.request
		d = process(t, s, m)
		if tt.isTried {
			rollBack()
			continue
		}
		written, _, err := d.step(t.Context(), n)
		require.NoError(t, err)
		assert.Equal(t, api.NodeDegraded, written.Annotations[api.NodeStateAnnotation], tt.request)
		assert.NoFileExists(t, m.Root+"/etc/motd")
	}

	// A request is also remembered after another config.
	n.Annotations[api.NodeRetryAnnotation] = name + " 3"
	_, _, err := d.step(t.Context(), n)
	require.ErrorIs(t, err, machine.ErrRebooting)
	m.Boot()
	d = process(t, s, m)
	_, _, err = d.step(t.Context(), n)
	require.NoError(t, err)
	state, err := d.host.State()
	require.NoError(t, err)
	require.Equal(t, name, state.Current.Name)
	assert.False(t, d.isRetryRequested(n, name))
	n.Annotations[api.NodeRetryAnnotation] = name + " 4"
	assert.True(t, d.isRetryRequested(n, name))
}

// TestReasonOfAFailureStaysDuringTheNextAttempt has attempts by themselves, on request, and with another config. The failure counts until it is known how
// the attempt ends.
func TestReasonOfAFailureStaysDuringTheNextAttempt(t *testing.T) {
	s, m, name := machineWith(t)
	for _, tt := range []struct{ failed, request, want string }{
		{name, "", "no space"}, {"", name + " 1", "no space"}, {"other", "", ""}, {"", "", ""},
	} {
		d := process(t, s, m)
		d.attempts.Config = tt.failed
		n := newNode(map[string]string{
			api.DesiredConfigAnnotation: name, api.NodeStateAnnotation: api.NodeDegraded, api.NodeReasonAnnotation: "no space", api.NodeRetryAnnotation: tt.request,
		})
		n.Annotations[api.DaemonReleaseAnnotation] = "1.0.0"
		written, _, err := d.step(t.Context(), n)
		require.NoError(t, err)
		assert.Equal(t, api.NodeWorking, written.Annotations[api.NodeStateAnnotation])
		assert.Equal(t, tt.want, written.Annotations[api.NodeReasonAnnotation], "%v", tt)
	}
}

func TestRequestedRetryEndsTheDelayOfAFailure(t *testing.T) {
	s, m, name := machineWith(t)
	d := process(t, s, m)
	d.fail(t.Context(), name, api.NodeDegraded, "no space")
	n := newNode(map[string]string{
		api.DesiredConfigAnnotation: name, api.DesiredDrainAnnotation: "drain-" + name, api.AppliedDrainAnnotation: "drain-" + name,
	})
	n.Annotations[api.NodeRetryAnnotation] = name + " 1"
	_, _, err := d.step(t.Context(), n)
	require.ErrorIs(t, err, machine.ErrRebooting)
}

// TestRestartedDaemonKnowsTheFailure has a failure that the Node does not show yet.
func TestRestartedDaemonKnowsTheFailure(t *testing.T) {
	s, m, name := machineWith(t)
	d := process(t, s, m)
	require.NoError(t, d.host.MakeFolder())
	clk := clocktesting.NewFakeClock(time.Now())
	d.clock = clk
	d.fail(t.Context(), name, api.NodeDegraded, "no space")
	d = process(t, s, m)
	d.clock = clk
	n := newNode(map[string]string{
		api.DesiredConfigAnnotation: name, api.DesiredDrainAnnotation: "drain-" + name, api.AppliedDrainAnnotation: "drain-" + name,
	})
	n, after, err := d.step(t.Context(), n)
	require.NoError(t, err)
	assert.InDelta(t, changeRetry.After(1), after, float64(time.Second), "the record has full seconds")
	assert.Equal(t, api.NodeDegraded, n.Annotations[api.NodeStateAnnotation])
	assert.Equal(t, "no space", n.Annotations[api.NodeReasonAnnotation])
	n, _, err = d.step(t.Context(), n)
	require.NoError(t, err)
	assert.Contains(t, n.Annotations[api.DesiredDrainAnnotation], "uncordon-")
	assert.Empty(t, m.Calls)

	// The next failure counts on, and a desired config that the host has ends the count.
	d.fail(t.Context(), name, api.NodeDegraded, "no space")
	assert.Equal(t, 2, process(t, s, m).attempts.Times)
	_, _, err = d.step(t.Context(), newNode(map[string]string{api.DesiredConfigAnnotation: ""}))
	require.NoError(t, err)
	assert.Zero(t, process(t, s, m).attempts)
}

func TestDelayGrowsWithTheFailures(t *testing.T) {
	now := time.Now()
	for times, last := range map[int]time.Time{0: now, 1: now, 3: now, 20: now.Add(-30 * time.Minute)} {
		want := map[int]time.Duration{1: time.Minute, 3: 4 * time.Minute, 20: 30 * time.Minute}[times]
		assert.Equal(t, want, attempts{Times: times, Last: last}.wait(now), times)
	}
}

// TestClockThatIsSetBackDoesNotProlongTheDelay has a daemon that restarts after the clock of its host was a year ahead.
func TestClockThatIsSetBackDoesNotProlongTheDelay(t *testing.T) {
	s, m, _ := machineWith(t)
	d := process(t, s, m)
	require.NoError(t, d.host.MakeFolder())
	clk := clocktesting.NewFakeClock(time.Now())
	d.save(t.Context(), attempts{Config: "new", Times: 1, Last: clk.Now().AddDate(1, 0, 0)})
	d.clock = clk
	d.recall(t.Context())
	assert.Equal(t, changeRetry.After(1), d.attempts.wait(clk.Now()))
	clk.Step(changeRetry.After(1))
	assert.Zero(t, d.attempts.wait(clk.Now()))
}

func TestHostWithoutABackEndStagesNoKernelArguments(t *testing.T) {
	s, m, _ := machineWith(t)
	s.spec.KernelArguments = []string{"quiet"}
	mc, err := config.Render("worker", []*mcfgv1.MachineConfig{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: s.spec}}, "")
	require.NoError(t, err)
	s.spec = mc.Spec
	const want = "unsupported: this node cannot change kernel arguments: remove that from the MachineConfigs of its pool, or move the node to another pool, " +
		"or give the node a program /etc/cvo-node/hook for the kernel arguments and the image"
	for _, isStaged := range []bool{false, true} { // an earlier daemon may have staged it
		d := process(t, s, m)
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
		assert.NoFileExists(t, m.Root+"/etc/motd")
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
			s, m, first := machineWith(t)
			drained := func(name string) *corev1.Node {
				return newNode(map[string]string{
					api.DesiredConfigAnnotation: name, api.DesiredDrainAnnotation: "drain-" + name, api.AppliedDrainAnnotation: "drain-" + name,
				})
			}
			_, _, err := process(t, s, m).step(t.Context(), drained(first))
			require.ErrorIs(t, err, machine.ErrRebooting)
			if tt.isBooted {
				m.Boot()
			}
			if tt.isChanged {
				require.NoError(t, os.WriteFile(m.Root+"/etc/motd", nil, 0o600))
			}

			s.spec.Config.Raw = []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","contents":{"source":"data:,newer"}}]}}`)
			mc, err := config.Render("worker", []*mcfgv1.MachineConfig{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: s.spec}}, "")
			require.NoError(t, err)
			s.spec = mc.Spec
			d := process(t, s, m)
			_, _, err = d.step(t.Context(), drained(mc.Name))
			require.ErrorIs(t, err, machine.ErrRebooting)
			state, err := d.host.State()
			require.NoError(t, err)
			assert.Equal(t, tt.current, state.Current.Name == first)
			assert.Len(t, m.Calls, tt.reboots)
		})
	}
}

// TestChangeThatFailsWithoutTheDaemonIsAFailedAttempt kills the daemon while the service of the host runs.
func TestChangeThatFailsWithoutTheDaemonIsAFailedAttempt(t *testing.T) {
	s, m, name := machineWith(t)
	require.NoError(t, os.MkdirAll(m.Root+"/etc/motd/folder", 0o755)) // where the config has a file
	init := &services{Machine: m}
	ctx, kill := context.WithCancel(t.Context())
	init.run = func(request string) error {
		h, err := host.Open(m.Root, host.Options{})
		require.NoError(t, err)
		defer h.Close()
		require.NoError(t, machine.New(h, machine.Options{Init: init}).Serve(t.Context(), request))
		kill()
		return ctx.Err()
	}
	daemon := func() *Daemon {
		d := process(t, s, m)
		d.machine = machine.NewRemote(d.host, init, func() ([]string, error) { return []string{"/cvo-node", "apply"}, nil }, rand.Text)
		return d
	}
	n := newNode(map[string]string{
		api.DesiredConfigAnnotation: name, api.DesiredDrainAnnotation: "drain-" + name, api.AppliedDrainAnnotation: "drain-" + name,
	})
	d := daemon()
	_, err := d.load(ctx, name)
	require.NoError(t, err)
	require.Error(t, d.apply(ctx, name, config.Content{}, nil)) // nothing follows in the process that is killed

	init.run = func(string) error {
		assert.Fail(t, "it starts another attempt at once")
		return nil
	}
	for range 2 { // it is counted once
		d = daemon()
		written, after, err := d.step(t.Context(), n)
		require.NoError(t, err)
		require.NotNil(t, written)
		assert.Equal(t, api.NodeDegraded, written.Annotations[api.NodeStateAnnotation])
		assert.Contains(t, written.Annotations[api.NodeReasonAnnotation], "/etc/motd")
		assert.Positive(t, after)
		assert.Equal(t, 1, d.attempts.Times)
	}

	init.run = func(string) error { return context.Canceled } // the daemon is killed before the service starts
	require.Error(t, d.apply(t.Context(), name, config.Content{}, nil))
	d = daemon()
	_, _, err = d.step(t.Context(), n)
	require.NoError(t, err)
	assert.Equal(t, 1, d.attempts.Times, "no other attempt has failed")
}

// TestFailureOfAFormerTargetDoesNotCountLater kills the daemon while the service of the host runs. When the next one starts, the node has another target.
func TestFailureOfAFormerTargetDoesNotCountLater(t *testing.T) {
	s, m, name := machineWith(t)
	d := process(t, s, m)
	remote := &failed{Machine: d.machine, failure: machine.Failure{Attempt: "1", Config: name, Text: "the disk is full"}}
	d.machine = remote
	missed := func(s host.State, desired string) {
		d.knowsLast = false // as in another process
		d.missed(t.Context(), s, desired)
	}
	missed(host.State{}, "other")
	missed(host.State{}, name)
	assert.Zero(t, d.attempts.Times)
	remote.failure.Attempt = "2"
	missed(host.State{RolledBack: host.RolledBack{Config: name}}, name)
	assert.Zero(t, d.attempts.Times, "the roll back is reported")
	remote.failure = machine.Failure{}
	missed(host.State{}, "")
	assert.Zero(t, d.attempts.Times)
	remote.failure = machine.Failure{Attempt: "3", Config: name}
	missed(host.State{}, name)
	assert.Equal(t, 1, d.attempts.Times)
}

// TestLastResultIsReadOnce has a daemon that waits for a drain, and then finds a service that a former one has started.
func TestLastResultIsReadOnce(t *testing.T) {
	s, m, name := machineWith(t)
	d := process(t, s, m)
	remote := &failed{Machine: d.machine}
	d.machine = remote
	n := newNode(map[string]string{api.DesiredConfigAnnotation: name, api.DesiredDrainAnnotation: "drain-" + name})
	for range 3 {
		_, _, err := d.step(t.Context(), n)
		require.NoError(t, err)
	}
	assert.Equal(t, 1, remote.reads)

	n.Annotations[api.AppliedDrainAnnotation] = "drain-" + name
	_, _, err := d.step(t.Context(), n)
	require.ErrorIs(t, err, host.ErrBusy)
	remote.failure = machine.Failure{Attempt: "1", Config: name, Text: "the disk is full"}
	_, _, err = d.step(t.Context(), n)
	require.NoError(t, err)
	assert.Equal(t, 1, d.attempts.Times)
}

// failed is a machine with a last failure. A service runs on it that a former daemon has started.
type failed struct {
	Machine
	failure machine.Failure
	// reads counts the requests for the last failure.
	reads int
}

func (f *failed) LastFailure() machine.Failure {
	f.reads++
	return f.failure
}

func (f *failed) Apply(context.Context, string, config.Content, []disruption.Action) error {
	return host.ErrBusy
}
