package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fault"
	"github.com/cluster-version/cvo/test/fixture"
)

// withoutPlatform is a cluster for tests that install no platform and leave no object behind that another test would notice.
var withoutPlatform *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { withoutPlatform = e })
}

// bare is an empty cluster and a registry with releases for it.
type bare struct {
	registry *fixture.Registry
	signer   *fixture.KeySigner
	env      *env.Env
	client   client.Client
	trust    string
}

func newBare(t *testing.T) *bare {
	t.Helper()
	return bareAt(t, env.New(t, env.Options{Audit: env.AuditNone}))
}

func bareAt(t *testing.T, e *env.Env) *bare {
	t.Helper()
	b := &bare{registry: fixture.StartRegistry(t), env: e}
	var err error
	b.signer, err = fixture.NewKeySigner()
	require.NoError(t, err)
	key, err := b.signer.PublicKey()
	require.NoError(t, err)
	b.trust = filepath.Join(t.TempDir(), "key.pem")
	require.NoError(t, os.WriteFile(b.trust, key, 0o600))
	scheme := runtime.NewScheme()
	require.NoError(t, configv1.Install(scheme))
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	b.client, err = client.New(b.env.Config("test"), client.Options{Scheme: scheme})
	require.NoError(t, err)
	return b
}

// push pushes a release with the operator's own files, or with the files that keep selects.
func (b *bare) push(t *testing.T, version, entrypoint string, keep func(file string) bool) release.Image {
	t.Helper()
	files := fstest.MapFS{
		"release-manifests/release-metadata": {Data: []byte(`{"kind": "cincinnati-metadata-v0", "version": "` + version + `"}`)},
		"release-manifests/image-references": {Data: []byte(`{"kind": "ImageStream", "apiVersion": "image.openshift.io/v1", "metadata": {"name": "` + version + `"}}`)},
	}
	set := operatorSet(t)
	entries, err := os.ReadDir(set)
	require.NoError(t, err)
	for _, e := range entries {
		if keep != nil && !keep(e.Name()) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(set, e.Name()))
		require.NoError(t, err)
		files["manifests/"+e.Name()] = &fstest.MapFile{Data: data}
	}
	image, err := fixture.ReleaseImage(files)
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	config = config.DeepCopy()
	config.Config.Entrypoint = []string{entrypoint}
	image, err = mutate.ConfigFile(image, config)
	require.NoError(t, err)
	img, err := fixture.Push(t.Context(), b.registry, image, "platform/release:"+version)
	require.NoError(t, err)
	return img
}

func (b *bare) signed(t *testing.T, version string) release.Image {
	t.Helper()
	img := b.push(t, version, "/cvo", nil)
	require.NoError(t, b.signer.Attach(t.Context(), img))
	return img
}

func (b *bare) run(t *testing.T, img release.Image, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return runCvo(t, append([]string{
		"install", "--kubeconfig", b.env.Kubeconfig, "--trust", b.trust, "--release-image", img.ByDigest(),
	}, args...)...)
}

func TestInstallRejectsUnusableReleases(t *testing.T) {
	b := bareAt(t, withoutPlatform.For(t))
	unsigned := b.push(t, "1.0.0", "/cvo", nil)
	other := b.push(t, "1.0.1", "/usr/bin/cluster-version-operator", nil)
	without := b.push(t, "1.0.2", "/cvo", func(file string) bool { return !strings.Contains(file, "deployment") })
	for _, img := range []release.Image{other, without} {
		require.NoError(t, b.signer.Attach(t.Context(), img))
	}
	for _, tt := range []struct {
		name, want string
		img        release.Image
	}{
		{"rejects an unsigned release", "unable to verify", unsigned},
		{"rejects an image that starts another program", `runs ["/usr/bin/cluster-version-operator"]: this release does not contain this operator`, other},
		{"rejects a release without a Deployment", "has no Deployment.apps openshift-cluster-version/cluster-version-operator", without},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := b.run(t, tt.img)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, command.ExitRefused, command.ExitCode(err))
			if tt.img != unsigned {
				require.ErrorContains(t, err, "--no-operator")
			}
			err = b.client.Get(t.Context(), client.ObjectKey{Name: api.OperatorNamespace}, &corev1.Namespace{})
			assert.True(t, apierrors.IsNotFound(err), "a rejected release left objects behind")
		})
	}
	t.Run("it warns about a profile that the release does not know", func(t *testing.T) {
		_, errs, err := b.run(t, without, "--profile=edge")
		require.Error(t, err)
		assert.Contains(t, errs, "warning: the cluster gets no component: none of the ")
		assert.Contains(t, errs, "no annotation include.release.openshift.io/edge")
		assert.Contains(t, errs, "check --profile")
	})
}

