package integration_test

import (
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/release"
)

// graduating is a component whose API has the versions v1beta1 and v1. Only v1 has the field accessPolicy, which the server sets by default.
const graduating = `
apiVersion: v1
kind: Namespace
metadata: {name: lab, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com, annotations: {include.release.openshift.io/self-managed-high-availability: "true"}}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  versions:
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {port: {type: integer}, note: {type: string}}}}}}}
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, properties: {port: {type: integer}, note: {type: string}, accessPolicy: {type: string, default: deny}}}}}}}
---
apiVersion: example.com/`

// TestUpdateMovesCustomResourcesToTheNextVersion updates a component that graduates its API, drops a field, and goes back.
func TestUpdateMovesCustomResourcesToTheNextVersion(t *testing.T) {
	t.Parallel()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	push := func(version, widget string) release.Image {
		return l.special(version, fstest.MapFS{"release-manifests/0000_30_lab_01.yaml": {Data: []byte(graduating + widget)}})
	}
	const head = "\nkind: Widget\nmetadata: {namespace: lab, name: w, annotations: {include.release.openshift.io/self-managed-high-availability: \"true\"}}\nspec: "
	l.own = push("4.2.0", "v1beta1"+head+"{port: 80, note: ours}")
	l.install("4.2.0")

	for _, step := range []struct {
		version, widget string
		want            map[string]any
	}{
		{"4.2.1", "v1" + head + "{port: 81}", map[string]any{"port": int64(81), "accessPolicy": "deny"}},
		{"4.2.2", "v1" + head + "{note: theirs}", map[string]any{"note": "theirs", "accessPolicy": "deny"}},
		{"4.2.3", "v1beta1" + head + "{port: 82}", map[string]any{"port": int64(82), "accessPolicy": "deny"}},
	} {
		l.update(configv1.Update{Image: push(step.version, step.widget).ByDigest()})
		l.await(step.version+" to complete", time.Minute, completed(step.version))
		widget := l.object("example.com/v1", "Widget", "lab", "w")
		require.NotNil(t, widget)
		spec, _, err := unstructured.NestedMap(widget.Object, "spec")
		require.NoError(t, err)
		assert.Equal(t, step.want, spec, step.version)
	}
}
