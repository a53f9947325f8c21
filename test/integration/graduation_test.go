package integration_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/difference"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/preview"
	"github.com/cluster-version/cvo/pkg/release"
)

// widgetDefinition is the manifest of a CRD, to be followed by its versions.
const widgetDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  versions:
`

// graduating is a component whose API has the versions v1beta1 and v1. Only v1 has the field accessPolicy, which the server sets by default.
const graduating = `
apiVersion: v1
kind: Namespace
metadata: {name: lab, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
---` + widgetDefinition + `  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {port: {type: integer}, note: {type: string}}}}}}}
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {port: {type: integer}, note: {type: string}, accessPolicy: {type: string, default: deny}}}}}}}
---
apiVersion: example.com/`

// TestUpdateMovesCustomResourcesToTheNextVersion updates a component that graduates its API, drops a field, and goes back.
func TestUpdateMovesCustomResourcesToTheNextVersion(t *testing.T) {
	t.Parallel()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	l.create(rolloutDefinition)
	l.own = l.pushWidget("4.2.0", "v1beta1", "{port: 80, note: ours}")
	l.install("4.2.0")

	for _, step := range []struct {
		version, apiVersion, spec string
		want                      map[string]any
	}{
		{"4.2.1", "v1", "{port: 81}", map[string]any{"port": int64(81), "accessPolicy": "deny"}},
		{"4.2.2", "v1", "{note: theirs}", map[string]any{"note": "theirs", "accessPolicy": "deny"}},
		{"4.2.3", "v1beta1", "{port: 82}", map[string]any{"port": int64(82), "accessPolicy": "deny"}},
	} {
		next := l.pushWidget(step.version, step.apiVersion, step.spec)
		l.assertWidgetIsPreviewed(next, step.version)
		l.update(configv1.Update{Image: next.ByDigest()})
		l.await(step.version+" to complete", time.Minute, completed(step.version))
		assert.Equal(t, step.want, l.widget().Object["spec"], step.version)
	}
}

// assertWidgetIsPreviewed checks that both previews of a release show the custom resource as changed.
func (l *testPlatform) assertWidgetIsPreviewed(next release.Image, version string) {
	l.t.Helper()
	report := l.diff(next)
	assert.Zero(l.t, report.Totals.Unknown+report.Totals.NotAsked+report.Totals.Refused, version)
	i := slices.IndexFunc(report.Objects, func(o preview.Object) bool { return o.ID.Kind == "Widget" })
	require.GreaterOrEqual(l.t, i, 0)
	assert.Equal(l.t, preview.Modify, report.Objects[i].Verdict, version)
	assert.True(l.t, slices.ContainsFunc(report.Objects[i].Fields, func(f difference.Field) bool { return f.Path == "spec.port" }), "%v", report.Objects[i].Fields)

	_, err := l.run("upgrade", "--to-image", next.ByDigest(), "--preflight", "--allow-explicit-upgrade")
	require.NoError(l.t, err)
	changes := l.awaitRollout("the preflight of "+version, preflightEnded(api.PreflightPassed, version)).Status.Preflight.Changes
	assert.Zero(l.t, changes.Unknown+changes.Refused, version)
	assert.True(l.t, slices.ContainsFunc(changes.Objects, func(o api.PreflightObject) bool {
		return strings.HasPrefix(o.Object, "Widget.example.com ") && o.Verdict == string(preview.Modify)
	}), "%v", changes.Objects)
}

// TestInstallMovesExistingCustomResources installs a release over a custom resource that another client has written in an older version.
func TestInstallMovesExistingCustomResources(t *testing.T) {
	t.Parallel()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	definition := filepath.Join(t.TempDir(), "definition.yaml")
	require.NoError(t, os.WriteFile(definition, []byte(strings.TrimSuffix(graduating, "---\napiVersion: example.com/")), 0o600))
	l.create(definition)
	existing := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1beta1", "kind": "Widget", "metadata": map[string]any{"namespace": "lab", "name": "w"},
		"spec": map[string]any{"port": int64(80), "note": "theirs"},
	}}
	require.Eventually(t, func() bool {
		return l.client.Create(t.Context(), existing.DeepCopy(), client.FieldOwner("kubectl-client-side-apply")) == nil
	}, time.Minute, 20*time.Millisecond, "the API server serves the kind")
	l.own = l.pushWidget("4.2.0", "v1", "{port: 81}")

	l.install("4.2.0")

	want := map[string]any{"port": int64(81), "note": "theirs", "accessPolicy": "deny"}
	assert.Equal(t, want, l.widget().Object["spec"], "what the release does not set belongs to the other client")
	l.update(configv1.Update{Image: l.pushWidget("4.2.1", "v1", "{}").ByDigest()})
	l.await("4.2.1 to complete", time.Minute, completed("4.2.1"))
	assert.Equal(t, map[string]any{"note": "theirs", "accessPolicy": "deny"}, l.widget().Object["spec"])
}

// TestUpdateTakesBackDiscardedFields lets another client write a custom resource in another version than the operator did, so that the
// server discards the owners of all fields: while the operator reconciles, during an update, and between two operators.
func TestUpdateTakesBackDiscardedFields(t *testing.T) {
	t.Parallel()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	require.NoError(t, corev1.AddToScheme(l.client.Scheme()))
	l.create(statusDefinition)
	l.own = l.pushWidget("4.2.0", "v1beta1", "{port: 80, note: ours}")
	l.install("4.2.0")
	discard := func() {
		t.Helper()
		time.Sleep(1100 * time.Millisecond) // the times in managedFields have whole seconds
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"accessPolicy":"allow"}}`))
		require.NoError(t, l.client.Patch(t.Context(), l.widget(), patch, client.FieldOwner("widget-operator")))
	}
	isOurs := func() bool {
		return slices.ContainsFunc(l.widget().GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == api.FieldManager })
	}
	request := func(version, apiVersion, spec string) {
		t.Helper()
		l.update(configv1.Update{Image: l.pushWidget(version, apiVersion, spec).ByDigest()})
	}
	after := func(version string) map[string]any {
		t.Helper()
		l.await(version+" to complete", time.Minute, completed(version))
		fields, _, err := unstructured.NestedMap(l.widget().Object, "spec")
		require.NoError(t, err)
		delete(fields, "accessPolicy") // an apply in the old version resets it
		return fields
	}

	discard()
	require.Eventually(t, isOurs, time.Minute, 20*time.Millisecond)
	l.awaitEvent(api.EventDriftRepaired, "which was changed by an unknown client (managedFields were empty); if that client writes another API version")
	l.update(configv1.Update{Image: l.pushWidgetAnd("4.2.1", "v1", "{port: 81}", "release-manifests/0000_20_hold_01.yaml", `
apiVersion: v1
kind: ConfigMap
metadata: {namespace: hold, name: hold, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
`).ByDigest()})
	l.await("4.2.1 to wait for the namespace", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return strings.Contains(condition(cv, api.Failing), `namespaces "hold" not found`)
	})
	discard()
	l.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hold"}})
	l.await("4.2.1 to complete", time.Minute, completed("4.2.1"))
	assert.Equal(t, map[string]any{"port": int64(81), "accessPolicy": "allow"}, l.widget().Object["spec"], "the earlier release shows that note is ours")
	const takenBack = "Widget.example.com lab/w: the operator took back its fields, whose owners the server had discarded"
	l.awaitEvent(api.EventFieldsTakenBack, takenBack)
	request("4.2.2", "v1beta1", "{port: 82, note: ours}")
	assert.Equal(t, map[string]any{"port": int64(82), "note": "ours"}, after("4.2.2"))

	l.cvo.end(t)
	discard()
	require.False(t, isOurs())
	request("4.2.3", "v1", "{port: 83}")
	l.succeed()
	assert.Equal(t, map[string]any{"port": int64(83)}, after("4.2.3"))
}

// pushWidget pushes a release whose component has the API of graduating and one custom resource of it.
func (l *testPlatform) pushWidget(version, apiVersion, spec string) release.Image {
	l.t.Helper()
	return l.pushWidgetAnd(version, apiVersion, spec, "release-manifests/0000_30_lab_02.yaml", "")
}

// pushWidgetAnd is pushWidget with another file.
func (l *testPlatform) pushWidgetAnd(version, apiVersion, spec, file, content string) release.Image {
	l.t.Helper()
	return l.special(version, fstest.MapFS{file: {Data: []byte(content)}, "release-manifests/0000_30_lab_01.yaml": {Data: []byte(graduating + apiVersion + `
kind: Widget
metadata: {namespace: lab, name: w, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
spec: ` + spec)}})
}

// widget returns the custom resource of pushWidget.
func (l *testPlatform) widget() *unstructured.Unstructured {
	l.t.Helper()
	widget := l.object("example.com/v1", "Widget", "lab", "w")
	require.NotNil(l.t, widget)
	return widget
}
