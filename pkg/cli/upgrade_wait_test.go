package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
	"github.com/cluster-version/cvo/test/env"
)

// waitRelease is a release by its version; the digest tells it from others.
func waitRelease(version string) configv1.Release {
	return configv1.Release{Version: version, Image: "registry.example/release@sha256:" + version}
}

// awaited is a ClusterVersion that rolls out a release, and asks for one.
func awaited(desired, wanted string, state configv1.UpdateState, conditions ...configv1.ClusterOperatorStatusCondition) *configv1.ClusterVersion {
	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version", Generation: 2}}
	cv.Status.ObservedGeneration, cv.Status.Desired, cv.Status.Conditions = 2, waitRelease(desired), conditions
	if wanted != "" {
		cv.Spec.DesiredUpdate = &configv1.Update{Version: wanted, Image: waitRelease(wanted).Image}
	}
	if state != "" {
		cv.Status.History = []configv1.UpdateHistory{{State: state, Version: desired, Image: cv.Status.Desired.Image}}
	}
	return cv
}

func waitCondition(kind configv1.ClusterStatusConditionType, status configv1.ConditionStatus, reason, message string) configv1.ClusterOperatorStatusCondition {
	return configv1.ClusterOperatorStatusCondition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(accountTime)}
}

func TestJudgeWait(t *testing.T) {
	const partial, done = configv1.PartialUpdate, configv1.CompletedUpdate
	refused := waitCondition(api.ReleaseAccepted, configv1.ConditionFalse, "RetrievePayload", "Nobody signed it.")
	verifying := waitCondition(api.ReleaseAccepted, configv1.ConditionUnknown, "RetrievePayload", "Retrieving and verifying")
	failing := waitCondition(api.Failing, configv1.ConditionTrue, "Broken", "It broke.")
	working := waitCondition(configv1.OperatorProgressing, configv1.ConditionTrue, "", "Working towards 1.1.0: 3 of 9 done")
	changed := func(cv *configv1.ClusterVersion, change func(*configv1.ClusterVersion)) *configv1.ClusterVersion {
		change(cv)
		return cv
	}
	half := runlevels{version: "1.1.0", done: map[int]bool{0: true, 10: true, 20: false, 30: false}}
	for _, tt := range []struct {
		name    string
		goal    string
		cv      *configv1.ClusterVersion
		levels  runlevels
		want    waitState
		message string
	}{
		{"it waits for the operator to look", "completed", changed(awaited("1.0.0", "1.1.0", done), func(cv *configv1.ClusterVersion) { cv.Generation = 3 }), runlevels{}, waitGoesOn, "waiting for the version operator to see what was asked for"},
		{"it has nothing to wait for", "completed", awaited("1.0.0", "", done), runlevels{}, waitReached, "The cluster is at 1.0.0, and no update is under way."},
		{"it has no runlevel to wait for", "runlevel=90", awaited("1.0.0", "", done), runlevels{}, waitReached, "The cluster is at 1.0.0, and no update is under way."},
		{"it waits for an install", "completed", awaited("1.0.0", "", partial, working), runlevels{}, waitGoesOn, working.Message},
		{"it waits for the first report", "completed", awaited("", "", ""), runlevels{}, waitGoesOn, "waiting for the update to a release to begin"},
		{"it waits for acceptance", "completed", awaited("1.0.0", "1.1.0", done, verifying), runlevels{}, waitGoesOn, verifying.Message},
		{"it is not content with another release", "completed", awaited("1.0.0", "1.1.0", done), runlevels{}, waitGoesOn, "waiting for the update to 1.1.0 to begin"},
		{"it tells progress", "completed", awaited("1.1.0", "1.1.0", partial, working), runlevels{}, waitGoesOn, working.Message},
		{"it sees completion", "completed", awaited("1.1.0", "1.1.0", done, refused), runlevels{}, waitReached, "Update to 1.1.0 is complete."},
		{"it does not take an older entry for completion", "completed", changed(awaited("1.1.0", "1.1.0", done), func(cv *configv1.ClusterVersion) { cv.Status.Desired.Image = "x@sha256:2" }), runlevels{}, waitGoesOn, "waiting for the update to 1.1.0 to begin"},
		{"it sees refusal", "completed", awaited("1.0.0", "1.1.0", done, refused), runlevels{}, waitRefused, "the cluster refuses the update to 1.1.0: RetrievePayload: Nobody signed it."},
		{"it sees a spec that cannot be worked with", "accepted", awaited("1.0.0", "1.1.0", done, waitCondition(api.Invalid, configv1.ConditionTrue, "Unknown", "No such version.")), runlevels{}, waitRefused, "the cluster cannot work with the ClusterVersion as it is: Unknown: No such version."},
		{"it sees acceptance", "accepted", awaited("1.1.0", "1.1.0", partial), runlevels{}, waitReached, "Update to 1.1.0 is accepted."},
		{"it takes completion for acceptance", "accepted", awaited("1.1.0", "1.1.0", done), runlevels{}, waitReached, "Update to 1.1.0 is complete."},
		{"it bears with failures", "completed", awaited("1.1.0", "1.1.0", partial, failing, working), runlevels{}, waitGoesOn, working.Message},
		{"it does not, if asked so", "fail-fast", awaited("1.1.0", "1.1.0", partial, failing, working), runlevels{}, waitFails, "the update to 1.1.0 fails: Broken: It broke."},
		{"it does not mind failures of the release before", "fail-fast", awaited("1.0.0", "1.1.0", done, failing, verifying), runlevels{}, waitGoesOn, verifying.Message},
		{"it sees a runlevel", "runlevel=10", awaited("1.1.0", "1.1.0", partial, working), half, waitReached, "Update to 1.1.0 has completed runlevel 10."},
		{"it takes a runlevel without manifests for the one below", "runlevel=15", awaited("1.1.0", "1.1.0", partial, working), half, waitReached, "Update to 1.1.0 has completed runlevel 15."},
		{"it waits for a runlevel", "runlevel=20", awaited("1.1.0", "1.1.0", partial, working), half, waitGoesOn, working.Message},
		{"it does not take runlevels of another release", "runlevel=10", awaited("1.1.0", "1.1.0", partial, working), runlevels{version: "1.0.0", done: half.done}, waitGoesOn, working.Message},
		{"it does not take runlevels of another image for this release's", "runlevel=10", awaited("1.1.0", "1.1.0", partial, working), runlevels{version: "1.1.0", image: "registry.example/release@sha256:other", done: half.done}, waitGoesOn, working.Message},
		{"it takes those of the image in a mirror", "runlevel=10", awaited("1.1.0", "1.1.0", partial, working), runlevels{version: "1.1.0", image: "mirror.example/copy@sha256:1.1.0", done: half.done}, waitReached, "Update to 1.1.0 has completed runlevel 10."},
		{"it knows no runlevels", "runlevel=0", awaited("1.1.0", "1.1.0", partial, working), runlevels{version: "1.1.0"}, waitGoesOn, working.Message},
		{"it tells a pause", "completed", awaited("1.1.0", "1.1.0", partial, working), runlevels{paused: "Held back before runlevel 20."}, waitGoesOn, "Held back before runlevel 20."},
		{"it knows an image by its digest in a mirror", "completed", changed(awaited("1.1.0", "1.1.0", done), func(cv *configv1.ClusterVersion) {
			cv.Spec.DesiredUpdate = &configv1.Update{Image: "mirror.example/copy@sha256:1.1.0"}
		}), runlevels{}, waitReached, "Update to mirror.example/copy@sha256:1.1.0 is complete."},
		{"it takes the operator's word for a tag", "completed", changed(awaited("1.1.0", "1.1.0", done, verifying), func(cv *configv1.ClusterVersion) {
			cv.Spec.DesiredUpdate = &configv1.Update{Image: "registry.example/release:new", Force: true}
		}), runlevels{}, waitGoesOn, verifying.Message},
		{"it knows another architecture", "completed", changed(awaited("1.1.0", "", done, verifying), func(cv *configv1.ClusterVersion) {
			cv.Spec.DesiredUpdate = &configv1.Update{Version: "1.1.0", Architecture: configv1.ClusterVersionArchitectureMulti}
		}), runlevels{}, waitGoesOn, verifying.Message},
		{"it does not wait for what is only looked at", "completed", changed(awaited("1.0.0", "1.1.0", done, refused), func(cv *configv1.ClusterVersion) {
			cv.Spec.DesiredUpdate.Mode = configv1.UpdateModePreflight
		}), runlevels{}, waitReached, "The cluster is at 1.0.0, and no update is under way."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			goal, err := parseWaitGoal(strings.Replace(tt.goal, "fail-fast", "completed", 1))
			require.NoError(t, err)
			goal.failFast = tt.goal == "fail-fast"
			got := judgeWait(goal, tt.cv, tt.levels)
			assert.Equal(t, tt.want, got.state, got.message)
			assert.Equal(t, tt.message, got.message)
		})
	}
}

