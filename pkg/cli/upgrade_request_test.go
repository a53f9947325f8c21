package cli_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/update/request"
	"github.com/cluster-version/cvo/pkg/view/overview"
	"github.com/cluster-version/cvo/test/clusterversions"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/golden"
)

// sentPatch is a patch as the API server received it.
type sentPatch struct {
	DryRun string
	Body   map[string]any
}

// spec returns the spec in the patch, as JSON.
func (p sentPatch) spec(t *testing.T) string {
	t.Helper()
	data, err := json.Marshal(p.Body["spec"])
	require.NoError(t, err)
	return string(data)
}

// requestCluster is a real API server behind a proxy that records the command's requests.
type requestCluster struct {
	*testing.T
	env        *env.Env
	api        client.Client
	kubeconfig string

	mu      sync.Mutex
	patches []sentPatch
	// meanwhile is called before a patch is forwarded.
	meanwhile func()
}

func newRequestCluster(t *testing.T, crd string) *requestCluster {
	t.Helper()
	e := env.New(t, env.Options{Audit: env.AuditNone})
	c := &requestCluster{T: t, env: e}
	cfg := e.Config("tests")
	(&updatingCluster{T: t, config: cfg}).crds(crd, "config/v1/zz_generated.crd-manifests/*_infrastructures-Default.crd.yaml")
	scheme := runtime.NewScheme()
	require.NoError(t, configv1.Install(scheme))
	require.NoError(t, corev1.AddToScheme(scheme))
	var err error
	c.api, err = client.New(cfg, client.Options{Scheme: scheme})
	require.NoError(t, err)
	c.kubeconfig = proxied(c.T, cfg, c.record)
	return c
}

// proxied returns the kubeconfig of a proxy in front of the API server. If the proxy does not reach the server, its clients get a Bad Gateway.
func proxied(t *testing.T, cfg *rest.Config, request func(*http.Request)) (kubeconfig string) {
	t.Helper()
	target, err := url.Parse(cfg.Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(cfg)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request(r)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: server.URL}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c"}},
		CurrentContext: "c",
	}, file))
	return file
}

func (c *requestCluster) record(r *http.Request) {
	if r.Method != http.MethodPatch {
		return
	}
	// require must not run outside the test's goroutine.
	patch := sentPatch{DryRun: r.URL.Query().Get("dryRun")}
	data, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(data, &patch.Body)
	}
	if err != nil {
		c.Error(err)
	}
	assert.Equal(c, "application/merge-patch+json", r.Header.Get("Content-Type"))
	assert.Equal(c, "/apis/config.openshift.io/v1/clusterversions/version", r.URL.Path)
	r.Body = io.NopCloser(bytes.NewReader(data))
	c.mu.Lock()
	c.patches = append(c.patches, patch)
	meanwhile := c.meanwhile
	c.mu.Unlock()
	if meanwhile != nil {
		meanwhile()
	}
}

// sent returns the patches since the last call of put.
func (c *requestCluster) sent() []sentPatch {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.patches)
}

// onPatch calls a function before each patch is forwarded, until put.
func (c *requestCluster) onPatch(meanwhile func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.meanwhile = meanwhile
}

// put replaces the ClusterVersion.
func (c *requestCluster) put(t *testing.T, cv *configv1.ClusterVersion) {
	t.Helper()
	old := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}
	if err := c.api.Delete(t.Context(), old); err != nil {
		require.True(t, apierrors.IsNotFound(err), err)
	}
	cv = cv.DeepCopy()
	status := cv.Status
	require.NoError(t, c.api.Create(t.Context(), cv))
	cv.Status = status
	cv.Status.ObservedGeneration = cv.Generation
	require.NoError(t, c.api.Status().Update(t.Context(), cv))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.patches, c.meanwhile = nil, nil
}

