package cli_test

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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/update/follow"
	"github.com/cluster-version/cvo/test/clusterversions"
	"github.com/cluster-version/cvo/test/env"
)

func TestUpgradeWaitRejectsWrongArguments(t *testing.T) {
	for name, args := range map[string][]string{
		"it rejects an unknown goal":             {"--for=healthy"},
		"it rejects an empty runlevel":           {"--for=runlevel="},
		"it rejects a negative runlevel":         {"--for=runlevel=-1"},
		"it rejects a runlevel that is too high": {"--for=runlevel=10000"},
		"it rejects a negative timeout":          {"--timeout=-1s"},
		"it rejects an unknown output":           {"-o", "wide"},
		"it rejects an argument":                 {"completed"},
	} {
		_, _, _, code := upgradeCommand(t, append([]string{"wait"}, args...)...)
		assert.Equal(t, command.ExitUsage, code, name)
	}
}

// severable forwards connections until sever is called.
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
			upstream, err := net.Dial("tcp", s.target) // closed by sever
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

// waitCluster is a real API server on which a test acts as the version operator.
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
		ObservedGeneration: cv.Generation, VersionHash: "x", Desired: clusterversions.VersionedRelease(desired), AvailableUpdates: []configv1.Release{}, Conditions: conditions,
		History: []configv1.UpdateHistory{{State: state, Version: desired, Image: clusterversions.VersionedRelease(desired).Image, StartedTime: metav1.NewTime(clusterversions.Start)}},
	}
	if state == configv1.CompletedUpdate {
		cv.Status.History[0].CompletionTime = &metav1.Time{Time: clusterversions.Start.Add(time.Hour)}
	}
	require.NoError(t, c.api.Status().Update(t.Context(), cv))
}

// reportRollout sets the completed runlevels in the ReleaseRollout.
func (c *waitCluster) reportRollout(t *testing.T, to string, conditions []metav1.Condition, levels ...api.RunlevelProgress) {
	t.Helper()
	object := &api.ReleaseRollout{Status: api.ReleaseRolloutStatus{Conditions: conditions, Current: &api.CurrentRollout{
		To: to, Image: clusterversions.VersionedRelease(to).Image, Mode: "Updating", StartedAt: metav1.NewTime(clusterversions.Start), Runlevels: levels,
	}}}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	rollouts := clusterversions.Rollout()
	require.NoError(t, c.api.Get(t.Context(), client.ObjectKey{Name: "version"}, rollouts))
	rollouts.Object["status"] = status["status"]
	require.NoError(t, c.api.Status().Update(t.Context(), rollouts))
}

// waiting is a running wait command.
type waiting struct {
	*testing.T
	lines  chan string
	ended  chan struct{}
	cancel context.CancelCauseFunc
	out    bytes.Buffer
	code   int
}

func (c *waitCluster) wait(t *testing.T, args ...string) *waiting {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	reader, writer := io.Pipe()
	w := &waiting{T: t, lines: make(chan string, 1000), ended: make(chan struct{}), cancel: cancel}
	cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: &w.out, Err: writer})
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
		command.PrintError(writer, err)
		w.code = command.ExitCode(err)
		_ = writer.Close()
	}()
	t.Cleanup(func() {
		cancel(nil)
		<-w.ended
	})
	return w
}

// until waits for a progress line with this text.
func (w *waiting) until(text string) {
	w.Helper()
	patience := time.After(2 * time.Minute)
	for {
		select {
		case line, ok := <-w.lines:
			require.True(w, ok, "the command ended without printing %q", text)
			if strings.Contains(line, text) {
				return
			}
		case <-patience:
			require.Fail(w, "the command never printed "+text)
		}
	}
}

// end returns the result of the wait.
func (w *waiting) end() (out, errs string, code int) {
	w.Helper()
	var rest []string
	for line := range w.lines {
		rest = append(rest, line)
	}
	<-w.ended
	return w.out.String(), strings.Join(rest, "\n"), w.code
}