func TestRunlevelsOfAnAccount(t *testing.T) {
	snapshot := &rollout.Snapshot{Progress: rollout.Progress{Release: release.Release{Version: "1.1.0", Image: waitRelease("1.1.0").Image}, Runlevels: []rollout.Runlevel{
		{Runlevel: 0, Total: 2, Done: 2}, {Runlevel: 10, Total: 2, Done: 1},
	}}}
	got := accountLevels(snapshot)
	assert.True(t, got.of(waitRelease("1.1.0")))
	assert.False(t, got.of(waitRelease("1.2.0")))
	assert.True(t, got.upTo(9))
	assert.False(t, got.upTo(10))
}

func TestUpgradeWaitUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"an unknown goal":     {"--for=healthy"},
		"a runlevel of none":  {"--for=runlevel="},
		"a negative runlevel": {"--for=runlevel=-1"},
		"a runlevel too high": {"--for=runlevel=10000"},
		"a negative timeout":  {"--timeout=-1s"},
		"an unknown output":   {"-o", "wide"},
		"an argument":         {"completed"},
	} {
		_, _, _, code := upgradeCommand(t, append([]string{"wait"}, args...)...)
		assert.Equal(t, ExitUsage, code, name)
	}
}

// severable passes connections on until it is severed.
type severable struct {
	t       *testing.T
	target  string
	address string

	mu       sync.Mutex
	listener net.Listener
	open     []net.Conn
}