func (c *requestCluster) get(t *testing.T) *configv1.ClusterVersion {
	t.Helper()
	cv := &configv1.ClusterVersion{}
	require.NoError(t, c.api.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
	return cv
}

// change changes the status as another client does, and retries until it is stored.
func (c *requestCluster) change(change func(*configv1.ClusterVersion)) {
	for {
		cv := &configv1.ClusterVersion{}
		if err := c.api.Get(c.Context(), client.ObjectKey{Name: "version"}, cv); err != nil {
			c.Error(err)
			return
		}
		change(cv)
		err := c.api.Status().Update(c.Context(), cv)
		if apierrors.IsConflict(err) {
			continue
		}
		assert.NoError(c, err)
		return
	}
}

// cvo runs "cvo upgrade".
func (c *requestCluster) cvo(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return upgradeWith(t, c.kubeconfig, args...)
}

func upgradeWith(t *testing.T, kubeconfig string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	cmd.SetArgs(append(append([]string{"upgrade"}, args...), "--kubeconfig", kubeconfig))
	err := cmd.ExecuteContext(t.Context())
	command.PrintError(&errs, err)
	return out.String(), errs.String(), command.ExitCode(err)
}

// complete returns the completions of a shell.
func (c *requestCluster) complete(t *testing.T, args ...string) []string {
	t.Helper()
	var out bytes.Buffer
	cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: &out, Err: io.Discard})
	cmd.SetArgs(append([]string{"__complete", "upgrade", "--kubeconfig", c.kubeconfig}, args...))
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[:len(lines)-1]
}

const allFieldsCRD = "config/v1/zz_generated.crd-manifests/*_clusterversions-CustomNoUpgrade.crd.yaml"

// showsThePause tests requests while updates are paused.
func (c *requestCluster) showsThePause(t *testing.T) {
	_, err := envtest.InstallCRDs(c.env.Config("tests"), envtest.CRDInstallOptions{ErrorIfPathMissing: true, Paths: []string{
		"../../manifests/0000_00_cluster-version-operator_02_releaserollouts.crd.yaml",
	}})
	require.NoError(t, err)
	const paused = "Updates are paused. Start this one with 'cvo upgrade resume'.\n"
	next := clusterversions.Release("4.14.3", "3")
	requested := func(cv *configv1.ClusterVersion) { cv.Spec.DesiredUpdate = &configv1.Update{Version: next.Version} }
	started := func(cv *configv1.ClusterVersion) {
		requested(cv)
		cv.Status.Desired = next
		cv.Status.History = append([]configv1.UpdateHistory{{
			State: configv1.PartialUpdate, Version: next.Version, Image: next.Image, StartedTime: metav1.Unix(5000, 0),
		}}, cv.Status.History...)
	}
	installing := func(cv *configv1.ClusterVersion) {
		cv.Status.History = cv.Status.History[:1]
		cv.Status.History[0].State, cv.Status.History[0].CompletionTime = configv1.PartialUpdate, nil
	}
	for _, test := range []struct {
		name   string
		change func(*configv1.ClusterVersion)
		args   []string
		out    string
	}{
		{"an update", nil, []string{"--to=4.14.3"}, "Requested update to 4.14.3\n" + paused},
		{"an image", nil, []string{"--to-image=" + next.Image}, "Requested update to 4.14.3\n" + paused},
		{"a rollback", nil, []string{"rollback"}, "Requested rollback from 4.14.1 to 4.14.0\n" + paused},
		{"the way back", started, []string{"--clear"}, "Update to 4.14.3 cancelled; the cluster goes back to 4.14.1, unless the operator of 4.14.3 already runs\n" + paused},
		{"no rollout", requested, []string{"--clear"}, "Update to 4.14.3 cancelled; the cluster stays at 4.14.1\n"},
		{"an install, which it does not affect", installing, []string{"--to=4.14.3"}, "Requested update to 4.14.3\n"},
		{"a dry run, which starts nothing", nil, []string{"--to=4.14.3", "--dry-run=client"}, "Requested update to 4.14.3 (dry run)\nMerge patch: "},
		{"no update", nil, []string{"--to=4.14.1"}, "info: Cluster is already at version 4.14.1\n"},
	} {
		t.Run("a pause of "+test.name, func(t *testing.T) {
			cv := clusterversions.WithUpdates(clusterversions.Resting())
			if test.change != nil {
				test.change(cv)
			}
			c.put(t, cv)
			_, errs, code := upgradeWith(t, c.env.Kubeconfig, "pause")
			require.Zero(t, code, errs)
			out, errs, code := c.cvo(t, test.args...)
			assert.Zero(t, code, errs)
			text, _, _ := strings.Cut(out, `{"metadata"`)
			assert.Equal(t, test.out, text)
			_, errs, code = upgradeWith(t, c.env.Kubeconfig, "resume")
			require.Zero(t, code, errs)
		})
	}
}

