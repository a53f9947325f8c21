package integration_test

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
)

// binaries are built once, before any test's clock runs.
var binaries string

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "cvo-integration-")
	if err == nil {
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir, "../../cmd/cvo", "../operators", "../measure")
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err == nil && selected("TestFaultReplicas") {
		err = buildAhead(dir)
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

// selected reports whether a test may run, as far as -run says. What looks like no expression once the names of subtests
// are left out is for package testing to judge.
func selected(test string) bool {
	flag.Parse()
	tests := regexp.MustCompile(`/[^|]*`).ReplaceAllString(flag.Lookup("test.run").Value.String(), "")
	matched, err := regexp.MatchString(tests, test)
	return matched || err != nil
}

// platform is a cluster with a registry, a signer, and what it takes to run cvo against them.
type platform struct {
	t        *testing.T
	env      *env.Env
	registry *fixture.Registry
	signer   *fixture.Signer
	client   client.WithWatch
	dir      string
	trust    string
}

// newPlatform returns a platform that shares nothing with others. A test that mostly waits has one of its own and goes side
// by side with others of its kind; a test that holds times or loads against limits goes alone.
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

// push makes a release image of a folder, pushes it, and signs it if asked.
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

// create creates the objects of YAML files, as an administrator would before the platform is installed.
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

// bootstrap creates what the real platform's operators and installer would have created before.
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

// newRealPlatform returns a platform that is ready for the operator to install 4.22.9, and then 4.23.0.
func newRealPlatform(t *testing.T) (*platform, realReleases) {
	t.Helper()
	data := fixture.Testdata(t)
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

// process is one of our binaries at work.
type process struct {
	*exec.Cmd
	log    string
	exited chan struct{}
}

// start runs a binary until the test ends; its log is shown if the test fails.
func (p *platform) start(name string, args ...string) *process {
	p.t.Helper()
	log, err := os.CreateTemp(p.dir, name+"-*.log")
	require.NoError(p.t, err)
	proc := &process{Cmd: exec.Command(filepath.Join(binaries, name), args...), log: log.Name(), exited: make(chan struct{})}
	proc.Stdout, proc.Stderr = log, log
	proc.Env = append(os.Environ(), "KUBECONFIG="+p.env.Kubeconfig)
	require.NoError(p.t, proc.Start())
	go func() {
		defer close(proc.exited)
		_ = proc.Wait()
		_ = log.Close()
	}()
	p.t.Cleanup(func() {
		proc.kill()
		if p.t.Failed() {
			p.t.Logf("%s %v:\n%s", name, args, tail(proc.log))
		}
	})
	return proc
}

func (proc *process) kill() {
	_ = proc.Process.Kill()
	<-proc.exited
}

// end has the process end by itself. An operator hands its lease over; the lease of one that is killed has to run out.
func (proc *process) end(t *testing.T) {
	t.Helper()
	require.NoError(t, proc.Process.Signal(syscall.SIGTERM))
	select {
	case <-proc.exited:
	case <-time.After(time.Minute):
		require.FailNow(t, "the process does not end when asked to", tail(proc.log))
	}
}

// logged waits until the process has logged a text.
func (proc *process) logged(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(proc.log)
		return err == nil && strings.Contains(string(data), text)
	}, time.Minute, 5*time.Millisecond, "waiting for %q in the log", text)
}

func tail(file string) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-6000):])
}

// run runs a command of cvo to its end and returns what it printed.
func (p *platform) run(args ...string) (stdout string, err error) {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), filepath.Join(binaries, "cvo"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+p.env.Kubeconfig)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%w: %s", err, errs.String())
	}
	return string(out), nil
}

// operator starts cvo with leases that are short, so that a killed one is soon replaced, but stand a busy machine.
func (p *platform) operator(image string, more ...string) *process {
	p.t.Helper()
	return p.start("cvo", append([]string{
		"start", "--release-image", image, "--trust", p.trust,
		"--payload-cache", filepath.Join(p.dir, "cache"), "--listen", "", "--leader-elect-lease-duration", "10s",
		"--leader-elect-renew-deadline", "8s", "--leader-elect-retry-period", "1s",
	}, more...)...)
}

// await watches the ClusterVersion until it satisfies the condition.
func (p *platform) await(what string, timeout time.Duration, condition func(*configv1.ClusterVersion) bool) *configv1.ClusterVersion {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), timeout)
	defer cancel()
	var last *configv1.ClusterVersion
	for ctx.Err() == nil {
		w, err := p.client.Watch(ctx, &configv1.ClusterVersionList{})
		if err != nil {
			break
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
	require.FailNow(p.t, "waiting for "+what+": nothing after "+timeout.String())
	return nil
}

// completed is the condition that the newest history entry is of that version and completed.
func completed(version string) func(*configv1.ClusterVersion) bool {
	return func(cv *configv1.ClusterVersion) bool {
		h := cv.Status.History
		return len(h) > 0 && h[0].Version == version && h[0].State == configv1.CompletedUpdate
	}
}

// condition returns the status, reason and message of a condition in one string.
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
