package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
	"github.com/cluster-version/cvo/test/golden"
)

var accountTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func before(d time.Duration) time.Time { return accountTime.Add(-d) }

func object(runlevel int, component, kind, name string, more ...func(*rollout.Object)) rollout.Object {
	o := rollout.Object{
		ID: manifest.ID{Kind: kind, Namespace: component, Name: name}, Runlevel: runlevel, Component: component,
		File:   component + "_" + kind + "_" + name + ".yaml",
		Result: rollout.Unchanged, At: before(time.Hour), State: rollout.StateSettled, Since: before(time.Hour),
	}
	for _, f := range more {
		f(&o)
	}
	return o
}

func state(s rollout.State, since time.Duration, reason, message string) func(*rollout.Object) {
	return func(o *rollout.Object) { o.State, o.Since, o.Reason, o.Message = s, before(since), reason, message }
}

func result(r rollout.Result, ago time.Duration) func(*rollout.Object) {
	return func(o *rollout.Object) { o.Result, o.At = r, before(ago) }
}

func pending(o *rollout.Object) {
	o.State, o.Result, o.At, o.Since = rollout.StatePending, "", time.Time{}, time.Time{}
}

func skipped(reason, message string) func(*rollout.Object) {
	return func(o *rollout.Object) {
		pending(o)
		o.State, o.Reason, o.Message = rollout.StateSkipped, reason, message
	}
}

// updating is an update in the middle: something of everything that there is to draw.
func updating() *rollout.Snapshot {
	return &rollout.Snapshot{
		At: accountTime,
		Progress: rollout.Progress{
			Release: release.Release{Version: "1.1.0", Image: "registry.example/release@sha256:00"}, Mode: release.Updating, Total: 12, Done: 7,
			Problems: []rollout.Problem{
				{ID: manifest.ID{Group: "config.openshift.io", Kind: "ClusterOperator", Name: "dns"}, Runlevel: 20, Component: "dns", State: gate.Waiting},
				{ID: manifest.ID{Kind: "Job", Namespace: "network", Name: "migrate"}, Runlevel: 20, Component: "network", State: gate.Failed},
			},
			Deletions: []rollout.Deletion{
				{ID: manifest.ID{Kind: "Deployment", Namespace: "ingress", Name: "old"}, Since: before(3 * time.Minute), Message: "finalizer example.com/hold is not removed"},
				{ID: manifest.ID{Kind: "ConfigMap", Namespace: "ingress", Name: "orphan"}, Since: before(time.Second)},
			},
		},
		Objects: []rollout.Object{
			object(0, "config", "Namespace", "config"),
			object(0, "config", "ConfigMap", "settings", func(o *rollout.Object) {
				o.Repairs, o.LastRepair = 3, rollout.Repair{At: before(12 * time.Second), Reason: rollout.DriftChanged, Manager: "kubectl-edit"}
			}),
			object(10, "storage", "Deployment", "storage", func(o *rollout.Object) { o.Loosened = []string{"mesh: spec.template.spec.hostPID"} }),
			object(20, "dns", "Namespace", "dns"),
			object(20, "dns", "Deployment", "dns", result(rollout.Configured, 90*time.Second)),
			object(20, "dns", "ClusterOperator", "dns", result(rollout.Configured, 80*time.Second),
				state(rollout.StateWaiting, 70*time.Second, "ClusterOperatorUpdating", "Cluster operator dns is\nupdating versions")),
			object(20, "network", "Job", "migrate", result(rollout.Refused, 5*time.Second),
				state(rollout.StateFailed, 4*time.Minute, "JobFailed", "BackoffLimitExceeded \x1b[2J")),
			object(20, "network", "DaemonSet", "agent", pending),
			object(20, "image", "Deployment", "image"),
			object(30, "console", "Deployment", "console", pending),
			object(30, "console", "Route", "console", pending, func(o *rollout.Object) { o.Dropped = []string{"spec.httpHeaders"} }),
			object(30, "ingress", "Deployment", "old", result(rollout.Deleting, 3*time.Minute),
				state(rollout.StateWaiting, 3*time.Minute, "Deleting", "finalizer example.com/hold is not removed")),
			object(50, "baremetal", "Deployment", "metal", skipped("CapabilityDisabled", "capability baremetal is not enabled")),
			object(50, "baremetal", "Service", "metal", skipped("CapabilityDisabled", "capability baremetal is not enabled")),
			object(50, "samples", "ConfigMap", "samples", skipped("OtherProfile", "profile single-node")),
		},
	}
}

