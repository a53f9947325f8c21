package apply_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/body"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/fixture/authority"
)

// controlPlane is shared by all tests of the package. Each test has its own namespace and names.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

var owner = body.Owner{Name: "version", UID: "5b5c5d5e-0000-4000-8000-000000000001"}

// exchange is one request with its response.
type exchange struct {
	method, path, query string
	accept, contentType string
	answerType          string
	sent, received      int64
}

// recorder records every exchange. If before is set, it is called before each request.
type recorder struct {
	next   http.RoundTripper
	before func(*http.Request)

	mu        sync.Mutex
	exchanges []*exchange
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	if r.before != nil {
		r.before(req)
	}
	e := &exchange{
		method: req.Method, path: req.URL.Path, query: req.URL.RawQuery, accept: req.Header.Get("Accept"),
		contentType: req.Header.Get("Content-Type"), sent: req.ContentLength,
	}
	resp, err := r.next.RoundTrip(req)
	if err == nil {
		e.answerType = resp.Header.Get("Content-Type")
		resp.Body = &counted{ReadCloser: resp.Body, n: &e.received}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exchanges = append(r.exchanges, e)
	return resp, err
}

// counted counts the bytes read from a body.
type counted struct {
	io.ReadCloser
	n *int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	*c.n += int64(n)
	return n, err
}

// drain returns the exchanges recorded since the last call.
func (r *recorder) drain() []*exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.exchanges
	r.exchanges = nil
	return taken
}

// connect returns an Applier for the control plane and the recorder of its requests, without those for discovery.
func connect(t *testing.T, by body.Owner) (*apply.Applier, *recorder) {
	t.Helper()
	return connectBy(t, by, kinds.NewMapper(clock.RealClock{}, discoverer(t), nil))
}

// connectBy returns an Applier as for objects whose watch shows that the replicas are not ours, which saves a read.
func connectBy(t *testing.T, by body.Owner, mapper apply.Mapper) (*apply.Applier, *recorder) {
	t.Helper()
	config := controlPlane.For(t).Config("apply")
	record := &recorder{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { record.next = next; return record })
	httpClient, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	connection, err := request.Connect(config, httpClient)
	require.NoError(t, err)
	return apply.New(connection, mapper, by).With(apply.Options{ReplicasForeign: true}), record
}

func discoverer(t *testing.T) *discovery.DiscoveryClient {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(controlPlane.For(t).Config("discovery"))
	require.NoError(t, err)
	return d
}

// otherClient returns a client that writes under other field manager names.
func otherClient(t *testing.T) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(controlPlane.For(t).Config("somebody"), client.Options{})
	require.NoError(t, err)
	return c
}

// parse parses one manifest.
func parse(t *testing.T, text string) *manifest.Manifest {
	t.Helper()
	list, err := manifest.Parse("0000_50_x_y.yaml", []byte(text), manifest.Limits{})
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

// fromAPI reads a manifest from the API module that go.mod pins.
func fromAPI(t *testing.T, path ...string) *manifest.Manifest {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api").Output()
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join(append([]string{strings.TrimSpace(string(dir))}, path...)...))
	require.NoError(t, err)
	return parse(t, string(data))
}

func must(t *testing.T, a *apply.Applier, m *manifest.Manifest) apply.Change {
	t.Helper()
	change, err := a.Apply(t.Context(), m, release.Updating)
	require.NoError(t, err)
	return change
}

// namespace creates a namespace for the test.
func namespace(t *testing.T) string {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	name = strings.TrimRight(name[:min(len(name), 60)], "-")
	a, _ := connect(t, body.Owner{})
	must(t, a, parse(t, "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: "+name))
	return name
}

// live returns the object of a manifest as stored in the cluster.
func live(t *testing.T, m *manifest.Manifest) *unstructured.Unstructured {
	t.Helper()
	obj, err := read(t, m)
	require.NoError(t, err)
	return obj
}

func read(t *testing.T, m *manifest.Manifest) (*unstructured.Unstructured, error) {
	t.Helper()
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(m.GVK())
	err := otherClient(t).Get(t.Context(), client.ObjectKeyFromObject(m.Object), obj)
	return obj, err
}

// serveCRD applies a CRD and waits until its kind is served.
func serveCRD(t *testing.T, crd *manifest.Manifest) {
	t.Helper()
	a, _ := connect(t, body.Owner{})
	must(t, a, crd)
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(crd.GVK())
	w, err := otherClient(t).Watch(t.Context(), list, client.MatchingFields{metav1.ObjectNameField: crd.Object.GetName()})
	require.NoError(t, err)
	defer w.Stop()
	for event := range w.ResultChan() {
		obj, ok := event.Object.(*unstructured.Unstructured)
		require.True(t, ok, "%v", event.Object)
		conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == "Established" && c["status"] == "True" {
				discovered(t, crd)
				return
			}
		}
	}
	require.FailNow(t, "the watch ended before the CRD was established")
}

// discovered waits until discovery also lists the kind, which happens shortly after the CRD is established.
func discovered(t *testing.T, crd *manifest.Manifest) {
	t.Helper()
	group, _, _ := unstructured.NestedString(crd.Object.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(crd.Object.Object, "spec", "versions")
	served := slices.IndexFunc(versions, func(v any) bool { return v.(map[string]any)["served"] == true })
	version, _ := versions[served].(map[string]any)["name"].(string)
	d, err := discovery.NewDiscoveryClientForConfig(controlPlane.For(t).Config("tests"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		list, err := d.ServerResourcesForGroupVersion(group + "/" + version)
		return err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind })
	}, time.Minute, 20*time.Millisecond)
}

// ours returns the managedFields entry of our applies in an object, or nil if there is none.
func ours(obj *unstructured.Unstructured) *metav1.ManagedFieldsEntry {
	for _, e := range obj.GetManagedFields() {
		if e.Manager == api.FieldManager && e.Subresource == "" {
			return &e
		}
	}
	return nil
}

// canceled returns a context that is already canceled.
func canceled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := withCancel(t)
	cancel()
	return ctx
}

func withCancel(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, cancel
}

// realManifests returns the manifests of a kind in a real release, the first of each name.
func realManifests(t *testing.T, group, kind string) []*manifest.Manifest {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(fixture.Testdata(t), "payloads/4.23.0/release-manifests/*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	seen := map[manifest.ID]bool{}
	var found []*manifest.Manifest
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		if !bytes.Contains(data, []byte(kind)) {
			continue
		}
		list, err := manifest.Parse(filepath.Base(file), data, manifest.Limits{})
		require.NoError(t, err)
		for _, m := range list {
			if m.Is(group, kind) && !seen[m.ID()] {
				seen[m.ID()] = true
				found = append(found, m)
			}
		}
	}
	require.NotEmpty(t, found)
	return found
}

// thing returns a manifest of a kind that only the tests' own servers serve.
func thing(t *testing.T, annotations string) *manifest.Manifest {
	t.Helper()
	return parse(t, "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a, annotations: {"+annotations+"}}")
}

// encodedBundle returns a CA bundle in the JSON form of the API.
func encodedBundle(t *testing.T) string {
	t.Helper()
	a, err := authority.New("bundle")
	require.NoError(t, err)
	return base64.StdEncoding.EncodeToString(a.Certificate)
}

// eventually and tick are for actions that the server completes a moment later.
const (
	eventually = time.Minute
	tick       = 20 * time.Millisecond
)
