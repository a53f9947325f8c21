package docs_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/require"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/assemble"
	"github.com/cluster-version/cvo/pkg/updategraph"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/fixture/authority"
)

// binaries has cvo, as users have it, and what plays the platform's operators.
var binaries string

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "cvo-docs-")
	if err == nil {
		build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir, "../../cmd/cvo", "../operators")
		build.Stderr = os.Stderr
		err = build.Run()
	}
	if err == nil {
		err = putTools(dir)
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

// putTools puts into a folder what commands are looked for in: beside cvo its plugin, and the kubectl and Helm that make
// kube-tools and make helm build.
func putTools(dir string) error {
	for name, target := range map[string]string{
		"kubectl-cvo": "cvo", "kubectl_complete-cvo": "../../hack/kubectl_complete-cvo", "kubectl": "../../bin/kube/kubectl", "helm": "../../bin/peers/helm",
	} {
		if where := os.Getenv("CVO_KUBE_BIN"); name == "kubectl" && where != "" {
			target = filepath.Join(where, name)
		}
		if name != "kubectl-cvo" {
			var err error
			if target, err = filepath.Abs(target); err != nil {
				return err
			}
		}
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// sandbox is where a reader tries the documentation: a folder to work in, cvo and kubectl, registries under the names that
// the pages use, and perhaps a cluster. Commands are run as they are written. What makes that possible is a proxy in the
// environment, behind which every host below example.com and .example is the same registry over TLS; but updates.… is the
// update service, signatures.… a store of signatures, and prometheus.… what the cluster's Route to its Prometheus names.
type sandbox struct {
	*testing.T
	dir      string
	registry *fixture.Registry
	updates  *fixture.UpdateService
	alerts   *fixture.QueryAPI
	proxy    string
	control  *env.Env
	// digests are those of the releases, by version.
	digests map[string]string
	// replaced are words of a page that mean something else here.
	replaced []string
	operator *exec.Cmd
	// actors play the controllers and the operators of the platform.
	actors *exec.Cmd
	// listen is where the operator listens here; the pages have the default.
	listen string
	ran    int
}

func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	for _, tool := range []string{"bash", "jq", "sed"} {
		_, err := exec.LookPath(tool)
		require.NoError(t, err, "the documentation uses %s: install it", tool)
	}
	for _, tool := range []string{"kubectl", "helm"} {
		_, err := os.Stat(filepath.Join(binaries, tool))
		require.NoError(t, err, "run make kube-tools helm")
	}
	s := &sandbox{T: t, dir: t.TempDir(), registry: fixture.StartRegistry(t), digests: map[string]string{}}
	s.updates = fixture.StartUpdateService(t, updategraph.Graph{})
	s.alerts = fixture.StartQueryAPI(t)
	s.startProxy()
	s.listen = freeAddress(t)
	s.replaced = []string{"cvo status --orphans", "cvo status --orphans", "cvo status --signatures", "cvo status --signatures", "cvo status", "cvo status --server https://" + s.listen}
	repository, err := filepath.Abs(root)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "bin"), 0o750))
	tools, err := os.ReadDir(binaries)
	require.NoError(t, err)
	for _, tool := range tools {
		require.NoError(t, os.Symlink(filepath.Join(binaries, tool.Name()), filepath.Join(s.dir, "bin", tool.Name())))
	}
	for name, target := range map[string]string{
		"examples":   filepath.Join(repository, "examples"),
		"components": filepath.Join(repository, "examples", "platform", "1.1.0"),
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(s.dir, name)))
	}
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "pull-secret.json"), []byte(`{"auths":{"registry.example.com":{"auth":"YTpi"}}}`), 0o600))
	s.pushBase()
	return s
}

func freeAddress(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// startProxy starts a proxy that leads to what the sandbox has, and makes the certificates for it.
func (s *sandbox) startProxy() {
	s.Helper()
	ca, err := authority.New("sandbox")
	require.NoError(s, err)
	require.NoError(s, os.WriteFile(s.path("authorities.pem"), ca.Certificate, 0o600))

	front := httptest.NewUnstartedServer(s.hosts())
	front.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		certificate, err := ca.Issue(hello.ServerName)
		return &certificate, err
	}}
	front.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that stop hang up
	front.StartTLS()
	s.Cleanup(front.Close)

	s.proxy = fixture.StartProxy(s, func(hostPort string) (string, bool) {
		host, port, _ := net.SplitHostPort(hostPort)
		ours := strings.HasSuffix(host, ".example") || strings.HasSuffix(host, ".example.com")
		return front.Listener.Addr().String(), ours && port != "80" // what is there speaks TLS
	}).URL
}

