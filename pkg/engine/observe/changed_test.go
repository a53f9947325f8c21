package observe_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/observe"
)

var deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

// deployment returns a Deployment that the test owns.
func deployment(t testing.TB, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	return object(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: `+name+`, namespace: `+namespace+`, labels: {`+api.OwnedByLabel+`: `+testName(t)+`}}
spec:
  replicas: 2
  selector: {matchLabels: {app: x}}
  template:
    metadata: {labels: {app: x}}
    spec:
      containers:
      - {name: x, image: registry.example.com/x, env: [{name: A, value: b}]}
`)
}

func path(t testing.TB, obj map[string]any, fields ...string) map[string]any {
	t.Helper()
	for _, field := range fields {
		next, ok := obj[field].(map[string]any)
		require.True(t, ok, "%s of %v", field, fields)
		obj = next
	}
	return obj
}

func containers(t testing.TB, obj map[string]any) []any {
	t.Helper()
	list, ok := path(t, obj, "spec", "template", "spec")["containers"].([]any)
	require.True(t, ok)
	return list
}

// TestRelevantChangesCallChanged checks how a write to one of our Deployments changes its State, and whether the Watcher calls changed.
func TestRelevantChangesCallChanged(t *testing.T) {
	edit := func(change func(*testing.T, map[string]any)) func(*testing.T, string) *unstructured.Unstructured {
		return func(t *testing.T, ns string) *unstructured.Unstructured {
			return as(t, controlPlane.For(t), "kubectl-edit").edit(t, deployments, ns, "x", func(obj map[string]any) { change(t, obj) })
		}
	}
	tests := []struct {
		name  string
		write func(*testing.T, string) *unstructured.Unstructured
		// wakes means that changed is called, fields that State.Fields differs.
		wakes, fields bool
		writer        string
		loosened      []string
	}{
		{"does not wake for a status write", func(t *testing.T, ns string) *unstructured.Unstructured {
			obj := object(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, namespace: "+ns+"}, status: {replicas: 2, observedGeneration: 1}}")
			return as(t, controlPlane.For(t), "kube-controller-manager").apply(t, deployments, obj, "status")
		}, false, false, "", nil},
		{"wakes for a foreign annotation, which changes a Deployment's generation", edit(func(t *testing.T, obj map[string]any) {
			set(t, obj, map[string]any{"deployment.kubernetes.io/revision": "1"}, "metadata", "annotations")
		}), true, false, "kubectl-edit", nil},
		{"does not wake for a foreign label", edit(func(t *testing.T, obj map[string]any) {
			set(t, obj, "red", "metadata", "labels", "team")
		}), false, false, "kubectl-edit", nil},
		{"does not wake for our own no-op apply", func(t *testing.T, ns string) *unstructured.Unstructured {
			return as(t, controlPlane.For(t), api.FieldManager).apply(t, deployments, deployment(t, ns, "x"))
		}, false, false, "", nil},
		{"wakes for our replicas", edit(func(t *testing.T, obj map[string]any) {
			set(t, obj, int64(3), "spec", "replicas")
		}), true, true, "kubectl-edit", nil},
		{"wakes for our environment variable", edit(func(t *testing.T, obj map[string]any) {
			containers(t, obj)[0].(map[string]any)["env"] = []any{map[string]any{"name": "A", "value": "c"}}
		}), true, true, "kubectl-edit", nil},
		{"wakes for a foreign sidecar", edit(func(t *testing.T, obj map[string]any) {
			list := append(containers(t, obj), map[string]any{"name": "mesh", "image": "mesh"})
			path(t, obj, "spec", "template", "spec")["containers"] = list
		}), true, false, "kubectl-edit", nil},
		{"wakes for a privileged sidecar and reports the field", edit(func(t *testing.T, obj map[string]any) {
			list := append(containers(t, obj), map[string]any{
				"name": "evil", "image": "evil", "securityContext": map[string]any{"privileged": true},
			})
			path(t, obj, "spec", "template", "spec")["containers"] = list
		}), true, false, "kubectl-edit", []string{`kubectl-edit: spec.template.spec.containers[name="evil"].securityContext.privileged`}},
		{"wakes for host PID and host paths", edit(func(t *testing.T, obj map[string]any) {
			spec := path(t, obj, "spec", "template", "spec")
			spec["hostPID"] = true
			spec["volumes"] = []any{map[string]any{"name": "host", "hostPath": map[string]any{"path": "/"}}}
		}), true, false, "kubectl-edit", []string{
			"kubectl-edit: spec.template.spec.hostPID",
			`kubectl-edit: spec.template.spec.volumes[name="host"].hostPath`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ns := namespace(t)
			us := as(t, controlPlane.For(t), api.FieldManager)
			w := watcher(t)
			scope := observe.Scope{Resource: deployments}
			w.synced(t, scope)
			us.apply(t, deployments, deployment(t, ns, "x"))
			before := w.until(t, scope, ns, "x", there).State
			obj := tt.write(t, ns)
			after := w.until(t, scope, ns, "x", at(obj.GetResourceVersion())).State

			w.stop()          // no call is pending afterwards
			calls := int64(2) // synced, appeared
			if tt.wakes {
				calls++
			}
			assert.Equal(t, calls, w.changes.Load(), "calls")
			assert.Equal(t, tt.fields, before.Fields != after.Fields, "fields")
			assert.Equal(t, tt.writer, after.Writer)
			assert.Equal(t, tt.loosened, after.Loosened)
			assert.Equal(t, before.UID, after.UID)
		})
	}
}

// TestEveryVersionCountsWithoutGeneration covers kinds without generations, where every version counts.
func TestEveryVersionCountsWithoutGeneration(t *testing.T) {
	ns := namespace(t)
	us, them := as(t, controlPlane.For(t), api.FieldManager), as(t, controlPlane.For(t), "kubectl-edit")
	w := watcher(t)
	scope := observe.Scope{Resource: configMaps}
	w.synced(t, scope)
	us.apply(t, configMaps, configMap(t, ns, "a", "k: v"))
	before := w.until(t, scope, ns, "a", there).State
	assert.Zero(t, before.Generation)
	after := them.edit(t, configMaps, ns, "a", func(obj map[string]any) { set(t, obj, "w", "data", "other") })
	w.until(t, scope, ns, "a", at(after.GetResourceVersion()))
	w.stop()
	assert.EqualValues(t, 3, w.changes.Load(), "synced, appeared, changed")
}

func TestDeletingObjectsAreObserved(t *testing.T) {
	ns := namespace(t)
	us, them := as(t, controlPlane.For(t), api.FieldManager), as(t, controlPlane.For(t), "finalizer")
	w := watcher(t)
	scope := observe.Scope{Resource: configMaps}
	obj := configMap(t, ns, "a", "k: v")
	obj.SetFinalizers([]string{"example.com/one", "example.com/two"})
	us.apply(t, configMaps, obj)
	state := w.until(t, scope, ns, "a", there).State
	assert.False(t, state.Deleting)
	assert.Nil(t, state.Finalizers, "only an object in deletion has them")

	us.delete(t, configMaps, ns, "a")
	state = w.until(t, scope, ns, "a", func(l observe.Look) bool { return there(l) && l.State.Deleting }).State
	assert.Equal(t, []string{"example.com/one", "example.com/two"}, state.Finalizers)

	changes := w.changes.Load()
	them.edit(t, configMaps, ns, "a", func(obj map[string]any) { set(t, obj, []any{"example.com/two"}, "metadata", "finalizers") })
	state = w.until(t, scope, ns, "a", func(l observe.Look) bool { return there(l) && len(l.State.Finalizers) == 1 }).State
	assert.Equal(t, []string{"example.com/two"}, state.Finalizers)
	w.callsAfter(t, changes)
	them.edit(t, configMaps, ns, "a", func(obj map[string]any) { set(t, obj, []any{}, "metadata", "finalizers") })
	w.until(t, scope, ns, "a", gone)

	first := state.UID
	us.apply(t, configMaps, configMap(t, ns, "a", "k: v"))
	assert.NotEqual(t, first, w.until(t, scope, ns, "a", there).State.UID)
}
