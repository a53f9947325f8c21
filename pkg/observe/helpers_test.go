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
	"github.com/cluster-version/cvo/pkg/observe"
	"github.com/cluster-version/cvo/test/env"
)

// controlPlane is shared by the tests that leave it alive; each has a namespace and names of its own.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{}, func(e *env.Env) { controlPlane = e })
}

// patience is how long a test waits for what takes a moment on an idle machine.
const patience = 60 * time.Second

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// owned selects what one test owns: the label's value is the test's own.
func owned(t testing.TB) labels.Selector {
	return labels.SelectorFromSet(labels.Set{api.OwnedByLabel: testName(t)})
}

// testName makes a name of a test's.
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
	// changes counts the calls of changed.
	changes *atomic.Int64
	// stop ends the Watcher and waits until it has ended.
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
			t.Error("the Watcher does not end")
		}
	})
	t.Cleanup(stop)
	return watching{Watcher: w, changes: &changes, stop: stop}
}

func watcher(t testing.TB) watching {
	t.Helper()
	return start(t, controlPlane.Config(testName(t)), owned(t), testLog(t))
}

func testLog(t testing.TB) logr.Logger {
	return testr.NewWithInterface(t, testr.Options{Verbosity: 1})
}

// synced waits until a scope is.
func (w watching) synced(t testing.TB, s observe.Scope) {
	t.Helper()
	w.until(t, s, "", "", func(l observe.Look) bool { return l.Synced })
}

// until waits until a look at an object is as wanted.
func (w watching) until(t testing.TB, s observe.Scope, namespace, name string, wanted func(observe.Look) bool) observe.Look {
	t.Helper()
	var look observe.Look
	require.Eventually(t, func() bool {
		look = w.Look(s, namespace, name)
		return wanted(look)
	}, patience, 2*time.Millisecond)
	return look
}

// toldAfter waits until more changes have been told than that. Each can be looked at a moment before it is told.
func (w watching) toldAfter(t testing.TB, changes int64) {
	t.Helper()
	require.Eventually(t, func() bool { return w.changes.Load() > changes }, patience, time.Millisecond)
}

func there(l observe.Look) bool { return l.Synced && l.State != nil }
func gone(l observe.Look) bool  { return l.Synced && l.State == nil }

// at waits for an object at a resource version.
func at(version string) func(observe.Look) bool {
	return func(l observe.Look) bool { return there(l) && l.State.ResourceVersion == version }
}

// writer writes objects under the name of a field manager.
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

// apply applies an object, by force.
func (w writer) apply(t testing.TB, r schema.GroupVersionResource, obj *unstructured.Unstructured, subresource ...string) *unstructured.Unstructured {
	t.Helper()
	result, err := w.on(r, obj.GetNamespace()).Apply(t.Context(), obj.GetName(), obj,
		metav1.ApplyOptions{FieldManager: w.manager, Force: true}, subresource...)
	require.NoError(t, err)
	return result
}

// edit reads an object, changes it and writes it back, as kubectl edit does.
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

// namespace makes a namespace that belongs to the test.
func namespace(t testing.TB) string {
	t.Helper()
	name := testName(t)
	as(t, controlPlane, api.FieldManager).apply(t, namespaces, object(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}"))
	return name
}

// configMap is an object that the test owns.
func configMap(t testing.TB, namespace, name, data string) *unstructured.Unstructured {
	t.Helper()
	return object(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: "+name+", namespace: "+namespace+
		", labels: {"+api.OwnedByLabel+": "+testName(t)+"}}, data: {"+data+"}}")
}