func newSeverable(t *testing.T, target string) *severable {
	t.Helper()
	s := &severable{t: t, target: target, address: "127.0.0.1:0"}
	s.restore()
	t.Cleanup(s.sever)
	return s
}

func (s *severable) restore() {
	s.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(s.t.Context(), "tcp", s.address)
	require.NoError(s.t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener, s.address = listener, listener.Addr().String()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", s.target) //nolint:noctx // closed by sever
			if err != nil {
				_ = conn.Close()
				continue
			}
			s.mu.Lock()
			s.open = append(s.open, conn, upstream)
			s.mu.Unlock()
			go func() { _, _ = io.Copy(conn, upstream); _ = conn.Close() }()
			go func() { _, _ = io.Copy(upstream, conn); _ = upstream.Close() }()
		}
	}()
}

func (s *severable) sever() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.listener.Close()
	for _, conn := range s.open {
		_ = conn.Close()
	}
	s.open = nil
}

// waitCluster is a real API server on which a test plays the version operator.
type waitCluster struct {
	*testing.T
	api        client.Client
	kubeconfig string
	line       *severable
}

func newWaitCluster(t *testing.T) (*waitCluster, *env.Env) {
	t.Helper()
	e := env.New(t, env.Options{Audit: env.AuditNone})
	_, err := envtest.InstallCRDs(e.Config("tests"), envtest.CRDInstallOptions{ErrorIfPathMissing: true, Paths: []string{
		"../../manifests/0000_00_cluster-version-operator_01_clusterversions.crd.yaml", "../../manifests/0000_00_cluster-version-operator_02_releaserollouts.crd.yaml",
	}})
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	require.NoError(t, configv1.Install(scheme))
	c := &waitCluster{T: t}
	c.api, err = client.New(e.Config("tests"), client.Options{Scheme: scheme})
	require.NoError(t, err)
	host := strings.Trim(strings.TrimPrefix(e.Config("tests").Host, "https://"), "/")
	c.line = newSeverable(t, host)
	data, err := os.ReadFile(e.Kubeconfig)
	require.NoError(t, err)
	require.True(t, bytes.Contains(data, []byte(host)), "the kubeconfig has no %s", host)
	c.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(c.kubeconfig, bytes.ReplaceAll(data, []byte(host), []byte(c.line.address)), 0o600))
	return c, e
}

