package apply

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/manifest"
)

func TestStoredForm(t *testing.T) {
	for _, tt := range []struct{ name, object, want string }{
		{
			"tells structs from maps",
			`{apiVersion: v1, kind: Pod, spec: {nodeSelector: {}, securityContext: {}, tolerations: [], volumes: [{name: a, emptyDir: {}}], containers: [{name: a, resources: {limits: {}, requests: {cpu: 1}}}]}}`,
			`{apiVersion: v1, kind: Pod, spec: {nodeSelector: null, securityContext: {}, tolerations: null, volumes: [{name: a, emptyDir: {}}], containers: [{name: a, resources: {limits: null, requests: {cpu: 1}}}]}}`,
		},
		{
			"leaves what it does not know",
			`{apiVersion: v1, kind: Pod, spec: {unknown: [], containers: {a: []}}, other: {}}`,
			`{apiVersion: v1, kind: Pod, spec: {unknown: [], containers: {a: []}}, other: {}}`,
		},
		{
			"leaves free values inside a schema",
			`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {versions: [{schema: {openAPIV3Schema: {default: {}, enum: [[], {}], required: [], properties: {a: {items: {required: [], properties: {}}, additionalProperties: {properties: {}}}}}}}]}}`,
			`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {versions: [{schema: {openAPIV3Schema: {default: {}, enum: [[], {}], required: null, properties: {a: {items: {required: null, properties: null}, additionalProperties: {properties: null}}}}}}]}}`,
		},
		{
			"takes null for nothing in texts",
			`{apiVersion: v1, kind: ConfigMap, data: {a: null, b: c}}`,
			`{apiVersion: v1, kind: ConfigMap, data: {a: "", b: c}}`,
		},
		{
			"leaves custom resources but for objects inside",
			`{apiVersion: example.com/v1, kind: X, spec: {a: [], b: {}, c: [{apiVersion: v1, kind: Y, metadata: {name: a, labels: {}, creationTimestamp: null}, spec: {}}], metadata: {labels: {}}}}`,
			`{apiVersion: example.com/v1, kind: X, spec: {a: [], b: {}, c: [{apiVersion: v1, kind: Y, metadata: {name: a}, spec: {}}], metadata: {labels: {}}}}`,
		},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			object := decodeText(t, tt.object)
			shared := decodeText(t, tt.object)
			top := maps.Clone(shared)
			storedForm((&unstructured.Unstructured{Object: shared}).GroupVersionKind(), top)
			assert.Equal(t, decodeText(t, tt.want), top)
			assert.Equal(t, object, shared, "manifests are shared")
		})
	}
}

// BenchmarkBody is what it costs to put together what is sent, beside encoding it.
func BenchmarkBody(b *testing.B) {
	m := &manifest.Manifest{Object: &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "a", "namespace": "b"},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"nodeSelector": map[string]any{"a": "b"},
			"volumes":      []any{map[string]any{"name": "a", "emptyDir": map[string]any{}}, map[string]any{"name": "b", "secret": map[string]any{"secretName": "s"}}},
			"containers": []any{map[string]any{
				"name": "a", "image": "b", "env": []any{map[string]any{"name": "A", "value": "B"}},
				"resources": map[string]any{"requests": map[string]any{"cpu": "10m"}},
			}},
		}}},
	}}}
	a := &Applier{owner: Owner{Name: "version", UID: "x"}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.body(m, true); err != nil {
			b.Fatal(err)
		}
	}
}