func TestInstallRejectsWrongArguments(t *testing.T) {
	folder := emptyLayout(t)
	for _, tt := range []struct{ args, want string }{
		{"", "--release-image is missing"},
		{"--release-image a", "--trust is missing"},
		{"--release-image a --trust b --payload-retrieval=pigeon", "use one of registry, job"},
		{"--release-image a --trust b --wait=forever", "use deployed, completed or none"},
		{"--release-image a --trust b --timeout=-1s", "use a positive duration"},
		{"--release-image a --trust b --no-operator --render c", "use either --no-operator"},
		{"--release-image a --trust b --upstream nowhere", "--upstream"},
		{"--release-image a --trust b --cluster-id nonsense", `--cluster-id="nonsense": want a random (version 4) UUID`},
		{"--release-image a --trust b --cluster-id 11111111-2222-1333-8444-555555555555", "want a random (version 4) UUID"},
		{"--release-image a --trust b --no-operator --cluster-admin", "--cluster-admin: --no-operator creates no account"},
		{"--release-image a --trust b --no-operator --payload-retrieval=job", "--payload-retrieval: --no-operator starts no operator"},
		{"--release-image a --trust b --no-operator --bring-your-own-network=false", "--bring-your-own-network: --no-operator starts no operator"},
		{"--release-image a --trust b --no-operator --wait", "--wait: --no-operator starts no operator to wait for"},
		{"--release-image a --trust b --render c --wait=none", "--wait: --render applies nothing"},
		{"--release-image a --trust b --render c --timeout=1m", "--timeout: --render applies nothing"},
		{"--release-image a --trust b --render c --kubeconfig=d", "--kubeconfig: --render uses no cluster"},
		{"--release-image " + folder + ":1.0.0 --trust b", "push the release to a registry"},
	} {
		t.Run("rejects "+tt.args, func(t *testing.T) {
			_, _, err := runCvo(t, append([]string{"install"}, strings.Fields(tt.args)...)...)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, command.ExitUsage, command.ExitCode(err))
		})
	}
}

func outcomes(t *testing.T, stdout string) map[target.Outcome]int {
	t.Helper()
	var report struct {
		Objects []target.Result `json:"objects"`
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &report), stdout)
	count := map[target.Outcome]int{}
	for _, object := range report.Objects {
		count[object.Outcome]++
	}
	return count
}

// TestInstallTimeoutIncludesTheRegistry resolves a release in a registry that never answers.
func TestInstallTimeoutIncludesTheRegistry(t *testing.T) {
	b := bareAt(t, withoutPlatform.For(t))
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer silent.Close()
	img := strings.TrimPrefix(silent.URL, "http://") + "/release:1.0.0"
	for _, args := range [][]string{{"--no-operator"}, nil} {
		_, errs, err := runCvo(t, append([]string{
			"install", "--kubeconfig", b.env.Kubeconfig, "--trust", b.trust, "--release-image", img, "--timeout=100ms",
		}, args...)...)
		assert.Equal(t, command.ExitUpdating, command.ExitCode(err), errs)
		assert.Regexp(t, "error: not (prepared|deployed) within 100ms: ", errs)
	}
}

