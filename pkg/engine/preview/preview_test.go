package preview

import (
	"context"
	"flag"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/body"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/golden"
)

// controlPlane is the control plane of all tests in this package. Each test has its own namespaces and names.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	flag.Parse()
	env.Main(m, env.Options{Audit: env.AuditWrites}, func(e *env.Env) { controlPlane = e })
}

var owner = body.Owner{Name: "version", UID: "5b5c5d5e-0000-4000-8000-000000000001"}

// files returns a payload of manifests by file name.
func files(t *testing.T, version string, texts map[string]string) *payload.Payload {
	t.Helper()
	p := &payload.Payload{Release: release.Release{Version: version}}
	names := make([]string, 0, len(texts))
	for name := range texts {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		list, err := manifest.Parse(name, []byte(texts[name]), manifest.Limits{})
		require.NoError(t, err, name)
		p.Manifests = append(p.Manifests, list...)
	}
	return p
}

// install applies a payload as far as the cluster allows.
func install(t *testing.T, p *payload.Payload) {
	t.Helper()
	config := controlPlane.For(t).Config("operator")
	httpClient, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	connection, err := request.Connect(config, httpClient)
	require.NoError(t, err)
	d, err := discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	applier := apply.New(connection, kinds.NewMapper(clock.RealClock{}, d, p.Manifests), owner)
	for _, m := range p.Manifests {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			_, err := applier.Apply(t.Context(), m, release.Updating)
			require.NoError(c, err)
			_, err = kinds.NewMapper(clock.RealClock{}, d, nil).Mapping(t.Context(), m.GVK())
			require.NoError(c, err, "the applier knows the kinds of the release before discovery does")
		}, time.Minute, 20*time.Millisecond, m)
	}
}

// otherClient returns another client.
func otherClient(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(controlPlane.For(t).Config("somebody"), client.Options{})
	require.NoError(t, err)
	return c
}

func create(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := thing(t, text)
	require.NoError(t, otherClient(t).Create(t.Context(), object))
	t.Cleanup(func() {
		_ = otherClient(t).Delete(context.Background(), object) //nolint:usetesting // the test's own context has ended
	})
	return object
}

// look runs a preview and asserts that it writes nothing.
func look(t *testing.T, p *payload.Payload) *Report {
	t.Helper()
	start := time.Now()
	report, _ := lookBy(t, controlPlane.For(t).Config("looks"), p, Options{})
	unwritten(t, "looks", start)
	return report
}

func lookBy(t *testing.T, cfg *rest.Config, p *payload.Payload, options Options) (*Report, []string) {
	t.Helper()
	var requests recorder
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { requests.next = next; return &requests })
	if options.Owner.Name == "" {
		options.Owner = owner
	}
	report, err := Run(t.Context(), cfg, p, options)
	require.NoError(t, err)
	return report, requests.lines
}

// recorder records requests.
type recorder struct {
	next  http.RoundTripper
	mu    sync.Mutex
	lines []string
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.lines = append(r.lines, req.Method+" "+req.URL.RequestURI())
	r.mu.Unlock()
	return r.next.RoundTrip(req)
}

// the returns the result for one object.
func (r *Report) the(t *testing.T, id string) Object {
	t.Helper()
	for _, o := range r.Objects {
		if o.ID.String() == id {
			return o
		}
	}
	var ids []string
	for _, o := range r.Objects {
		ids = append(ids, o.ID.String())
	}
	require.FailNow(t, "not reported", "%s is not among %s", id, strings.Join(ids, ", "))
	return Object{}
}

const namespaceOf = "apiVersion: v1\nkind: Namespace\nmetadata: {name: NS}\n"

// in replaces NS in manifests by a namespace.
func in(namespace string, texts map[string]string) map[string]string {
	out := map[string]string{}
	for name, text := range texts {
		out[name] = strings.ReplaceAll(text, "NS", namespace)
	}
	return out
}

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: dns-operator, namespace: NS}
spec:
  selector: {matchLabels: {app: dns}}
  template:
    metadata: {labels: {app: dns}}
    spec:
      containers:
      - {name: proxy, image: "example.com/proxy:1"}
      - {name: dns, image: "example.com/dns:1", args: [--a, --b], env: [{name: MODE, value: old}]}
