package observe_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/test/env"
)

// controlPlane is the control plane of all tests that do not stop it. Each test has its own namespace and names.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{}, func(e *env.Env) { controlPlane = e })
}

// patience is the maximum wait for events that take only a moment on an idle machine.
const patience = 60 * time.Second

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// owned selects the objects of one test by the test's own label value.
func owned(t testing.TB) labels.Selector {
	return labels.SelectorFromSet(labels.Set{api.OwnedByLabel: testName(t)})
}

// testName returns a name derived from the test's name.
func testName(t testing.TB) string {
	name := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(t.Name()))
	return strings.TrimRight(name[:min(len(name), 60)], "-")
}

// watching is a running Watcher.
type watching struct {
	*observe.Watcher
	// changes is the number of calls of changed.
	changes *atomic.Int64
	// stop ends the Watcher and waits for its end.
	stop func()
}

// start runs a Watcher until the test ends.
func start(t testing.TB, config *rest.Config, selector labels.Selector, log logr.Logger) watching {
	t.Helper()
	client, err := metadata.NewForConfig(config)
	require.NoError(t, err)
	var changes atomic.Int64
	w := observe.New(client, selector, log, func() { changes.Add(1) })
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(patience):
			t.Error("the Watcher has not ended")
		}
	})
	t.Cleanup(stop)
	return watching{Watcher: w, changes: &changes, stop: stop}
}

func watcher(t testing.TB) watching {
	t.Helper()
	return start(t, controlPlane.For(t).Config(testName(t)), owned(t), testLog(t))
}

func testLog(t testing.TB) logr.Logger {
	return testr.NewWithInterface(t, testr.Options{Verbosity: 1})
}

// synced waits until a scope is synced.
func (w watching) synced(t testing.TB, s observe.Scope) {
	t.Helper()
	w.until(t, s, "", "", func(l observe.Look) bool { return l.Synced })
}

// until waits until a look at an object satisfies wanted.
func (w watching) until(t testing.TB, s observe.Scope, namespace, name string, wanted func(observe.Look) bool) observe.Look {
	t.Helper()
	var look observe.Look
	require.Eventually(t, func() bool {
		look = w.Look(s, namespace, name)
		return wanted(look)
	}, patience, 2*time.Millisecond)
	return look
}

// callsAfter waits for more calls of changed than the given number. An object's state may be visible slightly before the call.
func (w watching) callsAfter(t testing.TB, changes int64) {
	t.Helper()
	require.Eventually(t, func() bool { return w.changes.Load() > changes }, patience, time.Millisecond)
}

func there(l observe.Look) bool { return l.Synced && l.State != nil }
func gone(l observe.Look) bool  { return l.Synced && l.State == nil }

// at returns a condition on an object's resource version.
func at(version string) func(observe.Look) bool {
	return func(l observe.Look) bool { return there(l) && l.State.ResourceVersion == version }
}

// writer writes objects with the name of a field manager.
type writer struct {
	dynamic.Interface
	manager string
}

func as(t testing.TB, e *env.Env, manager string) writer {
	t.Helper()
	client, err := dynamic.NewForConfig(e.Config("writer"))
	require.NoError(t, err)
	return writer{client, manager}
}

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &obj.Object))
	return obj
}

func (w writer) on(r schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return w.Resource(r)
	}
	return w.Resource(r).Namespace(namespace)
}

// apply applies an object with force.
func (w writer) apply(t testing.TB, r schema.GroupVersionResource, obj *unstructured.Unstructured, subresource ...string) *unstructured.Unstructured {
	t.Helper()
	result, err := w.on(r, obj.GetNamespace()).Apply(t.Context(), obj.GetName(), obj,
		metav1.ApplyOptions{FieldManager: w.manager, Force: true}, subresource...)
	require.NoError(t, err)
	return result
}

// edit reads, changes and updates an object, like kubectl edit.
func (w writer) edit(t testing.TB, r schema.GroupVersionResource, namespace, name string, change func(map[string]any)) *unstructured.Unstructured {
	t.Helper()
	for {
		obj, err := w.on(r, namespace).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		change(obj.Object)
		result, err := w.on(r, namespace).Update(t.Context(), obj, metav1.UpdateOptions{FieldManager: w.manager})
		if apierrors.IsConflict(err) {
			continue
		}
		require.NoError(t, err)
		return result
	}
}

func (w writer) delete(t testing.TB, r schema.GroupVersionResource, namespace, name string) {
	t.Helper()
	require.NoError(t, w.on(r, namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
}

func set(t testing.TB, obj map[string]any, value any, path ...string) {
	t.Helper()
	require.NoError(t, unstructured.SetNestedField(obj, value, path...))
}

// namespace creates a namespace for the test.
func namespace(t testing.TB) string {
	t.Helper()
	name := testName(t)
	as(t, controlPlane.For(t), api.FieldManager).apply(t, namespaces, object(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}"))
	return name
}

// configMap returns a ConfigMap that the test owns.
func configMap(t testing.TB, namespace, name, data string) *unstructured.Unstructured {
	t.Helper()
	return object(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: "+name+", namespace: "+namespace+
		", labels: {"+api.OwnedByLabel+": "+testName(t)+"}}, data: {"+data+"}}")
}