func TestInstallDeploysTheOperator(t *testing.T) {
	b := newBare(t)
	img := b.signed(t, "1.0.0")
	secret := filepath.Join(t.TempDir(), "pull-secret.json")
	require.NoError(t, os.WriteFile(secret, []byte(`{"auths":{"registry.example":{"auth":"dXNlcjpwYXNz"}}}`), 0o600))
	flags := []string{"--pull-secret", secret, "--payload-retrieval=job", "--channel=stable", "--wait=none", "-o", "json"}

	_, errs, err := b.run(t, img, "--timeout=1ns")
	assert.Equal(t, command.ExitUpdating, command.ExitCode(err), "the timeout passes before anything is applied")
	assert.Contains(t, errs, "error: not deployed within 1ns: ")
	out, errs, err := b.run(t, img, flags...)
	require.NoError(t, err, errs)
	assert.Contains(t, errs, "is signed by")
	count := outcomes(t, out)
	require.Positive(t, count[target.Created])
	out, errs, err = b.run(t, img, flags...)
	require.NoError(t, err, errs)
	again := outcomes(t, out)
	assert.Equal(t, count[target.Created], again[target.Unchanged]+again[target.Changed])
	assert.LessOrEqual(t, again[target.Changed], 0, out)

	trust := &corev1.ConfigMap{}
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: api.ConfigNamespace, Name: api.TrustConfigMap}, trust))
	assert.Contains(t, trust.Data["trust-policy.yaml"], "publicKeys")

	t.Run("reports why the operator does not run, and returns once it runs", b.testWaits(img))
	t.Run("leaves updates to cvo upgrade", func(t *testing.T) {
		cv := &configv1.ClusterVersion{}
		require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
		cv.Status = configv1.ClusterVersionStatus{
			Desired:     configv1.Release{Version: "1.0.0", Image: img.ByDigest()},
			VersionHash: "x", ObservedGeneration: cv.Generation,
			History: []configv1.UpdateHistory{{
				State: configv1.CompletedUpdate, Version: "1.0.0", Image: img.ByDigest(), StartedTime: metav1.Now(), CompletionTime: &metav1.Time{Time: time.Now()},
			}},
		}
		require.NoError(t, b.client.Status().Update(t.Context(), cv))
		out, errs, err := b.run(t, img, "--wait", "--timeout=2m", "--channel=fast")
		require.NoError(t, err, errs)
		assert.Contains(t, out, "Release 1.0.0 is installed.")
		assert.Contains(t, errs, `its channel is "stable": use 'cvo upgrade channel fast' to change it`)

		next := b.signed(t, "1.1.0")
		_, _, err = b.run(t, next)
		require.ErrorContains(t, err, "the cluster already runs release 1.0.0")
		require.ErrorContains(t, err, "cvo upgrade --to-image "+next.ByDigest())
		assert.Equal(t, command.ExitRefused, command.ExitCode(err))
	})
	t.Run("keeps the operator on its node's network", func(t *testing.T) {
		_, errs, err := b.run(t, img, append([]string{"--bring-your-own-network"}, flags...)...)
		require.NoError(t, err, errs)
		_, _, err = b.run(t, img, append([]string{"--bring-your-own-network=false"}, flags...)...)
		require.ErrorContains(t, err, "remove it with 'cvo uninstall'")
		assert.Equal(t, command.ExitRefused, command.ExitCode(err))
		_, errs, err = b.run(t, img, flags...)
		require.NoError(t, err, errs)
	})
}

// unreliable returns the kubeconfig of an unreliable connection to the cluster.
func (b *bare) unreliable(t *testing.T) (kubeconfig string) {
	t.Helper()
	cfg := b.env.Config("test")
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		faults, err := fault.New(next, fault.Options{Seed: 3, Rates: map[fault.Kind]float64{fault.InternalError: 0.03, fault.LostAnswer: 0.03}})
		require.NoError(t, err)
		return faults
	})
	return proxied(t, cfg, func(*http.Request) {})
}