// ask changes the spec, as an administrator does.
func (c *waitCluster) ask(t *testing.T, update *configv1.Update) {
	t.Helper()
	cv := &configv1.ClusterVersion{}
	require.NoError(t, c.api.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
	cv.Spec.DesiredUpdate = update
	require.NoError(t, c.api.Update(t.Context(), cv))
}

// report changes the status, as the operator does.
func (c *waitCluster) report(t *testing.T, desired string, state configv1.UpdateState, conditions ...configv1.ClusterOperatorStatusCondition) {
	t.Helper()
	cv := &configv1.ClusterVersion{}
	require.NoError(t, c.api.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
	cv.Status = configv1.ClusterVersionStatus{
		ObservedGeneration: cv.Generation, VersionHash: "x", Desired: waitRelease(desired), AvailableUpdates: []configv1.Release{}, Conditions: conditions,
		History: []configv1.UpdateHistory{{State: state, Version: desired, Image: waitRelease(desired).Image, StartedTime: metav1.NewTime(accountTime)}},
	}
	if state == configv1.CompletedUpdate {
		cv.Status.History[0].CompletionTime = &metav1.Time{Time: accountTime.Add(time.Hour)}
	}
	require.NoError(t, c.api.Status().Update(t.Context(), cv))
}

// reportRollout makes the ReleaseRollout tell which runlevels are done.
func (c *waitCluster) reportRollout(t *testing.T, to string, conditions []metav1.Condition, levels ...api.RunlevelProgress) {
	t.Helper()
	object := &api.ReleaseRollout{Status: api.ReleaseRolloutStatus{Conditions: conditions, Current: &api.CurrentRollout{
		To: to, Image: waitRelease(to).Image, Mode: "Updating", StartedAt: metav1.NewTime(accountTime), Runlevels: levels,
	}}}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	rollouts := rolloutObject()
	require.NoError(t, c.api.Get(t.Context(), client.ObjectKey{Name: "version"}, rollouts))
	rollouts.Object["status"] = status["status"]
	require.NoError(t, c.api.Status().Update(t.Context(), rollouts))
}

// waiting is a wait that runs.
type waiting struct {
	*testing.T
	lines  chan string
	ended  chan struct{}
	cancel context.CancelFunc
	out    bytes.Buffer
	code   int
}

func (c *waitCluster) wait(t *testing.T, args ...string) *waiting {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	w := &waiting{T: t, lines: make(chan string, 1000), ended: make(chan struct{}), cancel: cancel}
	cmd := New(Streams{In: strings.NewReader(""), Out: &w.out, Err: writer})
	cmd.SetArgs(append([]string{"upgrade", "wait", "--kubeconfig", c.kubeconfig}, args...))
	go func() {
		defer close(w.lines)
		for scanner := bufio.NewScanner(reader); scanner.Scan(); {
			w.lines <- scanner.Text()
		}
	}()
	go func() {
		defer close(w.ended)
		err := cmd.ExecuteContext(ctx)
		PrintError(writer, err)
		w.code = ExitCode(err)
		_ = writer.Close()
	}()
	t.Cleanup(func() {
		cancel()
		<-w.ended
	})
	return w
}

// until returns when a line of progress has this text.
func (w *waiting) until(text string) {
	w.Helper()
	patience := time.After(2 * time.Minute)
	for {
		select {
		case line, ok := <-w.lines:
			require.True(w, ok, "it ended without saying %q", text)
			if strings.Contains(line, text) {
				return
			}
		case <-patience:
			require.Fail(w, "it never said "+text)
		}
	}
}

// end returns what the wait came to.
func (w *waiting) end() (out, errs string, code int) {
	w.Helper()
	var rest []string
	for line := range w.lines {
		rest = append(rest, line)
	}
	<-w.ended
	return w.out.String(), strings.Join(rest, "\n"), w.code
}

func TestUpgradeWait(t *testing.T) {
	c, e := newWaitCluster(t)
	const partial, done = configv1.PartialUpdate, configv1.CompletedUpdate
	working := waitCondition(configv1.OperatorProgressing, configv1.ConditionTrue, "", "Working towards it: 3 of 9 done")

	_, errs, code := c.wait(t).end()
	assert.Equal(t, ExitFailed, code)
	assert.Contains(t, errs, `there is no ClusterVersion "version"`)

	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}, Spec: configv1.ClusterVersionSpec{ClusterID: "11111111-2222-4333-8444-555555555555"}}
	require.NoError(t, c.api.Create(t.Context(), cv))
	w := c.wait(t)
	w.until("waiting for the version operator to see")
	c.report(t, "1.0.0", done)
	out, _, code := w.end()
	assert.Zero(t, code)
	assert.Equal(t, "The cluster is at 1.0.0, and no update is under way.\n", out)

	t.Run("it follows an update to its end", func(t *testing.T) {
		c.ask(t, &configv1.Update{Version: "1.1.0", Image: waitRelease("1.1.0").Image})
		accepted := c.wait(t, "--for=accepted", "-o", "json")
		completed := c.wait(t)
		accepted.until("waiting for the version operator")
		completed.until("waiting for the version operator")
		c.report(t, "1.0.0", done, waitCondition(api.ReleaseAccepted, configv1.ConditionUnknown, "RetrievePayload", "Retrieving \x1b[2J"))
		completed.until("Retrieving ?[2J")
		c.report(t, "1.1.0", partial, working)
		out, _, code := accepted.end()
		assert.Zero(t, code)
		assert.JSONEq(t, `{"for": "accepted", "outcome": "reached", "version": "1.1.0", "image": "registry.example/release@sha256:1.1.0", "message": "Update to 1.1.0 is accepted."}`, out)
		completed.until(working.Message)
		c.report(t, "1.1.0", done)
		out, _, code = completed.end()
		assert.Zero(t, code)
		assert.Equal(t, "Update to 1.1.0 is complete.\n", out)
	})

	t.Run("it tells a refusal", func(t *testing.T) {
		c.ask(t, &configv1.Update{Version: "1.2.0", Image: waitRelease("1.2.0").Image})
		w, script := c.wait(t), c.wait(t, "-o", "yaml", "--quiet")
		w.until("waiting for the version operator")
		c.report(t, "1.1.0", done, waitCondition(api.ReleaseAccepted, configv1.ConditionFalse, "RetrievePayload", "Nobody signed it."))
		out, errs, code := w.end()
		assert.Equal(t, ExitRefused, code)
		assert.Empty(t, out)
		assert.Contains(t, errs, "error: the cluster refuses the update to 1.2.0: RetrievePayload: Nobody signed it.")
		out, _, code = script.end()
		assert.Equal(t, ExitRefused, code)
		assert.Contains(t, out, "outcome: refused\n")
	})

	t.Run("it tells that the time is over, and a failure if asked to", func(t *testing.T) {
		c.report(t, "1.2.0", partial, working, waitCondition(api.Failing, configv1.ConditionTrue, "Broken", "It broke."))
		_, errs, code := c.wait(t, "--timeout=1ms").end()
		assert.Equal(t, ExitUpdating, code)
		assert.Contains(t, errs, "error: not completed within 1ms: ")
		_, errs, code = c.wait(t, "--timeout=1s", "--quiet").end()
		assert.Equal(t, ExitUpdating, code)
		assert.Contains(t, errs, "error: not completed within 1s: ", "quiet is about progress")
		_, errs, code = c.wait(t, "--fail-fast").end()
		assert.Equal(t, ExitAttention, code)
		assert.Contains(t, errs, "error: the update to 1.2.0 fails: Broken: It broke.")
	})

	t.Run("it is interrupted", func(t *testing.T) {
		w := c.wait(t, "-o", "json")
		w.until(working.Message)
		w.cancel()
		out, _, code := w.end()
		assert.Equal(t, ExitInterrupted, code)
		var report waitReport
		require.NoError(t, json.Unmarshal([]byte(out), &report))
		assert.Equal(t, outcomeInterrupted, report.Outcome)
	})

	t.Run("it follows runlevels", func(t *testing.T) {
		rollouts := rolloutObject()
		rollouts.SetName("version")
		require.NoError(t, c.api.Create(t.Context(), rollouts))
		at := metav1.NewTime(accountTime)
		first := api.RunlevelProgress{Runlevel: 10, Manifests: 2, StartedAt: &at, CompletedAt: &at}
		second := api.RunlevelProgress{Runlevel: 20, Manifests: 2, StartedAt: &at}
		c.reportRollout(t, "1.2.0", nil, first, second)
		out, _, code := c.wait(t, "--for=runlevel=10").end()
		assert.Zero(t, code)
		assert.Equal(t, "Update to 1.2.0 has completed runlevel 10.\n", out)
		w := c.wait(t, "--for=runlevel=20")
		w.until(working.Message)
		c.reportRollout(t, "1.2.0", []metav1.Condition{{
			Type: api.RolloutPaused, Status: metav1.ConditionTrue, Reason: api.ReasonPaused, Message: "Held back before runlevel 30.", LastTransitionTime: at,
		}}, first, second)
		w.until("Held back before runlevel 30.")
		second.CompletedAt = &at
		c.reportRollout(t, "1.2.0", nil, first, second)
		_, _, code = w.end()
		assert.Zero(t, code)
	})

	t.Run("it bears with an API server that is away", func(t *testing.T) {
		w := c.wait(t)
		w.until(working.Message)
		c.line.sever()
		c.report(t, "1.2.0", done)
		c.line.restore()
		out, _, code := w.end()
		assert.Zero(t, code)
		assert.Equal(t, "Update to 1.2.0 is complete.\n", out)
	})

	t.Run("it says which rights it takes", func(t *testing.T) {
		(&updatingCluster{T: t, config: e.Config("tests")}).putText([]byte(`{kind: List, items: [
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: getter}, rules: [{apiGroups: [config.openshift.io], resources: [clusterversions], verbs: [get]}]},
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: getter}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: getter},
 subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: vera}]}]}`))
		vera, err := e.User("vera")
		require.NoError(t, err)
		c.ask(t, &configv1.Update{Version: "1.3.0", Image: waitRelease("1.3.0").Image})
		other := &waitCluster{T: t, kubeconfig: kubeconfigOf(t, vera)}
		_, errs, code := other.wait(t).end()
		assert.Equal(t, ExitFailed, code)
		assert.Contains(t, errs, "it takes the rights to list and watch them")
	})

	t.Run("it ends when the ClusterVersion is deleted", func(t *testing.T) {
		w := c.wait(t)
		w.until("waiting for the version operator")
		require.NoError(t, c.api.Delete(t.Context(), cv))
		_, errs, code := w.end()
		assert.Equal(t, ExitFailed, code)
		assert.Contains(t, errs, `error: ClusterVersion "version" was deleted`)
	})
}

