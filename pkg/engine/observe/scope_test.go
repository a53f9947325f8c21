package observe_test

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/test/ring"
)

// flood writes many ConfigMaps that do not belong to us.
func flood(t testing.TB, n int, write func(i int) error) {
	t.Helper()
	var group sync.WaitGroup
	const workers = 16
	for worker := range workers {
		group.Go(func() {
			for i := worker; i < n; i += workers {
				if !assert.NoError(t, write(i)) {
					return
				}
			}
		})
	}
	group.Wait()
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestForeignObjectsNeedNoMemory covers foreign objects of the same kind. They neither arrive nor need memory, either at the start of a
// watch or when they change.
func TestForeignObjectsNeedNoMemory(t *testing.T) {
	n := 4000
	if ring.Outer() {
		n = 20000
	}
	ns := namespace(t)
	us := as(t, controlPlane.For(t), api.FieldManager)
	us.apply(t, configMaps, configMap(t, ns, "ours", "k: v"))
	them := as(t, controlPlane.For(t), "somebody").on(configMaps, ns)
	foreign := func(i int) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": fmt.Sprint("f", i)}, "data": map[string]any{"k": "v"},
		}}
	}
	flood(t, n, func(i int) error {
		_, err := them.Create(t.Context(), foreign(i), metav1.CreateOptions{})
		return err
	})

	l, config := connect(t, controlPlane.For(t))
	w := start(t, config, owned(t), testLog(t))
	scope := observe.Scope{Resource: configMaps}
	before := heap()
	w.until(t, scope, ns, "ours", there)
	flood(t, 1000, func(i int) error {
		_, err := them.Update(t.Context(), foreign(i), metav1.UpdateOptions{})
		return err
	})
	ours := us.apply(t, configMaps, configMap(t, ns, "ours", "k: w"))
	w.until(t, scope, ns, "ours", at(ours.GetResourceVersion()))

	grown := heap() - before
	t.Logf("%d foreign objects: %d bytes arrived, heap grew by %d bytes", n, l.arrived.Load(), grown)
	assert.LessOrEqual(t, w.changes.Load(), int64(2), "synced with ours, changed")
	assert.Less(t, l.arrived.Load(), int64(5_000), "only two versions of one object")
	assert.Less(t, grown, int64(2<<20))
	assert.Len(t, maps.Collect(w.All(scope)), 1)
}

func TestNamedScopeWatchesOneObject(t *testing.T) {
	ns := namespace(t)
	us := as(t, controlPlane.For(t), api.FieldManager)
	other := namespaceNamed(t, ns+"-2")
	l, config := connect(t, controlPlane.For(t))
	w := start(t, config, owned(t), testLog(t))
	scope := observe.Scope{Resource: configMaps, Namespace: ns, Name: "a"}
	w.synced(t, scope)
	arrived := l.arrived.Load()

	for i := range 50 {
		us.apply(t, configMaps, configMap(t, ns, fmt.Sprint("b", i), "k: v"))
	}
	us.apply(t, configMaps, configMap(t, other, "a", "k: v"))
	unlabeled := configMap(t, ns, "a", "k: v")
	unlabeled.SetLabels(nil)
	a := us.apply(t, configMaps, unlabeled)
	w.until(t, scope, ns, "a", at(a.GetResourceVersion()))
	assert.Equal(t, []types.NamespacedName{{Namespace: ns, Name: "a"}}, slices.Collect(maps.Keys(maps.Collect(w.All(scope)))))
	assert.Less(t, l.arrived.Load()-arrived, int64(2_000), "only one object")
	assert.Nil(t, w.Look(scope, other, "a").State)
	require.Len(t, l.asked(all), 1)
	us.delete(t, configMaps, ns, "a")
	w.until(t, scope, ns, "a", gone)
}