// TestInstallRepeatsRequestsThatFailForNow installs an operator that the tests of uninstall then use.
func TestInstallRepeatsRequestsThatFailForNow(t *testing.T) {
	b := newBare(t)
	img := b.signed(t, "1.0.0")
	_, errs, err := b.run(t, img, "--wait=none", "--kubeconfig", b.unreliable(t))
	require.NoError(t, err, errs)
	assert.Contains(t, errs, "info: the API server is unavailable: injected internal error; trying again\n")
	assert.Contains(t, errs, "info: the API server is unavailable: 502 Bad Gateway; trying again\n")
	t.Run("uninstall repeats them too", b.testDryRun)
	t.Run("uninstall plans during a rollout", b.testDryRunDuringRollout)
	t.Run("uninstall asks for confirmation", b.testConfirmation)
}

// testWaits plays the controllers and nodes that report on the operator. An API server alone lacks them.
func (b *bare) testWaits(img release.Image) func(*testing.T) {
	return func(t *testing.T) {
		key := client.ObjectKey{Namespace: api.OperatorNamespace, Name: target.Operator}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "cluster-version-operator-1", Labels: map[string]string{"k8s-app": target.Operator}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: target.Operator, Image: img.ByDigest()}}},
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "default"}}
		require.NoError(t, b.client.Create(t.Context(), account))
		hardened := pod.Spec.Containers[0].SecurityContext
		if hardened == nil {
			no, yes := false, true
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
			pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
		}
		require.NoError(t, b.client.Create(t.Context(), pod))
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: target.Operator, Image: img.ByDigest(),
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off pulling image"}},
		}}
		require.NoError(t, b.client.Status().Update(t.Context(), pod))

		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		var out bytes.Buffer
		errs := &watched{text: "ImagePullBackOff", then: interrupt}
		cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: &out, Err: errs})
		cmd.SetArgs([]string{"install", "--kubeconfig", b.env.Kubeconfig, "--trust", b.trust, "--release-image", img.ByDigest(), "--timeout=5m"})
		err := cmd.ExecuteContext(ctx)
		assert.Equal(t, command.ExitInterrupted, command.ExitCode(err))
		assert.Contains(t, errs.String(), "warning: Pod cluster-version-operator-1: container cluster-version-operator: ImagePullBackOff: Back-off pulling image\n")
		assert.Contains(t, errs.String(), "error: interrupted: 0 of ")

		deployment := &appsv1.Deployment{}
		require.NoError(t, b.client.Get(t.Context(), key, deployment))
		replicas := *deployment.Spec.Replicas
		deployment.Status = appsv1.DeploymentStatus{
			ObservedGeneration: deployment.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
			Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue}},
		}
		require.NoError(t, b.client.Status().Update(t.Context(), deployment))
		stdout, stderr, err := b.run(t, img)
		require.NoError(t, err, stderr)
		assert.Contains(t, stdout, "The operator runs and installs release 1.0.0. Next:\n  cvo upgrade wait")
	}
}