// hosts is what answers for the hosts that the pages name.
func (s *sandbox) hosts() http.Handler {
	s.Helper()
	signatures := http.FileServer(http.Dir(s.path("signatures")))
	behind := func(address string) http.Handler {
		target, err := url.Parse(address)
		require.NoError(s, err)
		return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	}
	registry, updates, alerts := behind(s.registry.URL()), behind(s.updates.URL()), behind(s.alerts.URL())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, _ := strings.Cut(r.Host, ".")
		switch name {
		case "updates":
			updates.ServeHTTP(w, r)
		case "prometheus":
			alerts.ServeHTTP(w, r)
		case "signatures":
			signatures.ServeHTTP(w, r)
		default:
			registry.ServeHTTP(w, r)
		}
	})
}

// pushBase pushes the operator's image, without a program: nothing is run in a pod here.
func (s *sandbox) pushBase() {
	s.Helper()
	require.True(s, manifests.Complete(), "run make crds")
	own, err := assemble.ReadFiles(manifests.FS())
	require.NoError(s, err)
	index := v1.ImageIndex(empty.Index)
	for _, architecture := range []string{"amd64", "arm64"} {
		base, err := assemble.OperatorImage(assemble.OperatorImageOptions{
			Binary: []byte("cvo"), Manifests: own, Architecture: architecture, Version: "v1", Created: time.Unix(1767225600, 0),
		})
		require.NoError(s, err)
		if architecture == runtime.GOARCH {
			_, err = fixture.Push(s.Context(), s.registry, base, "cvo:v1")
			require.NoError(s, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: base, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	at, err := url.Parse(s.registry.URL())
	require.NoError(s, err)
	tag, err := name.NewTag(at.Host+"/cvo:v1.2.3", name.Insecure)
	require.NoError(s, err)
	require.NoError(s, remote.WriteIndex(tag, index, remote.WithContext(s.Context())))
}

var componentImage = regexp.MustCompile(`registry\.example\.com/platform/([a-z-]+)@`)

// componentVersions are what the images of some components say of what is in them.
var componentVersions = map[string]string{"example-network": "cni=1.5.1", "example-network-agent": "cni=1.5.1"}

// pushComponents pushes the images that the example platform names, as far as anybody looks into them here, and lists
// them in a mapping file. It returns their digests by name.
func (s *sandbox) pushComponents() map[string]string {
	s.Helper()
	files, err := filepath.Glob(s.path("examples/platform/*/image-references"))
	require.NoError(s, err)
	pushed := map[string]string{}
	var mapping strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(s, err)
		for _, found := range componentImage.FindAllStringSubmatch(string(data), -1) {
			if name := found[1]; pushed[name] == "" {
				image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
					OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"}, Author: name,
					Config: v1.Config{Labels: map[string]string{"io.openshift.build.versions": componentVersions[name]}},
				})
				require.NoError(s, err)
				there, err := fixture.Push(s.Context(), s.registry, image, "platform/"+name+":1")
				require.NoError(s, err)
				pushed[name] = string(there.Digest)
				fmt.Fprintf(&mapping, "%s=registry.example.com/platform/%s:1\n", name, name)
			}
		}
	}
	require.NotEmpty(s, pushed)
	require.NoError(s, os.WriteFile(s.path("images.mapping"), []byte(mapping.String()), 0o600))
	return pushed
}

func (s *sandbox) path(name string) string { return filepath.Join(s.dir, name) }

// releases makes and signs 1.0.0 and 1.1.0 of the example platform, as make-your-own-platform.md says.
func (s *sandbox) releases() {
	s.Helper()
	s.shell("cvo release keygen --out keys && cp keys/trust.yaml trust.yaml")
	s.pushComponents()
	for _, version := range []string{"1.0.0", "1.1.0"} {
		out := s.shell(fmt.Sprintf("cvo release new --from-dir examples/platform/%[1]s --name %[1]s --previous 1.0.0 --mapping-file images.mapping "+
			"--to-image-base registry.example.com/cvo:v1 --to-image registry.example.com/platform/release:%[1]s", version))
		s.digests[version], _, _ = strings.Cut(out, " ")
		s.shell("cvo release sign registry.example.com/platform/release:" + version + " --key keys/private.pem")
	}
	s.updates.Set(s.T, fixture.UpdateGraph(
		configv1.Release{Version: "1.0.0", Image: "registry.example.com/platform/release@" + s.digests["1.0.0"]},
		configv1.Release{Version: "1.1.0", Image: "registry.example.com/platform/release@" + s.digests["1.1.0"]}))
}

// cluster starts an API server, and others who play the controllers of Kubernetes and the operators of the platform. One
// that was there ends.
func (s *sandbox) cluster(operators ...string) {
	s.Helper()
	if s.control != nil {
		s.end(s.operator)
		s.end(s.actors)
		require.NoError(s, s.control.Stop())
	}
	s.control = env.New(s.T, env.Options{Audit: env.AuditNone})
	s.act(operators...)
}

