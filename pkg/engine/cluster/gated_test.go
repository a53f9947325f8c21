package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"reflect"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// workload returns a labeled object of a kind that has a gate.
func workload(t *testing.T, k gate.Kind, name string) *unstructured.Unstructured {
	t.Helper()
	spec := map[string]string{
		"CustomResourceDefinition": `{group: NAME.example.com, scope: Cluster, names: {kind: Thing, plural: things},
			versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}`,
		"APIService": `{group: NAME.aggregated.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 100, service: {namespace: x, name: x}}`,
		"Job":        `{template: {spec: {restartPolicy: Never, containers: [{name: x, image: x}]}}}`,
	}[k.Kind]
	if spec == "" {
		spec = `{selector: {matchLabels: {a: x}}, serviceName: x, template: {metadata: {labels: {a: x}}, spec: {containers: [{name: x, image: x}]}}}`
	}
	spec = string(regexp.MustCompile("NAME").ReplaceAll([]byte(spec), []byte(name)))
	u := &unstructured.Unstructured{Object: map[string]any{}}
	var fields map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(spec), &fields))
	if k.Kind != "StatefulSet" {
		delete(fields, "serviceName")
	}
	u.Object["spec"] = fields
	u.SetGroupVersionKind(k.GroupVersionKind)
	u.SetLabels(map[string]string{api.OwnedByLabel: "version"})
	key := keyOf(k, name)
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	return u
}

// keyOf returns the key of the object that workload returns.
func keyOf(k gate.Kind, name string) client.ObjectKey {
	switch k.Kind {
	case "CustomResourceDefinition":
		return client.ObjectKey{Name: "things." + name + ".example.com"}
	case "APIService":
		return client.ObjectKey{Name: "v1." + name + ".aggregated.example.com"}
	}
	return client.ObjectKey{Namespace: "default", Name: name}
}

// keys returns the keys of the objects that are kept of a kind.
func (g *Gated) keys(k gate.Kind) []client.ObjectKey {
	objects := g.kinds[k.GroupKind()]
	objects.mu.RLock()
	defer objects.mu.RUnlock()
	return slices.Collect(maps.Keys(objects.objects))
}

// connection connects a test to a control plane of its own, as an administrator.
type connection struct {
	config *rest.Config
	web    *http.Client
	scheme *runtime.Scheme
	admin  client.Client
}

func connect(t *testing.T) connection {
	t.Helper()
	c := connection{config: controlPlane.For(t).Config("test")}
	var err error
	c.scheme, err = NewScheme()
	require.NoError(t, err)
	c.admin, err = client.New(c.config, client.Options{})
	require.NoError(t, err)
	c.web, err = rest.HTTPClientFor(c.config)
	require.NoError(t, err)
	return c
}

// TestEveryGatedKindIsWatched checks that a gate of any kind gets objects, from our watches or from the manager's cache, and that they are
// decoded to the type that the gate reads. Otherwise a rollout would wait forever.
func TestEveryGatedKindIsWatched(t *testing.T) {
	scheme, err := NewScheme()
	require.NoError(t, err)
	gated, err := NewGated(&rest.Config{}, http.DefaultClient, scheme, nil, func() {})
	require.NoError(t, err)
	cached := map[reflect.Type]bool{}
	for object := range CacheOptions("version").ByObject {
		cached[reflect.TypeOf(object)] = true
	}
	require.NotEmpty(t, gate.Kinds())
	for _, k := range gate.Kinds() {
		decoded, err := scheme.New(k.GroupVersionKind)
		require.NoError(t, err)
		assert.IsType(t, k.New(), decoded, k.Kind)
		assert.True(t, gated.kinds[k.GroupKind()] != nil || cached[reflect.TypeOf(k.New())], "no watch for the gate of %s", k.Kind)
	}
}