// watched is a stream that calls then once text has been written to it.
type watched struct {
	text string
	then func()

	mu  sync.Mutex
	buf bytes.Buffer
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.buf.Write(p)
	if strings.Contains(w.buf.String(), w.text) {
		w.then()
	}
	return n, err
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// TestInstallWithoutOperatorKeepsTheAdministratorsChoices prepares a cluster with every option that an administrator can choose.
func TestInstallWithoutOperatorKeepsTheAdministratorsChoices(t *testing.T) {
	b := newBare(t)
	img := b.signed(t, "1.0.0")
	secret := filepath.Join(t.TempDir(), "pull-secret.json")
	require.NoError(t, os.WriteFile(secret, []byte(`{"auths":{"registry.example":{"auth":"dXNlcjpwYXNz"}}}`), 0o600))
	flags := []string{
		"--no-operator", "--pull-secret", secret, "--channel=stable", "--upstream=https://updates.example.com/graph",
		"--cluster-id=11111111-2222-4333-8444-555555555555", "--capability=None", "--capability=Console", "-o", "json",
	}
	out, errs, err := b.run(t, img, flags...)
	require.NoError(t, err, errs)
	assert.Positive(t, outcomes(t, out)[target.Created])
	assert.Contains(t, out, `"reached": "prepared"`)
	cv := &configv1.ClusterVersion{}
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
	assert.Equal(t, configv1.ClusterVersionSpec{
		ClusterID: "11111111-2222-4333-8444-555555555555", Channel: "stable", Upstream: "https://updates.example.com/graph",
		Capabilities: &configv1.ClusterVersionCapabilitiesSpec{
			BaselineCapabilitySet: configv1.ClusterVersionCapabilitySetNone, AdditionalEnabledCapabilities: []configv1.ClusterVersionCapability{"Console"},
		},
	}, cv.Spec)
	stored := &corev1.Secret{}
	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Namespace: api.ConfigNamespace, Name: api.PullSecret}, stored))
	assert.Contains(t, string(stored.Data[corev1.DockerConfigJsonKey]), "registry.example")

	out, errs, err = b.run(t, img, append(flags, "--cluster-id=66666666-2222-4333-8444-555555555555", "--channel=fast")...)
	require.NoError(t, err, errs)
	assert.Zero(t, outcomes(t, out)[target.Created])
	assert.Contains(t, errs, `its cluster ID is "11111111-2222-4333-8444-555555555555": edit spec.clusterID to change it`)
	assert.Contains(t, errs, `its channel is "stable"`)

	require.NoError(t, b.client.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
	completed := metav1.Now()
	cv.Status.Desired = configv1.Release{Version: "2.0.0", Image: "registry.example/release@sha256:" + strings.Repeat("2", 64)}
	cv.Status.History = []configv1.UpdateHistory{{
		State: configv1.CompletedUpdate, Version: "2.0.0", Image: cv.Status.Desired.Image, StartedTime: completed, CompletionTime: &completed,
	}}
	require.NoError(t, b.client.Status().Update(t.Context(), cv))
	_, errs, err = b.run(t, img, "--no-operator")
	require.NoError(t, err, errs)
	assert.Contains(t, errs, "warning: the cluster already runs release 2.0.0", "a preparation of another release is allowed, but does not update the cluster")
}

func TestInstallRendersManifestsWithoutACluster(t *testing.T) {
	b := &bare{registry: fixture.StartRegistry(t)}
	var err error
	b.signer, err = fixture.NewKeySigner()
	require.NoError(t, err)
	key, err := b.signer.PublicKey()
	require.NoError(t, err)
	b.trust = filepath.Join(t.TempDir(), "key.pem")
	require.NoError(t, os.WriteFile(b.trust, key, 0o600))
	img := b.signed(t, "1.0.0")
	folder := filepath.Join(t.TempDir(), "install")
	out, errs, err := runCvo(t, "install", "--trust", b.trust, "--release-image", img.ByDigest(), "--render", folder, "--payload-retrieval=job", "--bring-your-own-network")
	require.NoError(t, err, errs)
	assert.Contains(t, out, "kubectl apply --server-side")
	files, err := filepath.Glob(filepath.Join(folder, "*-deployment-*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	data, err := os.ReadFile(files[0])
	require.NoError(t, err)
	assert.Contains(t, string(data), "CVO_PAYLOAD_RETRIEVAL\n          value: job\n")
	assert.Contains(t, string(data), "image: "+img.ByDigest())
	_, _, err = runCvo(t, "install", "--trust", b.trust, "--release-image", img.ByDigest(), "--render", folder)
	assert.Equal(t, command.ExitRefused, command.ExitCode(err))
}
