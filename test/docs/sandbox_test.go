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
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/program"
	"github.com/cluster-version/cvo/pkg/engine/cluster"
	updategraph "github.com/cluster-version/cvo/pkg/update/graph"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/fixture/authority"
	"github.com/cluster-version/cvo/test/nodeimage"
	"github.com/cluster-version/cvo/test/ring"
)

// binaries is the folder with cvo, as users have it, and with the program that plays the platform's operators.
var binaries string

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "cvo-docs-")
	if err == nil {
		build := exec.Command("go", "build", "-ldflags=-s -w", "-o", dir, "../../cmd/cvo", "../operators")
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // a release contains this binary
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

// outerTools are programs on the pages that `make test` lacks or does not run. There a substitute fails, so that a walk fails if it runs
// one unnoticed.
var outerTools = []string{"kubectl", "helm", "kustomize", "jq", "make"}

// putTools fills a folder of the PATH with cvo's kubectl plugin. In the outer ring, it adds the kubectl and Helm that make kube-tools and make
// helm build, otherwise substitutes of outerTools.
func putTools(dir string) error {
	targets := map[string]string{"kubectl-cvo": "cvo", "kubectl_complete-cvo": "../../hack/kubectl_complete-cvo"}
	if ring.Outer() {
		kubectl, err := env.Tool("kubectl")
		if err != nil {
			return err
		}
		targets["kubectl"], targets["helm"] = kubectl, "../../bin/peers/helm"
	} else {
		for _, tool := range outerTools {
			script := "#!/bin/sh\necho '" + tool + " runs only in make outer: see outerTools in test/docs' >&2\nexit 127\n"
			if err := os.WriteFile(filepath.Join(dir, tool), []byte(script), 0o700); err != nil {
				return err
			}
		}
	}
	for name, target := range targets {
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

// sandbox is the environment in which a reader tries the documentation: a folder, cvo and kubectl, registries with the host names on the
// pages, and optionally a cluster. Commands run as written, because the environment names a proxy. The proxy leads every host below
// example.com and .example to the same registry with TLS. The exceptions are updates.… (the update service), signatures.… (a signature
// store) and prometheus.… (the host in the Route to the cluster's Prometheus).
type sandbox struct {
	*testing.T
	dir      string
	registry *fixture.Registry
	updates  *fixture.UpdateService
	alerts   *fixture.QueryAPI
	proxy    string
	control  *env.Env
	// digests are the digests of the releases, by version.
	digests map[string]string
	// replaced has pairs: a text on a page and its replacement here.
	replaced []string
	operator *exec.Cmd
	// actors is the process that plays the controllers and the operators of the platform.
	actors *exec.Cmd
	// listen is the address of the operator's endpoint. The pages have the default address.
	listen string
	// ran and omitted are the numbers of commands.
	ran, omitted int
}

func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	needed := []string{"bash", "sed"}
	if ring.Outer() {
		needed = append(needed, "jq")
		for _, tool := range []string{"kubectl", "helm"} {
			_, err := os.Stat(filepath.Join(binaries, tool))
			require.NoError(t, err, "run make kube-tools helm")
		}
	}
	for _, tool := range needed {
		_, err := exec.LookPath(tool)
		require.NoError(t, err, "the documentation uses %s: install it", tool)
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

// startProxy starts a proxy to the servers of the sandbox and issues their certificates.
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
	front.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that are stopped drop their connections
	front.StartTLS()
	s.Cleanup(front.Close)

	s.proxy = fixture.StartProxy(s, func(hostPort string) (string, bool) {
		host, port, _ := net.SplitHostPort(hostPort)
		ours := strings.HasSuffix(host, ".example") || strings.HasSuffix(host, ".example.com")
		return front.Listener.Addr().String(), ours && port != "80" // the server at this address uses TLS
	}).URL
}

// hosts returns the handler for the hosts on the pages.
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

// pushBase pushes the operator's image without a working program, because no pod runs here.
func (s *sandbox) pushBase() {
	s.Helper()
	own, err := input.ReadFiles(manifests.FS())
	require.NoError(s, err)
	index := v1.ImageIndex(empty.Index)
	for _, architecture := range []string{"amd64", "arm64"} {
		base, err := program.Operator(program.ProjectOptions{
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

// componentVersions are the versions in the labels of some component images.
var componentVersions = map[string]string{"example-network": "cni=1.5.1", "example-network-agent": "cni=1.5.1"}

// pushComponents pushes the images of the example platform, with only the content that is read here, and lists them in a mapping file. It
// returns their digests by name.
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
	_, err = nodeimage.Push(s.Context(), s.registry, "platform/node:1")
	require.NoError(s, err)
	fmt.Fprintf(&mapping, "%s=registry.example.com/platform/node:1\n", nodeimage.Component)
	require.NoError(s, os.WriteFile(s.path("images.mapping"), []byte(mapping.String()), 0o600))
	return pushed
}

func (s *sandbox) path(name string) string { return filepath.Join(s.dir, name) }

// releases creates and signs 1.0.0 and 1.1.0 of the example platform with the node stage, as its page describes.
func (s *sandbox) releases() {
	s.Helper()
	s.shell("cvo release keygen --out keys && cp keys/trust.yaml trust.yaml")
	s.pushComponents()
	for _, version := range []string{"1.0.0", "1.1.0"} {
		out := s.shell(fmt.Sprintf("cvo release new --from-dir examples/platform/%[1]s --from-dir examples/platform/nodes/%[1]s --name %[1]s --previous 1.0.0 --mapping-file images.mapping "+
			"--to-image-base registry.example.com/cvo:v1 --to-image registry.example.com/platform/release:%[1]s", version))
		s.digests[version], _, _ = strings.Cut(out, " ")
		s.shell("cvo release sign registry.example.com/platform/release:" + version + " --key keys/private.pem")
	}
	s.updates.Set(s.T, fixture.UpdateGraph(
		configv1.Release{Version: "1.0.0", Image: "registry.example.com/platform/release@" + s.digests["1.0.0"]},
		configv1.Release{Version: "1.1.0", Image: "registry.example.com/platform/release@" + s.digests["1.1.0"]}))
}

// cluster starts an API server, and a process that plays the controllers of Kubernetes and the operators of the platform. It stops an
// earlier cluster.
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

// act starts the controllers and the operators of the platform.
func (s *sandbox) act(operators ...string) {
	s.Helper()
	s.actors = s.background(filepath.Join(binaries, "operators"), operators...)
}

// end stops a process that background started.
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

// pods starts the operator as a process, because nothing here runs the pods of its Deployment.
func (s *sandbox) pods(version string, repository ...string) {
	s.Helper()
	s.operator = s.background(filepath.Join(binaries, "cvo"), s.start(version, repository)...)
}

// start extracts the release image into a folder, as a pod of the image has it, and returns the arguments for cvo.
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

// deployed starts the operator when its Deployment exists.
func (s *sandbox) deployed(version string, repository ...string) {
	s.Helper()
	arguments, c, found := strings.Join(s.start(version, repository), " "), s.client(), s.path("deployed")
	s.operator = s.background("bash", "-c", "until [ -e "+found+" ]; do sleep 0.1; done; exec cvo "+arguments)
	ctx := s.Context()
	go func() {
		err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			return c.Get(ctx, client.ObjectKey{Namespace: api.OperatorNamespace, Name: "cluster-version-operator"}, &appsv1.Deployment{}) == nil, nil
		})
		if err == nil {
			_ = os.WriteFile(found, nil, 0o600)
		}
	}()
}

// client returns a client of the cluster.
func (s *sandbox) client() client.Client {
	s.Helper()
	scheme, err := cluster.NewScheme()
	require.NoError(s, err)
	c, err := client.New(s.control.Config("docs"), client.Options{Scheme: scheme})
	require.NoError(s, err)
	return c
}

// namespace creates a namespace.
func (s *sandbox) namespace(name string) {
	s.Helper()
	require.NoError(s, s.client().Create(s.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

func (s *sandbox) environment() []string {
	environment := []string{
		"PATH=" + binaries + ":" + os.Getenv("PATH"), "HOME=" + s.dir, "XDG_RUNTIME_DIR=" + s.dir,
		"HTTPS_PROXY=" + s.proxy, "NO_PROXY=127.0.0.1,localhost", "SSL_CERT_FILE=" + s.path("authorities.pem"),
		"SOURCE_DATE_EPOCH=1767225600", "TERM=dumb", "COLUMNS=120",
	}
	if s.control != nil {
		environment = append(environment, "KUBECONFIG="+s.control.Kubeconfig)
	}
	return environment
}

// shell runs a script that is not on a page. The script must succeed. shell returns its output.
func (s *sandbox) shell(script string) string {
	s.Helper()
	stdout, both, err := s.bash(script)
	require.NoError(s, err, "%s\n%s", script, both)
	return stdout
}

// tool runs a program in the environment of the test instead of the sandbox.
func (s *sandbox) tool(program string, args ...string) string {
	s.Helper()
	out, err := exec.CommandContext(s.Context(), program, args...).Output()
	require.NoError(s, err)
	return strings.TrimSpace(string(out))
}

// make returns the command that runs make here: in the repository, with Go's caches, which the sandbox lacks.
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

// eventually runs a script until it succeeds.
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
	require.Fail(s, "the script did not succeed in time", "%s\n%s", script, both)
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

// terminal records stdout and stderr in the order of the writes.
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

// resolve inserts the digest of the release, as a reader would do, for the version in the command.
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

// run runs a command of a page and compares its output with the page.
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
	fails := slices.ContainsFunc(c.output, func(line string) bool {
		return strings.HasPrefix(line, "error: ") || strings.HasPrefix(line, `{"error":`)
	})
	if fails {
		require.Error(s, err, "%s\nThe page shows an error, but the command succeeded and printed:\n%s", at, both)
	} else {
		require.NoError(s, err, "%s\n%s", at, both)
	}
	if missing, ok := shown(s.resolve(strings.Join(c.output, "\n")), both); !ok {
		require.Fail(s, "the page shows a line that the command did not print", "%s\nmissing: %s\nprinted:\n%s", at, missing, both)
	}
}

// watch runs a command that only its reader ends, and stops it when all output on the page has been printed.
func (s *sandbox) watch(at, text string, output []string) {
	s.Helper()
	page, missing := s.resolve(strings.Join(output, "\n")), ""
	require.NotEmpty(s, page, "%s: the page does not show the last output", at)
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
	require.Fail(s, "the page shows a line that the command did not print", "%s\nmissing: %s", at, missing)
}

// volatile matches text that differs between runs: numbers, times, digests and names derived from them, but not versions.
var volatile = regexp.MustCompile(`\b\d+\.\d+\.\d+\b|\b(sha256:)?[0-9a-f]{6,}\b|\b[0-9A-F]{16}\b|[0-9]+`)

// shown reports whether the output has every line of a page in order, possibly with other lines in between. It ignores spaces and all
// numbers except versions; … matches anything. missing is the first missing line.
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