func namespaceNamed(t testing.TB, name string) string {
	t.Helper()
	as(t, controlPlane.For(t), api.FieldManager).apply(t, namespaces, object(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}"))
	return name
}

func TestAllListsTheScope(t *testing.T) {
	ns := namespace(t)
	us := as(t, controlPlane.For(t), api.FieldManager)
	w := watcher(t)
	scope := observe.Scope{Resource: configMaps}
	assert.Empty(t, maps.Collect(w.All(scope)), "no scope was requested yet")
	us.apply(t, configMaps, configMap(t, ns, "a", "k: v"))
	us.apply(t, configMaps, configMap(t, ns, "b", "k: v"))
	w.synced(t, scope)
	w.until(t, scope, ns, "b", there)
	states := maps.Collect(w.All(scope))
	assert.Len(t, states, 2)
	assert.Equal(t, *w.Look(scope, ns, "a").State, states[types.NamespacedName{Namespace: ns, Name: "a"}])
	for range w.All(scope) {
		break // a caller may stop early
	}
}

func TestObjectWithoutOurLabelCountsAsDeleted(t *testing.T) {
	ns := namespace(t)
	us, them := as(t, controlPlane.For(t), api.FieldManager), as(t, controlPlane.For(t), "kubectl-label")
	w := watcher(t)
	scope := observe.Scope{Resource: configMaps}
	us.apply(t, configMaps, configMap(t, ns, "a", "k: v"))
	w.until(t, scope, ns, "a", there)
	them.edit(t, configMaps, ns, "a", func(obj map[string]any) { set(t, obj, map[string]any{}, "metadata", "labels") })
	w.until(t, scope, ns, "a", gone)
	us.apply(t, configMaps, configMap(t, ns, "a", "k: v"))
	w.until(t, scope, ns, "a", there)
}

func TestManyScopesSynchronizeQuickly(t *testing.T) {
	const n = 200
	l, config := connect(t, controlPlane.For(t))
	w := start(t, config, owned(t), testLog(t))
	begin := time.Now()
	scope := func(i int) observe.Scope {
		return observe.Scope{Resource: configMaps, Namespace: "default", Name: fmt.Sprint("n", i)}
	}
	for i := range n {
		w.Look(scope(i), "", "")
	}
	require.Eventually(t, func() bool {
		for i := range n {
			if !w.Look(scope(i), "", "").Synced {
				return false
			}
		}
		return true
	}, patience, time.Millisecond)
	t.Logf("%d watches after %s", n, time.Since(begin))
	assert.Len(t, l.asked(all), n, "each watch needs one request")
	for _, r := range l.asked(all) {
		assert.True(t, r.initial)
		assert.Contains(t, r.query, "allowWatchBookmarks=true")
	}
}

func TestRetainDropsOtherScopes(t *testing.T) {
	ns := namespace(t)
	us := as(t, controlPlane.For(t), api.FieldManager)
	l, config := connect(t, controlPlane.For(t))
	w := start(t, config, owned(t), testLog(t))
	kept := observe.Scope{Resource: configMaps}
	let := observe.Scope{Resource: configMaps, Namespace: ns, Name: "a"}
	w.synced(t, kept)
	w.synced(t, let)
	require.Equal(t, 2, l.watches())
	w.Retain(func(s observe.Scope) bool { return s == kept })
	require.Eventually(t, func() bool { return l.watches() == 1 }, patience, time.Millisecond)
	us.apply(t, configMaps, configMap(t, ns, "a", "k: v"))
	w.until(t, kept, ns, "a", there)
	assert.Empty(t, maps.Collect(w.All(let)), "the scope was dropped")
	w.until(t, let, ns, "a", there)
	require.Len(t, l.asked(all), 3)
}

func TestRunStopsAllGoroutines(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	l, config := connect(t, controlPlane.For(t))
	w := start(t, config, owned(t), testLog(t))
	w.synced(t, observe.Scope{Resource: configMaps})
	require.Error(t, w.Run(t.Context()), "it is already running")
	w.stop()
	assert.Zero(t, l.watches())
	assert.False(t, w.Look(observe.Scope{Resource: configMaps}, "", "").Synced, "no watch is running")
	l.mu.Lock()
	idle, ok := l.to.(interface{ CloseIdleConnections() })
	l.mu.Unlock()
	if ok {
		idle.CloseIdleConnections()
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines+4 }, patience, time.Millisecond)
}

// TestEverythingSelectorIsPassedOnUnchanged covers an owned selector that selects all objects.
func TestEverythingSelectorIsPassedOnUnchanged(t *testing.T) {
	w := start(t, controlPlane.For(t).Config(testName(t)), labels.Everything(), testLog(t))
	w.until(t, observe.Scope{Resource: namespaces}, "", "default", there)
}