// TestGatesKeepNothingOfStrangers labels objects of each gated kind as ours, before and while they are watched. Only those
// that a manifest names are kept, also after the names have changed.
//
//threat:tenant-labels-many
func TestGatesKeepNothingOfStrangers(t *testing.T) {
	c := connect(t)
	var changes atomic.Int64
	gated, err := NewGated(c.config, c.web, c.scheme, nil, func() { changes.Add(1) })
	require.NoError(t, err)
	names := func(list ...string) observe.Names {
		out := observe.Names{}
		for _, k := range labeledKinds() {
			for _, name := range list {
				out[keyOf(k, name)] = true
			}
		}
		return out
	}
	create := func(list ...string) {
		for _, k := range labeledKinds() {
			for _, name := range list {
				require.NoError(t, c.admin.Create(t.Context(), workload(t, k, name)), "%s %s", k.Kind, name)
			}
		}
	}
	kept := func(want ...string) {
		t.Helper()
		for _, k := range labeledKinds() {
			keys := make([]client.ObjectKey, len(want))
			for i, name := range want {
				keys[i] = keyOf(k, name)
			}
			assert.EventuallyWithT(t, func(t *assert.CollectT) { assert.ElementsMatch(t, keys, gated.keys(k)) }, time.Minute, 10*time.Millisecond, k.Kind)
		}
	}
	create("ours", "stranger")
	go func() { _ = gated.Run(t.Context()) }()
	gated.Want(names("ours", "later"))
	kept("ours")

	create("flood", "later") // the watch delivers them in this order
	kept("ours", "later")
	for _, k := range labeledKinds() {
		id := manifest.ID{Group: k.Group, Kind: k.Kind, Namespace: keyOf(k, "ours").Namespace, Name: keyOf(k, "ours").Name}
		object := gated.object(id)
		require.NotNil(t, object, k.Kind)
		assert.Empty(t, object.GetManagedFields(), "only what a gate reads")
		id.Name = keyOf(k, "flood").Name
		assert.Nil(t, gated.object(id))
	}

	gated.Want(names("stranger", "later"))
	kept("stranger", "later")
	for _, k := range labeledKinds() {
		require.NoError(t, c.admin.Delete(t.Context(), workload(t, k, "later"), client.PropagationPolicy(metav1.DeletePropagationBackground)))
	}
	kept("stranger")

	before := changes.Load()
	flood := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "flood"}}
	for _, patch := range []string{`{"spec":{"replicas":2}}`, `{"spec":{"replicas":3}}`} {
		require.NoError(t, c.admin.Patch(t.Context(), flood, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	named := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "stranger"}}
	require.NoError(t, c.admin.Patch(t.Context(), named, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`))))
	require.Eventually(t, func() bool { return changes.Load() > before }, time.Minute, 10*time.Millisecond)
	assert.Equal(t, before+1, changes.Load(), "an event of an object that no manifest names wakes nothing")
}

// TestForeignWorkloadsAreNotDecoded reads the events of the watches of namespaced kinds, which tenants can create.
//
//threat:tenant-labels-many
func TestForeignWorkloadsAreNotDecoded(t *testing.T) {
	c := connect(t)
	for _, k := range labeledKinds() {
		if keyOf(k, "x").Namespace == "" {
			continue
		}
		kindClient, err := sievedClient(c.config, c.web, c.scheme, k)
		require.NoError(t, err)
		events, err := listWatch(kindClient, k, func(_, name string) bool { return name != "decoded" }).WatchWithContext(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, name := range []string{"foreign", "decoded"} {
			require.NoError(t, c.admin.Create(t.Context(), workload(t, k, name)))
		}
		for event := range events.ResultChan() {
			object, ok := event.Object.(client.Object)
			require.True(t, ok, "%v", event)
			require.Equal(t, "decoded", object.GetName(), k.Kind)
			break
		}
		events.Stop()
	}
}

// withoutWatchLists is a server that cannot start a watch with the initial state. It records the lists of Deployments.
type withoutWatchLists struct {
	next  http.RoundTripper
	mu    sync.Mutex
	lists []url.Values
}

// RoundTrip implements http.RoundTripper.
func (w *withoutWatchLists) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	if query.Has("sendInitialEvents") {
		answer := httptest.NewRecorder()
		http.Error(answer, "", http.StatusUnprocessableEntity)
		return answer.Result(), nil
	}
	if path.Base(r.URL.Path) == "deployments" && !query.Has("watch") {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lists = append(w.lists, query)
	}
	return w.next.RoundTrip(r)
}

// TestForeignWorkloadsAreListedInPages has an old server that lists many workloads which no manifest names.
//
//threat:tenant-labels-many
func TestForeignWorkloadsAreListedInPages(t *testing.T) {
	c := connect(t)
	server := &withoutWatchLists{next: c.web.Transport}
	c.web.Transport = server
	gated, err := NewGated(c.config, c.web, c.scheme, nil, func() {})
	require.NoError(t, err)
	deployments := labeledKinds()[slices.IndexFunc(labeledKinds(), func(k gate.Kind) bool { return k.Kind == "Deployment" })]
	for i := range 50 {
		require.NoError(t, c.admin.Create(t.Context(), workload(t, deployments, fmt.Sprint("listed-", i))))
	}
	last := keyOf(deployments, fmt.Sprint("listed-", 49))
	go func() { _ = gated.Run(t.Context()) }()
	gated.Want(observe.Names{last: true})
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.Equal(t, []client.ObjectKey{last}, gated.keys(deployments))
	}, time.Minute, 10*time.Millisecond)
	server.mu.Lock()
	defer server.mu.Unlock()
	require.Greater(t, len(server.lists), 1)
	for _, query := range server.lists {
		assert.Equal(t, "25", query.Get("limit"))
		assert.Empty(t, query.Get("resourceVersion"))
	}
}

// contentTypes records the content types of the server's watches.
type contentTypes struct {
	next http.RoundTripper
	seen sync.Map
}

// RoundTrip implements http.RoundTripper.
func (c *contentTypes) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.next.RoundTrip(r)
	if err == nil && r.URL.Query().Has("watch") {
		c.seen.Store(path.Base(r.URL.Path), answer.Header.Get("Content-Type"))
	}
	return answer, err
}

// TestCRDsAndAPIServicesArriveAsProtobuf compares the objects that the watches deliver with the server's JSON.
func TestCRDsAndAPIServicesArriveAsProtobuf(t *testing.T) {
	c := connect(t)
	recorder := &contentTypes{next: c.web.Transport}
	c.web.Transport = recorder
	gated, err := NewGated(c.config, c.web, c.scheme, nil, func() {})
	require.NoError(t, err)
	go func() { _ = gated.Run(t.Context()) }()
	gated.Want(nil)
	for _, k := range labeledKinds() {
		if k.Kind != "CustomResourceDefinition" && k.Kind != "APIService" {
			continue
		}
		ctx, object := t.Context(), workload(t, k, "protobuf")
		require.NoError(t, c.admin.Create(ctx, object))
		id := manifest.ID{Group: k.Group, Kind: k.Kind, Name: object.GetName()}
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			require.NoError(t, c.admin.Get(ctx, client.ObjectKeyFromObject(object), object))
			data, err := json.Marshal(object)
			require.NoError(t, err)
			want := k.New()
			require.NoError(t, json.Unmarshal(data, want))
			want.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
			_, err = slim(want)
			require.NoError(t, err)
			assert.NotEmpty(t, object.Object["status"])
			assert.Equal(t, want, gated.object(id))
		}, time.Minute, 50*time.Millisecond)
		contentType, _ := recorder.seen.Load(k.Resource)
		assert.Contains(t, contentType, "application/vnd.kubernetes.protobuf", k.Kind)
	}
}