// complete is the same release with nothing left to do.
func complete() *rollout.Snapshot {
	s := updating()
	s.Progress.Mode, s.Progress.Done, s.Progress.Complete, s.Progress.Problems = release.Reconciling, 12, true, nil
	s.Objects = []rollout.Object{object(0, "config", "Namespace", "config"), object(20, "dns", "Deployment", "dns", result(rollout.Configured, time.Minute))}
	return s
}

// outline is an account from before the first pass has ended: the numbers, and what holds it back.
func outline() *rollout.Snapshot {
	s := updating()
	s.Objects = nil
	s.Progress.HandedOver = true
	s.Progress.Problems[1].Since, s.Progress.Problems[1].Reason, s.Progress.Problems[1].Message = before(time.Minute), "JobFailed", "it failed"
	s.Progress.Loosened = []rollout.Loosened{{ID: manifest.ID{Kind: "Deployment", Name: "x"}, Fields: []string{"mesh: spec.hostPID"}}}
	s.Progress.Dropped = []rollout.Dropped{{ID: manifest.ID{Kind: "Route", Name: "x"}, Fields: []string{"spec.a", "spec.b"}}}
	s.Progress.Runlevels = []rollout.Runlevel{
		{Runlevel: 0, Total: 2, Done: 2, Components: []rollout.Component{{Name: "config", Total: 2, Done: 2}}},
		{Runlevel: 20, Total: 6, Done: 3, Components: []rollout.Component{{Name: "dns", Total: 3, Done: 2}, {Name: "image", Total: 1, Done: 1}, {Name: "network", Total: 2}}},
		{Runlevel: 30, Total: 3, Components: []rollout.Component{{Name: "console", Total: 3}}},
	}
	return s
}

func TestStatusTree(t *testing.T) {
	for _, c := range []struct {
		name     string
		view     statusView
		snapshot *rollout.Snapshot
	}{
		{"updating", statusView{}, updating()},
		{"updating-unicode", statusView{Unicode: true}, updating()},
		{"updating-all", statusView{All: true}, updating()},
		{"component", statusView{Component: "dns"}, updating()},
		{"component-unknown", statusView{Component: "dsn"}, updating()},
		{"complete", statusView{}, complete()},
		{"outline", statusView{}, outline()},
	} {
		t.Run(c.name, func(t *testing.T) {
			golden.Assert(t, "status-"+c.name, strings.Join(c.view.render(c.snapshot), "\n")+"\n")
		})
	}
}

func TestStatusTreeIsBounded(t *testing.T) {
	s := updating()
	s.Objects = nil
	for i := range 100 {
		s.Objects = append(s.Objects, object(10, "dns", "ConfigMap", strings.Repeat("x", i), state(rollout.StateFailed, time.Minute, "Refused", "no")))
	}
	lines := strings.Join(statusView{}.render(s), "\n")
	problems, _, _ := strings.Cut(lines, "\nRollout")
	assert.Contains(t, problems, "and 90 more (--all)")
	assert.NotContains(t, strings.Join(statusView{All: true}.render(s), "\n"), "more (--all)")
}

func TestStatusTreeObeysNobody(t *testing.T) {
	s := updating()
	s.Progress.Release.Version = "1\x1b]0;title\a"
	s.Objects[1].LastRepair.Manager = "evil\x1b[31m"
	s.Objects[2].Loosened = []string{"a\rb\u202e"}
	s.Objects[5].Reason = "\x9b2J"
	all := strings.Join(append(statusView{All: true}.render(s), statusChanges(nil, s, "")...), "")
	for _, r := range all {
		assert.True(t, r >= ' ' && r != 0x7f && (r < 0x80 || r > 0x9f) && r != 0x202e, "%U", r)
	}
}

