package integration_test

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
)

// binaries is the folder with the binaries. They are built once, before the clock of any test runs.
var binaries string

// parallel is the number of parallel tests unless -parallel is set. Most tests wait most of the time, each with its own control plane and
// operator, so this many keep two cores busy. Each needs about half a gigabyte.
const parallel = 6

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	flag.Parse()
	env.SetParallel(parallel)
	dir, err := os.MkdirTemp("", "cvo-integration-")
	if err == nil {
		packages := []string{"../../cmd/cvo", "../operators", "../measure", "../patient"}
		if hasAhead {
			packages = append(packages, "../ahead")
		}
		build := exec.Command("go", append([]string{"build", "-ldflags=-s -w", "-o", dir}, packages...)...)
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building cvo:", err)
		os.Exit(1)
	}
	binaries = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// platform is a cluster with a registry, a signer, and everything else that cvo needs to run against them.
type platform struct {
	t        *testing.T
	env      *env.Env
	registry *fixture.Registry
	signer   *fixture.Signer
	client   client.WithWatch
	dir      string
	trust    string
	// environment has additional variables for processes.
	environment []string
}

// newPlatform returns a platform that shares nothing with others. Tests that mostly wait run in parallel, each with its own platform. Tests
// that compare times or loads with limits run alone.
func newPlatform(t *testing.T) *platform {
	t.Helper()
	p := &platform{t: t, dir: t.TempDir(), registry: fixture.StartRegistry(t)}
	p.env = env.New(t, env.Options{Audit: env.AuditWrites})
	signer, err := fixture.NewSigner("platform", fixture.SignerOptions{})
	require.NoError(t, err)
	p.signer = signer
	trust, err := signer.Trust("file://" + p.store())
	require.NoError(t, err)
	p.trust = filepath.Join(p.dir, "trust.yaml")
	require.NoError(t, os.WriteFile(p.trust, trust, 0o600))
	scheme := runtime.NewScheme()
	require.NoError(t, configv1.Install(scheme))
	p.client, err = client.NewWithWatch(p.env.Config("integration"), client.Options{Scheme: scheme})
	require.NoError(t, err)
	return p
}

func (p *platform) store() string { return filepath.Join(p.dir, "signatures") }

// push creates a release image from a folder and pushes it. It signs the image if signed is set.
func (p *platform) push(files fs.FS, tag string, signed bool) release.Image {
	p.t.Helper()
	img, err := fixture.PushRelease(p.t.Context(), p.registry, files, "platform/release:"+tag)
	require.NoError(p.t, err)
	if signed {
		_, err := p.signer.WriteSignature(p.store(), img)
		require.NoError(p.t, err)
	}
	return img
}

// create creates the objects in YAML files, as an administrator does before the platform is installed.
func (p *platform) create(files ...string) {
	p.t.Helper()
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(p.t, err)
		for document := range strings.SplitSeq("\n"+string(data), "\n---") {
			obj := &unstructured.Unstructured{}
			require.NoError(p.t, yaml.Unmarshal([]byte(document), &obj.Object))
			if len(obj.Object) == 0 {
				continue
			}
			if err := p.client.Create(p.t.Context(), obj); !apierrors.IsAlreadyExists(err) {
				require.NoError(p.t, err, obj.GetName())
			}
		}
	}
}

// crds creates CustomResourceDefinitions of the API module.
func (p *platform) crds(folder string, patterns ...string) {
	p.t.Helper()
	dir, err := exec.CommandContext(p.t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api").Output()
	require.NoError(p.t, err)
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), folder, "zz_generated.crd-manifests", pattern))
		require.NoError(p.t, err)
		require.NotEmpty(p.t, files)
		p.create(files[0])
	}
}

func (p *platform) put(object client.Object) {
	p.t.Helper()
	require.NoError(p.t, p.client.Create(p.t.Context(), object))
}

// bootstrap creates the objects that the real platform's operators and installer create first.
func (p *platform) bootstrap(testdata string) {
	p.t.Helper()
	dir := filepath.Join(testdata, "payloads", "bootstrap")
	p.create(filepath.Join(dir, "namespaces.yaml"), filepath.Join(dir, "imagestream.crd.yaml"))
}

// realReleases are two consecutive releases of a real platform, signed and in the registry.
type realReleases struct {
	fromDir, toDir string
	from, to       release.Image
}

// realTests is locked by the test that works with real releases. A thousand manifests keep the machine busy, so two such tests would delay
// each other.
var realTests sync.Mutex

// newRealPlatform returns a platform on which the operator can install 4.22.9 and then 4.23.0.
func newRealPlatform(t *testing.T) (*platform, realReleases) {
	t.Helper()
	data := fixture.Testdata(t)
	realTests.Lock()
	t.Cleanup(realTests.Unlock)
	p := newPlatform(t)
	r := realReleases{fromDir: filepath.Join(data, "payloads/4.22.9"), toDir: filepath.Join(data, "payloads/4.23.0")}
	r.from = p.push(os.DirFS(r.fromDir), "4.22.9", true)
	r.to = p.push(os.DirFS(r.toDir), "4.23.0", true)
	p.bootstrap(data)
	out, err := p.run("install", "--no-operator", "--release-image", r.from.ByDigest(), "--trust", p.trust)
	require.NoError(t, err)
	require.Contains(t, out, "4.22.9")
	return p, r
}