func TestUpgradeWaitAsksTheOperatorForRunlevels(t *testing.T) {
	f := &updateFollower{account: func(context.Context) (*rollout.Snapshot, error) {
		return &rollout.Snapshot{Progress: rollout.Progress{Release: release.Release{Version: "1.1.0"}, Runlevels: []rollout.Runlevel{{Runlevel: 10, Total: 1, Done: 1}}}}, nil
	}}
	f.readLevels(t.Context(), waitGoal{completed: true}, nil)
	assert.Empty(t, f.levels.done, "completion needs no runlevels")
	f.readLevels(t.Context(), waitGoal{runlevel: 10}, nil)
	assert.True(t, f.levels.upTo(10))

	var told []string
	f = &updateFollower{print: func(line string) { told = append(told, line) }, account: func(context.Context) (*rollout.Snapshot, error) { return nil, io.ErrUnexpectedEOF }}
	f.readLevels(t.Context(), waitGoal{runlevel: 10}, nil)
	f.readLevels(t.Context(), waitGoal{runlevel: 10}, nil)
	assert.Equal(t, []string{"warning: runlevels are not known: unexpected EOF"}, told, "the same line is no news")
}

// kubeconfigOf writes the kubeconfig of a user.
func kubeconfigOf(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: cfg.Host, CertificateAuthorityData: cfg.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {
			ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData, Token: cfg.BearerToken,
		}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "c",
	}, file))
	return file
}

// rolloutObject is a ReleaseRollout of which nothing is known.
func rolloutObject() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(api.ReleaseRolloutVersion.WithKind(api.ReleaseRolloutKind))
	return object
}