func TestUpgradeWaitEndsAtItsGoal(t *testing.T) {
	c, e := newWaitCluster(t)
	const partial, done = configv1.PartialUpdate, configv1.CompletedUpdate
	working := clusterversions.Condition(configv1.OperatorProgressing, configv1.ConditionTrue, "", "Working towards it: 3 of 9 done")

	_, errs, code := c.wait(t).end()
	assert.Equal(t, command.ExitFailed, code)
	assert.Contains(t, errs, "this cluster has no ClusterVersion, so no platform is installed")

	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}, Spec: configv1.ClusterVersionSpec{ClusterID: "11111111-2222-4333-8444-555555555555"}}
	require.NoError(t, c.api.Create(t.Context(), cv))
	w := c.wait(t)
	w.until("waiting for the version operator to observe")
	c.report(t, "1.0.0", done)
	out, _, code := w.end()
	assert.Zero(t, code)
	assert.Equal(t, "The cluster is at 1.0.0, and no update is in progress.\n", out)

	t.Run("it follows an update to its end", func(t *testing.T) {
		c.ask(t, &configv1.Update{Version: "1.1.0", Image: clusterversions.VersionedRelease("1.1.0").Image})
		accepted := c.wait(t, "--for=accepted", "-o", "json")
		completed := c.wait(t)
		accepted.until("waiting for the version operator")
		completed.until("waiting for the version operator")
		c.report(t, "1.0.0", done, clusterversions.Condition(api.ReleaseAccepted, configv1.ConditionUnknown, "RetrievePayload", "Retrieving \x1b[2J"))
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

	t.Run("it warns once of a dead operator", func(t *testing.T) {
		(&updatingCluster{T: t, config: e.Config("tests")}).deadOperator()
		out, errs, code := c.wait(t).end()
		assert.Zero(t, code)
		assert.Equal(t, "Update to 1.1.0 is complete.\n", out)
		assert.Equal(t, 1, strings.Count(errs, "warning: "+deadOperator+": "), errs)
	})

	t.Run("it reports a rejection", func(t *testing.T) {
		c.ask(t, &configv1.Update{Version: "1.2.0", Image: clusterversions.VersionedRelease("1.2.0").Image})
		w, script := c.wait(t), c.wait(t, "-o", "yaml")
		w.until("waiting for the version operator")
		script.until("waiting for the version operator")
		c.report(t, "1.1.0", done, clusterversions.Condition(api.ReleaseAccepted, configv1.ConditionFalse, "RetrievePayload", "Nobody signed it."))
		out, errs, code := w.end()
		assert.Equal(t, command.ExitRefused, code)
		assert.Empty(t, out)
		assert.Contains(t, errs, "error: the cluster rejected the update to 1.2.0: RetrievePayload: Nobody signed it.")
		out, _, code = script.end()
		assert.Equal(t, command.ExitRefused, code)
		assert.Contains(t, out, "outcome: refused\n")
	})

	t.Run("it waits for the next check of a release that was rejected before", func(t *testing.T) {
		c.ask(t, &configv1.Update{Version: "1.2.0", Image: clusterversions.VersionedRelease("1.2.0").Image})
		rejected := clusterversions.Condition(api.ReleaseAccepted, configv1.ConditionFalse, "RetrievePayload", "Nobody signed it.")
		c.report(t, "1.1.0", done, rejected)
		_, errs, code := c.wait(t, "--for=accepted", "--fail-fast").end()
		assert.Equal(t, command.ExitRefused, code)
		assert.Contains(t, errs, "RetrievePayload: Nobody signed it.")
		clk := clocktesting.NewFakeClock(time.Now())
		follower := &follow.Follower{Clock: clk, Patience: accept.RecheckWithin, Config: e.Config("tests"), Name: "version", Print: func(line string) {
			if strings.Contains(line, "rejected before this command started") {
				clk.Step(accept.RecheckWithin)
			}
		}}
		goal, err := follow.ParseGoal(follow.GoalAccepted)
		require.NoError(t, err)
		verdict, err := follower.Wait(t.Context(), goal)
		require.NoError(t, err)
		assert.Equal(t, follow.Refused, verdict.State)

		for end, want := range map[error]int{command.ErrTimeout: command.ExitRefused, context.Canceled: command.ExitInterrupted} {
			w := c.wait(t, "--for=accepted")
			w.until("rejected before this command started")
			w.cancel(end)
			_, errs, code := w.end()
			assert.Equal(t, want, code, end)
			assert.Contains(t, errs, "RetrievePayload: Nobody signed it.")
		}

		w := c.wait(t, "--for=accepted")
		w.until("RetrievePayload: Nobody signed it. (rejected before this command started; waiting for the next check)")
		c.report(t, "1.2.0", partial, working)
		out, _, code := w.end()
		assert.Zero(t, code)
		assert.Equal(t, "Update to 1.2.0 is accepted.\n", out)
	})

	t.Run("it reports a timeout, and a failure if requested", func(t *testing.T) {
		c.report(t, "1.2.0", partial, working, clusterversions.Condition(api.Failing, configv1.ConditionTrue, "Broken", "It broke."))
		_, errs, code := c.wait(t, "--timeout=1ms").end()
		assert.Equal(t, command.ExitUpdating, code)
		assert.Contains(t, errs, "error: not completed within 1ms: ")
		_, errs, code = c.wait(t, "--timeout=1s", "--quiet").end()
		assert.Equal(t, command.ExitUpdating, code)
		assert.Contains(t, errs, "error: not completed within 1s: ", "--quiet hides only progress")
		_, errs, code = c.wait(t, "--fail-fast").end()
		assert.Equal(t, command.ExitAttention, code)
		assert.Contains(t, errs, "error: the update to 1.2.0 is failing: Broken: It broke.")
	})

	t.Run("it ends when interrupted", func(t *testing.T) {
		w := c.wait(t, "-o", "json")
		w.until(working.Message)
		w.cancel(nil)
		out, _, code := w.end()
		assert.Equal(t, command.ExitInterrupted, code)
		var report struct{ For, Outcome, Version, Message string }
		require.NoError(t, json.Unmarshal([]byte(out), &report))
		assert.Equal(t, "interrupted", report.Outcome)
	})

	t.Run("it follows runlevels", func(t *testing.T) {
		rollouts := clusterversions.Rollout()
		rollouts.SetName("version")
		require.NoError(t, c.api.Create(t.Context(), rollouts))
		at := metav1.NewTime(clusterversions.Start)
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

	t.Run("it tolerates an unavailable API server", func(t *testing.T) {
		w := c.wait(t)
		w.until(working.Message)
		c.line.sever()
		c.report(t, "1.2.0", done)
		c.line.restore()
		out, _, code := w.end()
		assert.Zero(t, code)
		assert.Equal(t, "Update to 1.2.0 is complete.\n", out)
	})

	t.Run("it names the missing permissions", func(t *testing.T) {
		(&updatingCluster{T: t, config: e.Config("tests")}).putText([]byte(`{kind: List, items: [
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: getter}, rules: [{apiGroups: [config.openshift.io], resources: [clusterversions], verbs: [get]}]},
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: getter}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: getter},
 subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: vera}]}]}`))
		vera, err := e.User("vera")
		require.NoError(t, err)
		c.ask(t, &configv1.Update{Version: "1.3.0", Image: clusterversions.VersionedRelease("1.3.0").Image})
		other := &waitCluster{T: t, kubeconfig: kubeconfigOf(t, vera)}
		_, errs, code := other.wait(t).end()
		assert.Equal(t, command.ExitFailed, code)
		assert.Contains(t, errs, "you need permission to list and watch them")
	})

	t.Run("it ends when the ClusterVersion is deleted", func(t *testing.T) {
		w := c.wait(t)
		w.until("waiting for the version operator")
		require.NoError(t, c.api.Delete(t.Context(), cv))
		_, errs, code := w.end()
		assert.Equal(t, command.ExitFailed, code)
		assert.Contains(t, errs, `error: ClusterVersion "version" was deleted`)
	})
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