// run runs a command of cvo to completion and returns its output.
func (p *platform) run(args ...string) (stdout string, err error) {
	p.t.Helper()
	stdout, _, err = p.outputs(args...)
	return stdout, err
}

// outputs is run with the standard error.
func (p *platform) outputs(args ...string) (stdout, stderr string, err error) {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), filepath.Join(binaries, "cvo"), args...)
	cmd.Env = slices.Concat(os.Environ(), p.environment, []string{"KUBECONFIG=" + p.env.Kubeconfig})
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, errs.String())
	}
	return string(out), errs.String(), err
}

// shortLease are flags for operators that are killed or disconnected, so that another one leads soon.
var shortLease = []string{"--leader-elect-lease-duration", "10s", "--leader-elect-renew-deadline", "8s", "--leader-elect-retry-period", "1s"}

// operator starts cvo and restarts it if it ends by itself. Its lease outlasts a machine that is busy for half a minute.
func (p *platform) operator(image string, more ...string) *process {
	p.t.Helper()
	return p.operatorOf("cvo", image, more...)
}

// patient starts an operator like operator, but without timed attempts to accept a rejected release.
func (p *platform) patient(image string, more ...string) *process {
	p.t.Helper()
	return p.operatorOf("patient", image, more...)
}

// awaitTrigger edits an input of the retrieval of a rejected release until a patient operator attempts it again. On a busy machine, its
// watches may begin after the first edit. patch is a merge patch with the number of the edit.
func (p *platform) awaitTrigger(operator *process, input client.Object, patch string) {
	p.t.Helper()
	attempts := func() int {
		data, err := os.ReadFile(operator.log)
		if err != nil {
			return 0
		}
		return strings.Count(string(data), `"release not accepted"`)
	}
	before, edits := attempts(), 0
	require.Eventually(p.t, func() bool {
		edits++
		err := p.client.Patch(p.t.Context(), input, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, patch, edits)))
		return err == nil && attempts() > before
	}, patience, 100*time.Millisecond, "waiting for an edit to trigger an attempt")
}

// operatorOf starts a binary like operator.
func (p *platform) operatorOf(binary, image string, more ...string) *process {
	p.t.Helper()
	return p.keep(binary, append([]string{
		"start", "--release-image", image, "--trust", p.trust,
		"--payload-cache", filepath.Join(p.dir, "cache"), "--listen", "", "--leader-elect-lease-duration", "40s",
		"--leader-elect-renew-deadline", "30s", "--leader-elect-retry-period", "1s",
	}, more...)...)
}

// patience is the minimum timeout of await, because a machine that runs other tests in parallel is slow.
const patience = 5 * time.Minute

// await watches the ClusterVersion until it satisfies the condition.
func (p *platform) await(what string, timeout time.Duration, condition func(*configv1.ClusterVersion) bool) *configv1.ClusterVersion {
	p.t.Helper()
	timeout = max(timeout, patience)
	ctx, cancel := context.WithTimeout(p.t.Context(), timeout)
	defer cancel()
	var last *configv1.ClusterVersion
	var failure error
	for ctx.Err() == nil {
		w, err := p.client.Watch(ctx, &configv1.ClusterVersionList{})
		if err != nil {
			if ctx.Err() == nil {
				failure = err
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		for e := range w.ResultChan() {
			cv, ok := e.Object.(*configv1.ClusterVersion)
			if !ok || e.Type == watch.Deleted {
				continue
			}
			if last = cv; condition(cv) {
				w.Stop()
				return cv
			}
		}
	}
	if last != nil {
		for _, c := range last.Status.Conditions {
			p.t.Logf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	if failure != nil {
		p.t.Logf("the last watch that failed: %v", failure)
	}
	require.FailNow(p.t, "waiting for "+what+": timeout after "+timeout.String())
	return nil
}

// completed returns a condition that holds when the newest history entry is Completed and has that version.
func completed(version string) func(*configv1.ClusterVersion) bool {
	return func(cv *configv1.ClusterVersion) bool {
		h := cv.Status.History
		return len(h) > 0 && h[0].Version == version && h[0].State == configv1.CompletedUpdate
	}
}

// condition returns the status, reason and message of a condition as one string.
func condition(cv *configv1.ClusterVersion, kind configv1.ClusterStatusConditionType) string {
	for _, c := range cv.Status.Conditions {
		if c.Type == kind {
			return strings.Join([]string{string(c.Status), c.Reason, c.Message}, "|")
		}
	}
	return ""
}

// update edits spec.desiredUpdate as an administrator does.
func (p *platform) update(update configv1.Update) {
	p.t.Helper()
	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version"}}
	require.NoError(p.t, p.client.Get(p.t.Context(), client.ObjectKeyFromObject(cv), cv))
	patch := client.MergeFrom(cv.DeepCopy())
	cv.Spec.DesiredUpdate = &update
	require.NoError(p.t, p.client.Patch(p.t.Context(), cv, patch))
}