func TestStatusChanges(t *testing.T) {
	first := updating()
	var lines []string
	lines = append(lines, statusChanges(nil, first, "")...)
	lines = append(lines, "-- nothing happens")
	lines = append(lines, statusChanges(first, updating(), "")...)
	next := updating()
	next.At = accountTime.Add(10 * time.Second)
	next.Progress.Done = 9
	next.Objects[1].Repairs, next.Objects[1].LastRepair = 4, rollout.Repair{At: next.At, Reason: rollout.DriftDeleted}
	next.Objects[5].State = rollout.StateSettled
	next.Objects[6].Message = "another message"
	next.Objects[7].State, next.Objects[7].Result, next.Objects[7].Reason, next.Objects[7].Message = rollout.StateWaiting, rollout.Created, "NotReady", "0 of 3 pods"
	lines = append(lines, "-- ten seconds later")
	lines = append(lines, statusChanges(first, next, "")...)
	lines = append(lines, "-- of dns alone")
	lines = append(lines, statusChanges(first, next, "dns")...)
	lines = append(lines, "-- before the first pass has ended")
	lines = append(lines, statusChanges(nil, outline(), "")...)
	golden.Assert(t, "status-changes", strings.Join(lines, "\n")+"\n")
}

func TestStatusScreen(t *testing.T) {
	interrupted := false
	var screen tea.Model = statusScreen{interrupt: func() { interrupted = true }}
	update := func(msg tea.Msg) []string {
		screen, _ = screen.Update(msg)
		return screen.(statusScreen).lines() //nolint:forcetypeassert // a test
	}
	update(tea.WindowSizeMsg{Width: 60, Height: 8})
	lines := update(statusNews{err: errNoRollout, instead: []string{"Release  none yet"}, at: accountTime})
	assert.Equal(t, "Release  none yet", lines[0])
	assert.Equal(t, "no rollout has begun yet", lines[7])

	lines = update(statusNews{snapshot: updating(), at: accountTime})
	require.Len(t, lines, 8)
	assert.Contains(t, lines[0], "Updating")
	assert.Equal(t, "q ends it, arrows move", lines[7])
	for _, line := range lines {
		assert.LessOrEqual(t, len(line), 60)
	}
	first := lines[1]
	lines = update(statusNews{at: accountTime.Add(time.Minute)})
	assert.NotEqual(t, first, lines[1], "time goes on while nothing changes")

	assert.Equal(t, lines[1], update(tea.KeyPressMsg{Code: tea.KeyDown})[0])
	for range 100 {
		lines = update(tea.KeyPressMsg{Code: tea.KeyPgDown})
	}
	assert.NotEmpty(t, strings.TrimSpace(lines[6]), "it does not move beyond the end")
	lines = update(statusNews{err: errors.New("connection refused"), at: accountTime.Add(2 * time.Minute)})
	assert.Equal(t, "connection refused", lines[7], "the last picture stays, with what went wrong")
	assert.NotEmpty(t, strings.TrimSpace(lines[6]))
	update(tea.KeyPressMsg{Code: 'q', Text: "q"})
	assert.True(t, interrupted)
}

func TestDescribeClusterVersion(t *testing.T) {
	at := metav1.NewTime(before(3 * time.Minute))
	cv := &configv1.ClusterVersion{Status: configv1.ClusterVersionStatus{
		Desired: configv1.Release{Version: "1.1.0", Image: "registry.example/release@sha256:00"},
		History: []configv1.UpdateHistory{{State: configv1.PartialUpdate, Version: "1.1.0", StartedTime: at}, {State: configv1.CompletedUpdate, Version: "1.0.0"}},
		Conditions: []configv1.ClusterOperatorStatusCondition{
			{Type: "Failing", Status: "False", LastTransitionTime: at},
			{Type: configv1.OperatorProgressing, Status: "True", LastTransitionTime: at, Message: "Working towards 1.1.0: 7 of 12 done (58% complete), waiting on dns"},
			{Type: "RetrievedUpdates", Status: "False", LastTransitionTime: at, Message: "of no interest here"},
		},
	}}
	golden.Assert(t, "status-instead", strings.Join(describeClusterVersion(cv, accountTime), "\n")+"\n")
	assert.Equal(t, "Release  none yet", describeClusterVersion(&configv1.ClusterVersion{}, accountTime)[0])
}

func TestStatusUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"it knows three formats":              {"status", "-o", "xml"},
		"it never speaks plain HTTP":          {"status", "--server", "http://127.0.0.1:9099"},
		"it takes no arguments":               {"status", "dns"},
		"it watches no orphans":               {"status", "--orphans", "--watch"},
		"it wants to read the CA of a server": {"status", "--kubeconfig", kubeconfigFile(t), "--server-ca", "/nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := New(Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}})
			cmd.SetArgs(args)
			assert.Equal(t, ExitUsage, ExitCode(cmd.ExecuteContext(t.Context())))
		})
	}
}

// kubeconfigFile leads to a cluster that is not there.
func kubeconfigFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte(`{"clusters":[{"name":"a","cluster":{"server":"https://127.0.0.1:1"}}],
"contexts":[{"name":"a","context":{"cluster":"a"}},{"name":"b","context":{"cluster":"a"}}],"current-context":"a"}`), 0o600))
	return file
}

func TestStatusOfNoCluster(t *testing.T) {
	cmd := New(Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}})
	cmd.SetArgs([]string{"status", "--kubeconfig", kubeconfigFile(t), "--context", "b"})
	err := cmd.ExecuteContext(t.Context())
	require.ErrorContains(t, err, "reading Lease openshift-cluster-version/version")
	assert.Equal(t, ExitFailed, ExitCode(err), "there is no answer at all")

	cmd.SetArgs([]string{"status", "--kubeconfig", kubeconfigFile(t), "--context", "c"})
	require.ErrorContains(t, cmd.ExecuteContext(t.Context()), `context "c" does not exist`)
}

func TestStatusForScripts(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, (&statusOptions{output: outputJSON, component: "network"}).write(&out, updating()))
	var got rollout.Snapshot
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	assert.Len(t, got.Objects, 2)
	assert.Equal(t, updating().Objects[7], got.Objects[1])

	out.Reset()
	require.NoError(t, (&statusOptions{output: outputJSON, watch: true}).write(&out, updating()))
	assert.Equal(t, 1, strings.Count(out.String(), "\n"), "an account is a line")
	out.Reset()
	require.NoError(t, (&statusOptions{output: outputYAML, watch: true}).write(&out, updating()))
	assert.True(t, strings.HasPrefix(out.String(), "---\nat: "), out.String())
}

func TestSpeaksUTF8(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		want bool
	}{
		{"it reads LANG", map[string]string{"LANG": "de_DE.UTF-8"}, true},
		{"it knows the other spelling", map[string]string{"LANG": "C.utf8"}, true},
		{"it heeds LC_ALL above all", map[string]string{"LANG": "de_DE.UTF-8", "LC_ALL": "C"}, false},
		{"it expects nothing of a bare environment", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, speaksUTF8(func(name string) string { return c.env[name] }))
		})
	}
}

func TestCompletion(t *testing.T) {
	complete := func(args ...string) string {
		var out bytes.Buffer
		cmd := New(Streams{In: strings.NewReader(""), Out: &out, Err: &bytes.Buffer{}})
		cmd.SetArgs(args)
		require.NoError(t, cmd.ExecuteContext(t.Context()))
		return out.String()
	}
	assert.Contains(t, complete("completion", "bash"), "__start_cvo")
	assert.Contains(t, complete("__complete", "st"), "status\t")
	assert.Contains(t, complete("__complete", "status", "-o", ""), "yaml")
	assert.Contains(t, complete("__complete", "status", "--wa"), "--watch")
}