// act has the controllers and the operators of the platform work.
func (s *sandbox) act(operators ...string) {
	s.Helper()
	s.actors = s.background(filepath.Join(binaries, "operators"), operators...)
}

// end stops what background began.
func (s *sandbox) end(cmd *exec.Cmd) {
	if cmd != nil && cmd.ProcessState == nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}
}

// background runs a program until the test ends.
func (s *sandbox) background(program string, args ...string) *exec.Cmd {
	s.Helper()
	log, err := os.CreateTemp(s.dir, "log-*")
	require.NoError(s, err)
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = s.dir, s.environment(), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(s, cmd.Start())
	s.Cleanup(func() {
		s.end(cmd)
		_ = log.Close()
		if data, err := os.ReadFile(log.Name()); s.Failed() && err == nil {
			s.Logf("%s %v:\n%s", program, args, data[max(0, len(data)-3000):])
		}
	})
	return cmd
}

// pods is the operator, in place of the pods of its Deployment, which nobody runs here.
func (s *sandbox) pods(version string, repository ...string) {
	s.Helper()
	s.operator = s.background(filepath.Join(binaries, "cvo"), s.start(version, repository)...)
}

// start has the release image's files in a folder, as a pod that runs the image has them.
func (s *sandbox) start(version string, repository []string) []string {
	s.Helper()
	image := append(repository, "registry.example.com/platform/release")[0] + "@" + s.digests[version]
	root := s.path(fmt.Sprintf("root-%d", time.Now().UnixNano()))
	s.shell("cvo release extract --quiet --layout image " + image + " --to " + root)
	return []string{
		"start", "--release-image", image, "--payload-dir", root, "--payload-cache", s.path("cache"),
		"--listen", s.listen, "--serving-cert-file", s.path("tls.crt"), "--serving-key-file", s.path("tls.key"), "--serving-cert-optional",
		"--leader-elect-lease-duration", "30s", "--leader-elect-renew-deadline", "25s",
	}
}

// deployed starts the operator as soon as there is a Deployment for it.
func (s *sandbox) deployed(version string, repository ...string) {
	s.Helper()
	s.operator = s.background("bash", "-c", `until kubectl -n openshift-cluster-version get deployment cluster-version-operator; do sleep 0.2; done
exec cvo `+strings.Join(s.start(version, repository), " "))
}

func (s *sandbox) environment() []string {
	environment := []string{
		"PATH=" + binaries + ":" + s.path("kubectl") + ":" + os.Getenv("PATH"), "HOME=" + s.dir, "XDG_RUNTIME_DIR=" + s.dir,
		"HTTPS_PROXY=" + s.proxy, "NO_PROXY=127.0.0.1,localhost", "SSL_CERT_FILE=" + s.path("authorities.pem"),
		"SOURCE_DATE_EPOCH=1767225600", "TERM=dumb", "COLUMNS=120",
	}
	if s.control != nil {
		environment = append(environment, "KUBECONFIG="+s.control.Kubeconfig)
	}
	return environment
}

// shell runs what is not on a page and must work.
func (s *sandbox) shell(script string) string {
	s.Helper()
	stdout, both, err := s.bash(script)
	require.NoError(s, err, "%s\n%s", script, both)
	return stdout
}

// tool runs a program as the test itself does, not as in the sandbox.
func (s *sandbox) tool(program string, args ...string) string {
	s.Helper()
	out, err := exec.CommandContext(s.Context(), program, args...).Output()
	require.NoError(s, err)
	return strings.TrimSpace(string(out))
}

// make is how make is run here: in the repository, with the caches of Go that the sandbox does not have.
func (s *sandbox) make(args string) string {
	s.Helper()
	repository, err := filepath.Abs(root)
	require.NoError(s, err)
	script := "env"
	for _, name := range []string{"GOPATH", "GOCACHE", "GOMODCACHE"} {
		script += " " + name + "=" + s.tool("go", "env", name)
	}
	return script + " make -C " + repository + " " + args
}