`

func TestPreviewChangesNothing(t *testing.T) {
	before := files(t, "1.0.0", in("preview", map[string]string{
		"0000_10_a_00-namespace.yaml":    namespaceOf,
		"0000_70_dns_02-deployment.yaml": deployment,
		"0000_70_dns_03-config.yaml":     "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config, namespace: NS}\ndata: {gone: a, same: b, long: '" + strings.Repeat("0123456789", 20) + "'}",
		"0000_70_dns_04-secret.yaml":     "apiVersion: v1\nkind: Secret\nmetadata: {name: key, namespace: NS}\nstringData: {password: hunter2}",
		"0000_70_dns_05-same.yaml":       "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: same, namespace: NS}\ndata: {a: b}",
		"0000_70_dns_06-old.yaml":        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: old, namespace: NS}\ndata: {a: b}",
		"0000_70_dns_07-once.yaml":       "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: once, namespace: NS, annotations: {release.openshift.io/create-only: 'true'}}\ndata: {a: b}",
	}))
	install(t, before)
	after := files(t, "1.1.0", in("preview", map[string]string{
		"0000_10_a_00-namespace.yaml":    namespaceOf,
		"0000_70_dns_02-deployment.yaml": strings.NewReplacer("dns:1", "dns:2", "value: old", "value: new", "[--a, --b]", "[--b]").Replace(deployment),
		"0000_70_dns_03-config.yaml":     "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config, namespace: NS}\ndata: {same: b, new: c, long: '" + strings.Repeat("0123456789", 19) + "'}",
		"0000_70_dns_04-secret.yaml":     "apiVersion: v1\nkind: Secret\nmetadata: {name: key, namespace: NS}\nstringData: {password: hunter3, more: x}",
		"0000_70_dns_05-same.yaml":       "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: same, namespace: NS}\ndata: {a: b}",
		"0000_70_dns_06-old.yaml":        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: old, namespace: NS, annotations: {release.openshift.io/delete: 'true'}}",
		"0000_70_dns_07-once.yaml":       "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: once, namespace: NS, annotations: {release.openshift.io/create-only: 'true'}}\ndata: {a: c}",
		"0000_70_dns_08-later.yaml":      "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: NS-later}",
		"0000_80_b_00-namespace.yaml":    "apiVersion: v1\nkind: Namespace\nmetadata: {name: NS-later}\n",
		"0000_80_b_01-crd.yaml":          crd("previewed", "v1"),
		"0000_80_b_02-thing.yaml":        "apiVersion: example.com/v1\nkind: Previewed\nmetadata: {name: a}",
		"0000_80_b_03-unknown.yaml":      "apiVersion: example.com/v1\nkind: Nowhere\nmetadata: {name: a}",
		"0000_80_b_04-nowhere.yaml":      "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: NS-nowhere}",
		"0000_80_b_05-invalid.yaml":      strings.NewReplacer("dns-operator", "broken", "name: proxy", "name: NotALabel").Replace(deployment),
		"0000_80_b_06-fields.yaml":       strings.NewReplacer("dns-operator", "fields", "name: proxy", "name: proxy, noSuchField: 1").Replace(deployment),
		"0000_80_b_07-gone.yaml":         "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: never-was, namespace: NS, annotations: {release.openshift.io/delete: 'true'}}",
	}))
	after.Release.Image = "registry.example/platform/release@sha256:1234"
	after.Excluded = []payload.Exclusion{{Manifest: before.Manifests[0], Reason: "test"}}

	inv := inventory.Inventory{Release: "1.0.0"}.With(
		inventory.Record{ID: manifest.ID{Kind: "ConfigMap", Namespace: "preview", Name: "dropped"}, Version: "v1", Release: "1.0.0"},
		inventory.Record{ID: before.Manifests[1].ID(), Version: "v1", Release: "1.0.0"},
	)
	start := time.Now()
	var progress []int
	report, requests := lookBy(t, controlPlane.For(t).Config("preview"), after, Options{Inventory: inv, Progress: func(done, total int) {
		assert.Equal(t, len(after.Manifests), total)
		progress = append(progress, done)
	}})
	var out strings.Builder
	require.NoError(t, WriteText(&out, report, false))
	golden.Assert(t, "preview", out.String())
	assert.Len(t, progress, len(after.Manifests))
	assert.IsIncreasing(t, progress)
	assert.NotContains(t, out.String(), "hunter")
	assert.LessOrEqual(t, len(requests), 2*len(after.Manifests)+2, strings.Join(requests, "\n"))
	unwritten(t, "preview", start)
}

// unwritten asserts that a client has changed nothing.
func unwritten(t *testing.T, agent string, since time.Time) {
	t.Helper()
	events, err := controlPlane.For(t).Audit()
	require.NoError(t, err)
	seen := 0
	for _, e := range events {
		if e.UserAgent == agent && e.Received.After(since) {
			seen++
			assert.False(t, e.Write(), "%s %s", e.Verb, e.URI)
		}
	}
	assert.NotZero(t, seen, "the audit log contains the client")
}

// crd returns a CRD of a cluster-scoped kind that keeps unknown fields.
func crd(kind string, versions ...string) string {
	text := `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ` + kind + `s.example.com}
spec:
  group: example.com
  names: {plural: ` + kind + `s, singular: ` + kind + `, kind: ` + strings.ToUpper(kind[:1]) + kind[1:] + `, listKind: ` + kind + `List}
  scope: Cluster
  versions:
`
	for i, version := range versions {
		storage := "false"
		if i == 0 {
			storage = "true"
		}
		text += `  - name: ` + version + `
    served: true
    storage: ` + storage + `
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {known: {type: string, enum: [a, b]}}}}}}
`
	}
	return text
}