func TestUpgradeWritesTheRequest(t *testing.T) {
	c := newRequestCluster(t, allFieldsCRD)
	rel := func(char string) string { return clusterversions.Release("", char).Image }
	for _, test := range []struct {
		name   string
		change func(*configv1.ClusterVersion)
		args   []string
		// out is stdout, errs is a part of stderr, and spec is the spec of the only patch.
		out  string
		errs []string
		spec string
		code int
	}{
		{
			name: "requests a recommended update", args: []string{"--to=4.14.3"},
			out:  "Requested update to 4.14.3\n",
			spec: `{"desiredUpdate":{"architecture":"","force":false,"image":"` + rel("3") + `","version":"4.14.3"}}`,
		},
		{
			name: "requests the newest by version, not by text", args: []string{"--to-latest=true"},
			out:  "Requested update to 4.14.10\n",
			spec: `{"desiredUpdate":{"architecture":"","force":false,"image":"` + rel("a") + `","version":"4.14.10"}}`,
		},
		{
			name: "requests a newer update that is not recommended, if allowed", args: []string{"--to-latest", "--allow-not-recommended"},
			out: "Requested update to 4.14.12\n",
			errs: []string{"warning: with --allow-not-recommended you have accepted the risks with 4.14.12 and bypassed " +
				"Recommended=Unknown EvaluationFailed: Could not evaluate exposure to update risk SlowDisks\n"},
			spec: `{"desiredUpdate":{"architecture":"","force":false,"image":"` + rel("c") + `","version":"4.14.12"}}`,
		},
		{
			name: "keeps the pullspec of a mirror", args: []string{"--to-image=" + clusterversions.Mirrored("3")},
			out:  "Requested update to 4.14.3\n",
			spec: `{"desiredUpdate":{"architecture":"","force":false,"image":"` + clusterversions.Mirrored("3") + `","version":"4.14.3"}}`,
		},
		{
			name: "keeps the pullspec of a mirror for a conditional update", args: []string{"--to-image=" + clusterversions.Mirrored("4"), "--allow-not-recommended"},
			out:  "Requested update to 4.14.4\n",
			errs: []string{"bypassed Recommended=False MultipleReasons: Slow disks get slower."},
			spec: `{"desiredUpdate":{"architecture":"","force":false,"image":"` + clusterversions.Mirrored("4") + `","version":"4.14.4"}}`,
		},
		{
			name: "rejects a conditional update", args: []string{"--to=4.14.4"}, code: command.ExitRefused,
			errs: []string{"error: the update 4.14.4 is not one of the recommended updates, but is available as a conditional update. " +
				"To accept the Recommended=False risk and to proceed with update use --allow-not-recommended.\n  Reason: MultipleReasons\n" +
				"  Message: Slow disks get slower. https://issues.example/1\n  \n  Leases get lost. https://issues.example/2\n"},
		},
		{
			name: "rejects an unknown image", args: []string{"--to-image=" + clusterversions.Mirrored("e")}, code: command.ExitRefused,
			errs: []string{"error: the update is not one of the possible targets: 4.14.10, 4.14.9-rc.1, 4.14.3. specify --allow-explicit-upgrade to continue with the update.\n"},
		},
		{
			name: "requests an unknown image if allowed", args: []string{"--to-image=" + clusterversions.Mirrored("e"), "--allow-explicit-upgrade"},
			out:  "Requested update to release image " + clusterversions.Mirrored("e") + "\n",
			errs: []string{"warning: The requested upgrade image is not one of the available updates. You have used --allow-explicit-upgrade for the update to proceed anyway\n"},
			spec: `{"desiredUpdate":{"architecture":"","force":false,"image":"` + clusterversions.Mirrored("e") + `","version":""}}`,
		},
		{
			name: "ignores an invalid listed pullspec", args: []string{"--to-image=" + clusterversions.Mirrored("a")},
			change: func(cv *configv1.ClusterVersion) { cv.Status.AvailableUpdates[0].Image = "not a pullspec" },
			out:    "Requested update to 4.14.10\n",
			errs:   []string{"warning: unable to calculate match for the update target in available updates: "},
			spec:   `{"desiredUpdate":{"architecture":"","force":false,"image":"` + clusterversions.Mirrored("a") + `","version":"4.14.10"}}`,
		},
		{
			name: "has nothing to do for the current version", args: []string{"--to=4.14.1"},
			out: "info: Cluster is already at version 4.14.1\n",
		},
		{
			name: "has nothing to do for the current image", args: []string{"--to-image=" + rel("1")},
			out: "info: Cluster is already at " + rel("1") + "\n",
		},
		{
			name: "warns that the rollout of the current version is not complete", args: []string{"--to=4.14.1"},
			change: func(cv *configv1.ClusterVersion) { cv.Status.History[0].State = configv1.PartialUpdate },
			out:    "info: Cluster is already at version 4.14.1\n",
			errs:   []string{"warning: Its rollout is not complete: 'cvo upgrade status' shows the progress\n"},
		},
		{
			name: "warns that another update is requested", args: []string{"--to=4.14.1"},
			change: func(cv *configv1.ClusterVersion) {
				cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.3", Image: rel("3")}
			},
			out:  "info: Cluster is already at version 4.14.1\n",
			errs: []string{"warning: spec.desiredUpdate still requests 4.14.3"},
		},
		{
			name: "forces the current target", args: []string{"--to=4.14.1", "--force"},
			out:  "Requested update to 4.14.1\n",
			errs: []string{"warning: --force overrides"},
			spec: `{"desiredUpdate":{"architecture":"","force":true,"image":"` + rel("1") + `","version":"4.14.1"}}`,
		},
		{
			name: "does not force a forced request", args: []string{"--to=4.14.1", "--force"},
			change: func(cv *configv1.ClusterVersion) {
				cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.1", Image: rel("1"), Force: true}
			},
			out: "info: Cluster is already at version 4.14.1\n",
		},
		{
			name: "drops an earlier request except for its accepted risks", args: []string{"--to=4.14.3"},
			change: func(cv *configv1.ClusterVersion) {
				cv.Spec.DesiredUpdate = &configv1.Update{
					Version: "4.14.10", Image: rel("a"), Force: true, Mode: "Preflight", AcceptRisks: []configv1.AcceptRisk{{Name: "B"}, {Name: "A"}},
				}
			},
			out:  "Requested update to 4.14.3\n",
			spec: `{"desiredUpdate":{"acceptRisks":[{"name":"B"},{"name":"A"}],"architecture":"","force":false,"image":"` + rel("3") + `","mode":null,"version":"4.14.3"}}`,
		},
		{
			name: "rejects a request while the cluster has failures", args: []string{"--to=4.14.3"}, code: command.ExitRefused,
			change: func(cv *configv1.ClusterVersion) {
				clusterversions.Set(cv, api.Failing, configv1.ConditionTrue, "Broken", "it\nbroke")
				clusterversions.Set(cv, api.Invalid, configv1.ConditionTrue, "Wrong", "spec")
				clusterversions.Set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, "Busy", "working")
			},
			errs: []string{"error: the cluster version object is invalid, you must correct the invalid state first:\n\n  Reason: Wrong\n  Message: spec\n\n" +
				"the cluster is experiencing an error reconciling \"4.14.1\":\n\n  Reason: Broken\n  Message: it\n  broke\n\n" +
				"the cluster is already upgrading:\n\n  Reason: Busy\n  Message: working\n\nIf you want to upgrade anyway, use --allow-upgrade-with-warnings.\n"},
		},
		{
			name: "requests another release if the operator has none", args: []string{"--to=4.14.3"},
			change: func(cv *configv1.ClusterVersion) {
				clusterversions.Set(cv, api.Failing, configv1.ConditionTrue, api.ReasonNoAcceptedRelease, "Remove the cause, or request a release by digest.")
			},
			out:  "Requested update to 4.14.3\n",
			spec: `{"desiredUpdate":{"architecture":"","force":false,"image":"` + rel("3") + `","version":"4.14.3"}}`,
		},
		{
			name: "rejects a request during an update that the operator cannot resume", args: []string{"--to=4.14.3"}, code: command.ExitRefused,
			change: func(cv *configv1.ClusterVersion) {
				clusterversions.Set(cv, api.Failing, configv1.ConditionTrue, api.ReasonNoAcceptedRelease, "Remove the cause.")
				clusterversions.Set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, api.ReasonNoAcceptedRelease, "Unable to apply 4.14.2")
			},
			errs: []string{"error: the cluster is already upgrading:\n\n  Reason: NoAcceptedRelease\n  Message: Unable to apply 4.14.2\n\n" +
				"If you want to upgrade anyway, use --allow-upgrade-with-warnings.\n"},
		},
		{
			name: "requests as the operator advises if it has no release",
			args: append(strings.Fields(strings.Replace(api.RequestByDigest, "NAME@sha256:…", clusterversions.Mirrored("e"), 1))[2:], "--force", "--yes"),
			change: func(cv *configv1.ClusterVersion) {
				clusterversions.Set(cv, api.Failing, configv1.ConditionTrue, api.ReasonNoAcceptedRelease, "Remove the cause.")
				clusterversions.Set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, api.ReasonNoAcceptedRelease, "Unable to apply 4.14.2")
			},
			out:  "Requested update to release image " + clusterversions.Mirrored("e") + "\n",
			errs: []string{"warning: --force overrides", "warning: --allow-upgrade-with-warnings is bypassing: the cluster is already upgrading:\n\n  Reason: NoAcceptedRelease\n"},
			spec: `{"desiredUpdate":{"architecture":"","force":true,"image":"` + clusterversions.Mirrored("e") + `","version":""}}`,
		},
		{
			name: "requests despite failures if allowed", args: []string{"--to=4.14.3", "--allow-upgrade-with-warnings"},
			change: func(cv *configv1.ClusterVersion) {
				clusterversions.Set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, "Busy", "\x1b[31mworking")
			},
			out:  "Requested update to 4.14.3\n",
			errs: []string{"warning: --allow-upgrade-with-warnings is bypassing: the cluster is already upgrading:\n\n  Reason: Busy\n  Message: ?[31mworking\n"},
			spec: `{"desiredUpdate":{"architecture":"","force":false,"image":"` + rel("3") + `","version":"4.14.3"}}`,
		},
		{
			name: "omits an empty reason", args: []string{"--to=4.14.3", "--allow-upgrade-with-warnings"},
			change: func(cv *configv1.ClusterVersion) {
				clusterversions.Set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, "", "Working towards 4.14.2")
			},
			out:  "Requested update to 4.14.3\n",
			errs: []string{"warning: --allow-upgrade-with-warnings is bypassing: the cluster is already upgrading:\n\n  Message: Working towards 4.14.2\n"},
			spec: `{"desiredUpdate":{"architecture":"","force":false,"image":"` + rel("3") + `","version":"4.14.3"}}`,
		},
		{
			name: "ignores slow operators, and conditions that the cluster checks itself", args: []string{"--to=4.14.3"},
			change: func(cv *configv1.ClusterVersion) {
				clusterversions.Set(cv, api.Failing, configv1.ConditionUnknown, "Slow", "")
				clusterversions.Set(cv, configv1.OperatorUpgradeable, configv1.ConditionFalse, "No", "")
				clusterversions.Set(cv, api.ReleaseAccepted, configv1.ConditionFalse, "No", "")
			},
			out:  "Requested update to 4.14.3\n",
			spec: `{"desiredUpdate":{"architecture":"","force":false,"image":"` + rel("3") + `","version":"4.14.3"}}`,
		},
		{
			name: "changes the architecture", args: []string{"--to-multi-arch"},
			out:  "Requested update to multi cluster architecture\n",
			spec: `{"desiredUpdate":{"architecture":"Multi","force":false,"image":"","version":"4.14.1"}}`,
		},
		{
			name: "changes the architecture only once", args: []string{"--to-multi-arch"}, code: command.ExitRefused,
			change: func(cv *configv1.ClusterVersion) {
				cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.1", Architecture: "Multi"}
			},
			errs: []string{"error: info: Update to multi cluster architecture has already been requested\n"},
		},
		{
			name: "checks the guards before it changes the architecture", args: []string{"--to-multi-arch"}, code: command.ExitRefused,
			change: func(cv *configv1.ClusterVersion) {
				clusterversions.Set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, "Busy", "working")
			},
			errs: []string{"error: the cluster is already upgrading:"},
		},
		{
			name: "cannot change the architecture before the version is known", args: []string{"--to-multi-arch"}, code: command.ExitRefused,
			change: func(cv *configv1.ClusterVersion) { cv.Status = configv1.ClusterVersionStatus{} },
			errs:   []string{"error: the cluster has not reported its version yet"},
		},
		{name: "has nothing to clear", args: []string{"--clear"}, out: "info: No update in progress\n"},
		{
			name: "has nothing to clear while an update continues", args: []string{"--clear"},
			out:    "info: No update is requested, but the update to 4.14.1 is in progress. To go back, run 'cvo upgrade rollback --allow-upgrade-with-warnings'.\n",
			change: func(cv *configv1.ClusterVersion) { cv.Status.History[0].State = configv1.PartialUpdate },
		},
		{
			name: "keeps accepted risks when there is nothing else to clear", args: []string{"--clear"}, out: "info: No update in progress\n",
			change: func(cv *configv1.ClusterVersion) {
				cv.Spec.DesiredUpdate = &configv1.Update{AcceptRisks: []configv1.AcceptRisk{{Name: "A"}}}
			},
		},
		{
			name: "clears a completed request", args: []string{"--clear", "--force"},
			change: func(cv *configv1.ClusterVersion) {
				cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.1", Image: rel("1")}
			},
			out: "Cleared the update field, still at 4.14.1\n", spec: `{"desiredUpdate":null}`,
		},
		{
			name: "cancels an update", args: []string{"--clear"},
			change: func(cv *configv1.ClusterVersion) {
				cv.Spec.DesiredUpdate = &configv1.Update{Image: clusterversions.Mirrored("3")}
			},
			out: "Update to " + clusterversions.Mirrored("3") + " cancelled; the cluster stays at 4.14.1\n", spec: `{"desiredUpdate":null}`,
		},
		{
			name: "cancels an update and keeps accepted risks", args: []string{"--clear"},
			change: func(cv *configv1.ClusterVersion) {
				cv.Spec.DesiredUpdate = &configv1.Update{Version: "4.14.3", Force: true, AcceptRisks: []configv1.AcceptRisk{{Name: "A"}}}
			},
			out:  "Update to 4.14.3 cancelled; the cluster stays at 4.14.1\n",
			spec: `{"desiredUpdate":{"acceptRisks":[{"name":"A"}],"architecture":"","force":false,"image":"","version":""}}`,
		},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			cv := clusterversions.WithUpdates(clusterversions.Resting())
			if test.change != nil {
				test.change(cv)
			}
			c.put(t, cv)
			out, errs, code := c.cvo(t, test.args...)
			assert.Equal(t, test.out, out)
			assert.Equal(t, test.code, code, errs)
			for _, want := range test.errs {
				assert.Contains(t, errs, want)
			}
			if test.errs == nil {
				assert.Empty(t, errs)
			}
			assert.NotContains(t, errs, "\x1b")
			if test.spec == "" {
				assert.Empty(t, c.sent())
				return
			}
			require.Len(t, c.sent(), 1)
			assert.JSONEq(t, test.spec, c.sent()[0].spec(t))
			assert.NotEmpty(t, c.sent()[0].Body["metadata"].(map[string]any)["resourceVersion"], "the patch requires the resource version that was read")
			if update := c.get(t).Spec.DesiredUpdate; update != nil {
				assert.Empty(t, update.Mode)
			}
		})
	}

	t.Run("tags", func(t *testing.T) { testTags(t, c) })
	t.Run("it retries after a conflict", func(t *testing.T) {
		c.put(t, clusterversions.WithUpdates(clusterversions.Resting()))
		var once sync.Once
		c.onPatch(func() {
			once.Do(func() {
				c.change(func(cv *configv1.ClusterVersion) { clusterversions.Set(cv, "Other", configv1.ConditionTrue, "", "") })
			})
		})
		out, errs, code := c.cvo(t, "--to=4.14.4", "--allow-not-recommended")
		assert.Equal(t, "Requested update to 4.14.4\n", out)
		assert.Equal(t, 1, strings.Count(errs, "warning:"), "warnings are printed once")
		assert.Zero(t, code)
		assert.Len(t, c.sent(), 2)
		assert.Equal(t, "4.14.4", c.get(t).Spec.DesiredUpdate.Version)
	})
	t.Run("it checks the guards again after a conflict", func(t *testing.T) {
		c.put(t, clusterversions.WithUpdates(clusterversions.Resting()))
		c.onPatch(func() {
			c.change(func(cv *configv1.ClusterVersion) {
				clusterversions.Set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, "Other", "another client's update")
			})
		})
		_, errs, code := c.cvo(t, "--to=4.14.3")
		assert.Equal(t, command.ExitRefused, code)
		assert.Contains(t, errs, "error: the cluster is already upgrading:\n\n  Reason: Other\n")
		assert.Len(t, c.sent(), 1)
		assert.Nil(t, c.get(t).Spec.DesiredUpdate)
	})
	t.Run("it gives up after repeated conflicts", func(t *testing.T) {
		c.put(t, clusterversions.WithUpdates(clusterversions.Resting()))
		var round atomic.Int32
		c.onPatch(func() {
			c.change(func(cv *configv1.ClusterVersion) {
				clusterversions.Set(cv, "Other", configv1.ConditionTrue, "", strings.Repeat("x", int(round.Add(1))))
			})
		})
		_, errs, code := c.cvo(t, "--to=4.14.3")
		assert.Equal(t, command.ExitFailed, code)
		assert.Contains(t, errs, "error: Unable to upgrade: ")
		assert.Contains(t, errs, "another client keeps changing it; try again\n")
		assert.Greater(t, len(c.sent()), 2)
		assert.Nil(t, c.get(t).Spec.DesiredUpdate)
	})

	for _, dryRun := range []string{"--dry-run", "--dry-run=server", "--dry-run=client"} {
		t.Run("it supports "+dryRun, func(t *testing.T) {
			c.put(t, clusterversions.WithUpdates(clusterversions.Resting()))
			version := c.get(t).ResourceVersion
			out, errs, code := c.cvo(t, "--to=4.14.3", dryRun)
			assert.Empty(t, errs)
			assert.Zero(t, code)
			kind := "server dry run"
			if dryRun == "--dry-run=client" {
				kind = "dry run"
				assert.Empty(t, c.sent())
			} else {
				require.Len(t, c.sent(), 1)
				assert.Equal(t, "All", c.sent()[0].DryRun)
			}
			assert.Equal(t, "Requested update to 4.14.3 ("+kind+")\nMerge patch: {\"metadata\":{\"resourceVersion\":\""+version+"\"},"+
				"\"spec\":{\"desiredUpdate\":{\"architecture\":\"\",\"force\":false,\"image\":\""+rel("3")+"\",\"version\":\"4.14.3\"}}}\n", out)
			assert.Nil(t, c.get(t).Spec.DesiredUpdate)
		})
	}
	t.Run("it reports the request to scripts", func(t *testing.T) {
		for _, format := range []string{"json", "yaml"} {
			c.put(t, clusterversions.WithUpdates(clusterversions.Resting()))
			out, _, code := c.cvo(t, "--to=4.14.4", "--allow-not-recommended", "-o", format)
			require.Zero(t, code)
			var got request.Request
			require.NoError(t, yaml.UnmarshalStrict([]byte(out), &got), out)
			assert.Equal(t, "update", got.Action)
			assert.True(t, got.Changed)
			assert.Equal(t, "4.14.1", got.From.Version)
			assert.Equal(t, request.End{Version: "4.14.4", Image: rel("4")}, got.To)
			assert.Equal(t, "Requested update to 4.14.4", got.Message)
			assert.Len(t, got.Warnings, 1)
			assert.Contains(t, got.Patch, "spec")

			out, _, code = c.cvo(t, "--to=4.14.4", "--allow-not-recommended", "-o", format)
			require.Zero(t, code)
			got = request.Request{}
			require.NoError(t, yaml.UnmarshalStrict([]byte(out), &got))
			assert.False(t, got.Changed, "the update is already requested")
		}
	})
	t.Run("it warns about a hosted control plane", func(t *testing.T) {
		infrastructure := &configv1.Infrastructure{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
		require.NoError(t, c.api.Create(t.Context(), infrastructure))
		infrastructure.Status.ControlPlaneTopology = configv1.ExternalTopologyMode
		infrastructure.Status.InfrastructureTopology = configv1.SingleReplicaTopologyMode
		require.NoError(t, c.api.Status().Update(t.Context(), infrastructure))
		c.put(t, clusterversions.WithUpdates(clusterversions.Resting()))
		_, errs, code := c.cvo(t, "--to=4.14.3")
		assert.Zero(t, code)
		assert.Contains(t, errs, "warning: The control plane of this cluster is hosted elsewhere")
		require.NoError(t, c.api.Delete(t.Context(), infrastructure))
	})
	t.Run("it prints the overview", func(t *testing.T) {
		c.put(t, clusterversions.WithUpdates(clusterversions.Resting()))
		c.change(func(cv *configv1.ClusterVersion) {
			clusterversions.Set(cv, api.Failing, configv1.ConditionUnknown, "SlowClusterOperator", "waiting on dns over 30 minutes")
			clusterversions.Set(cv, configv1.OperatorProgressing, configv1.ConditionTrue, "", "Working towards 4.14.3: 139 of 859 done (16% complete), waiting on dns")
		})
		out, errs, code := c.cvo(t, "--include-not-recommended")
		golden.AssertFile(t, "../view/overview/testdata/upgrade-overview/progressing-all.golden", out+"--- stderr\n"+errs)
		assert.Zero(t, code, "scripts for oc expect exit code 0")

		same, errs, code := c.cvo(t, "--include-not-recommended", "--exit-code")
		assert.Equal(t, out, same)
		assert.Empty(t, errs)
		assert.Equal(t, command.ExitUpdating, code)

		text, _, code := c.cvo(t, "-o=json", "--exit-code")
		assert.Equal(t, command.ExitUpdating, code)
		var got overview.Overview
		require.NoError(t, json.Unmarshal([]byte(text), &got))
		assert.Equal(t, overview.Updating, got.State)
		assert.Equal(t, "4.14.10", got.Recommended[0].Version)
		require.Len(t, got.NotRecommended, 2)
		assert.Equal(t, "https://issues.example/1", got.NotRecommended[0].Risks[0].URL)
	})
	t.Run("it offers versions", func(t *testing.T) {
		c.put(t, clusterversions.WithUpdates(clusterversions.Resting()))
		assert.Equal(t, []string{
			"4.14.10\trecommended", "4.14.9-rc.1\trecommended", "4.14.3\trecommended",
			"4.14.12\tnot recommended: EvaluationFailed", "4.14.4\tnot recommended: MultipleReasons",
		}, c.complete(t, "--to", ""))
	})
	t.Run("it reports missing permissions", func(t *testing.T) {
		c.put(t, clusterversions.WithUpdates(clusterversions.Resting()))
		grant := &updatingCluster{T: t, config: c.env.Config("tests")}
		vera, err := c.env.User("vera")
		require.NoError(t, err)
		kubeconfig := proxied(c.T, vera, c.record)
		out, errs, code := upgradeWith(t, kubeconfig)
		assert.Empty(t, out)
		assert.Equal(t, command.ExitFailed, code)
		assert.Contains(t, errs, "error: reading ClusterVersion \"version\": ")
		assert.Contains(t, errs, "cluster-version-operator-viewer")

		grant.putText([]byte(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: version-reader},
rules: [{apiGroups: [config.openshift.io], resources: [clusterversions], verbs: [get]}]}`))
		grant.putText([]byte(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: version-reader},
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: version-reader}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: vera}]}`))
		require.Eventually(t, func() bool {
			_, _, code = upgradeWith(t, kubeconfig)
			return code == 0
		}, time.Minute, 50*time.Millisecond)
		for _, args := range [][]string{{"--to=4.14.3"}, {"--to=4.14.3", "--dry-run"}} {
			out, errs, code = upgradeWith(t, kubeconfig, args...)
			assert.Empty(t, out)
			assert.Equal(t, command.ExitFailed, code)
			assert.Contains(t, errs, "error: Unable to upgrade: ")
			assert.Contains(t, errs, "permission to patch clusterversions")
		}
	})

	c.settings(t)
	c.accepts(t)
	c.preflights(t)
	c.rollsBack(t)
	c.showsThePause(t)

	t.Run("it reports a missing ClusterVersion", func(t *testing.T) {
		c.put(t, clusterversions.Resting())
		require.NoError(t, c.api.Delete(t.Context(), c.get(t)))
		for _, args := range [][]string{nil, {"--to=4.14.3"}, {"--clear"}, {"channel", "x"}, {"accept", "R"}, {"rollback"}} {
			out, errs, code := c.cvo(t, args...)
			assert.Empty(t, out)
			assert.Equal(t, command.ExitFailed, code)
			assert.Contains(t, errs, "error: this cluster has no ClusterVersion, so no platform is installed: run 'cvo install', or select another cluster with --context (current: ")
		}
		assert.Empty(t, c.complete(t, "--to", ""))
	})
}