// eventually runs something until it works.
func (s *sandbox) eventually(script string) {
	s.Helper()
	var both string
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); {
		var err error
		if _, both, err = s.bash(script); err == nil {
			return
		}
		select {
		case <-s.Context().Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	require.Fail(s, "this does not come true", "%s\n%s", script, both)
}

const commandTimeout = 2 * time.Minute

func (s *sandbox) bash(script string) (stdout, both string, err error) {
	ctx, cancel := context.WithTimeout(s.Context(), commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = s.dir, s.environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var (
		out bytes.Buffer
		all terminal
	)
	cmd.Stdout = io.MultiWriter(&out, &all)
	cmd.Stderr = &all
	err = cmd.Run()
	return out.String(), all.text.String(), err
}

// terminal shows what is printed on either way.
type terminal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

var (
	placeholder = regexp.MustCompile(`sha256:[0-9a-f]*…`)
	madeRelease = regexp.MustCompile(`(?m)^(sha256:[0-9a-f]{64}) (\S+) \d`)
	anyVersion  = regexp.MustCompile(`\b\d+\.\d+\.\d+\b`)
)

// resolve puts in what a reader puts in: the digest of the release that is meant, for the version that the command names.
func (s *sandbox) resolve(text string) string {
	text = strings.NewReplacer(s.replaced...).Replace(text)
	digest := s.digests["1.1.0"]
	if strings.Contains(text, "cvo install") || strings.Contains(text, "cvo start") {
		digest = s.digests["1.0.0"]
	}
	for _, version := range anyVersion.FindAllString(text, -1) {
		if known, ok := s.digests[version]; ok {
			digest = known
		}
	}
	if digest != "" {
		text = placeholder.ReplaceAllString(text, digest)
	}
	return text
}

// run runs a command of a page and compares what it prints with what the page shows.
func (s *sandbox) run(page string, c typed) {
	s.Helper()
	s.ran++
	text := s.resolve(c.text)
	at := fmt.Sprintf("%s:%d: %s", page, c.line, text)
	if strings.Contains(text, "cvo start ") {
		s.operator = s.background("bash", "-c", text+" --listen "+s.listen)
		return
	}
	if strings.HasSuffix(text, " -w") {
		s.watch(at, text, c.output)
		return
	}
	stdout, both, err := s.bash(text)
	if made := madeRelease.FindStringSubmatch(stdout); made != nil && strings.HasPrefix(text, "cvo release new") {
		s.digests[made[2]] = made[1]
	}
	fails := slices.ContainsFunc(c.output, func(line string) bool { return strings.HasPrefix(line, "error: ") })
	if fails {
		require.Error(s, err, "%s\nThe page shows an error here. It printed:\n%s", at, both)
	} else {
		require.NoError(s, err, "%s\n%s", at, both)
	}
	if missing, ok := shown(s.resolve(strings.Join(c.output, "\n")), both); !ok {
		require.Fail(s, "the page shows a line that is not printed", "%s\nmissing: %s\nprinted:\n%s", at, missing, both)
	}
}

// watch runs a command that only its reader ends, once all that the page shows has been printed.
func (s *sandbox) watch(at, text string, output []string) {
	s.Helper()
	page, missing := s.resolve(strings.Join(output, "\n")), ""
	require.NotEmpty(s, page, "%s: the page does not show what it ends with", at)
	cmd := s.background("bash", "-c", "exec "+text)
	defer s.end(cmd)
	for deadline := time.Now().Add(commandTimeout); time.Now().Before(deadline); {
		printed, err := os.ReadFile(cmd.Stdout.(*os.File).Name())
		require.NoError(s, err)
		var ok bool
		if missing, ok = shown(page, string(printed)); ok {
			return
		}
		select {
		case <-s.Context().Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	require.Fail(s, "the page shows a line that is not printed", "%s\nmissing: %s", at, missing)
}

// volatile is what differs from one run to another: numbers, times, digests and what hangs on them, but not versions.
var volatile = regexp.MustCompile(`\b\d+\.\d+\.\d+\b|\b(sha256:)?[0-9a-f]{6,}\b|\b[0-9A-F]{16}\b|[0-9]+`)

// shown tells whether every line of a page is printed, in this order; what is printed in between may be more. Spaces and
// numbers other than versions do not count, … stands for anything.
func shown(page, printed string) (missing string, ok bool) {
	lines := strings.Split(printed, "\n")
	for wanted := range strings.SplitSeq(page, "\n") {
		pattern := loosely(wanted)
		if pattern == "" || pattern == "^$" {
			continue
		}
		matches := regexp.MustCompile(pattern)
		at := slices.IndexFunc(lines, func(line string) bool { return matches.MatchString(fold(line)) })
		if at < 0 {
			return wanted, false
		}
		lines = lines[at+1:]
	}
	return "", true
}

func fold(line string) string {
	return strings.Join(strings.Fields(volatile.ReplaceAllStringFunc(line, func(found string) string {
		if anyVersion.MatchString(found) {
			return found
		}
		return "#"
	})), " ")
}

func loosely(line string) string {
	if strings.Trim(line, " …") == "" {
		return ""
	}
	parts := strings.Split(line, "…")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(fold(part))
	}
	return "^" + strings.Join(parts, ".*") + "$"
}
