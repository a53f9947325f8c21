package body

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/manifest"
)

func TestBodyHasTheStoredForm(t *testing.T) {
	for _, tt := range []struct{ name, object, want string }{
		{
			"distinguishes structs from maps",
			`{apiVersion: v1, kind: Pod, spec: {nodeSelector: {}, securityContext: {}, tolerations: [], volumes: [{name: a, emptyDir: {}}], containers: [{name: a, resources: {limits: {}, requests: {cpu: 1}}}]}}`,
			`{apiVersion: v1, kind: Pod, spec: {nodeSelector: null, securityContext: {}, tolerations: null, volumes: [{name: a, emptyDir: {}}], containers: [{name: a, resources: {limits: null, requests: {cpu: 1}}}]}}`,
		},
		{
			"keeps unknown fields",
			`{apiVersion: v1, kind: Pod, spec: {unknown: [], containers: {a: []}}, other: {}}`,
			`{apiVersion: v1, kind: Pod, spec: {unknown: [], containers: {a: []}}, other: {}}`,
		},
		{
			"keeps free-form values inside a schema",
			`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {versions: [{schema: {openAPIV3Schema: {default: {}, enum: [[], {}], required: [], properties: {a: {items: {required: [], properties: {}}, additionalProperties: {properties: {}}}}}}}]}}`,
			`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {versions: [{schema: {openAPIV3Schema: {default: {}, enum: [[], {}], required: null, properties: {a: {items: {required: null, properties: null}, additionalProperties: {properties: null}}}}}}]}}`,
		},
		{
			"treats null as an empty string",
			`{apiVersion: v1, kind: ConfigMap, data: {a: null, b: c}}`,
			`{apiVersion: v1, kind: ConfigMap, data: {a: "", b: c}}`,
		},
		{
			"keeps custom resources except for objects inside them",
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
			assert.Equal(t, object, shared, "the manifest must not change")
		})
	}
}

// TestFieldsOfStructsAreReadOncePerObject counts allocations.
func TestFieldsOfStructsAreReadOncePerObject(t *testing.T) {
	properties := map[string]any{}
	for i := range 100 {
		properties[fmt.Sprint(i)] = map[string]any{"type": "array", "items": map[string]any{"type": "string"}}
	}
	crd := map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"spec": map[string]any{"versions": []any{map[string]any{"schema": map[string]any{"openAPIV3Schema": map[string]any{"properties": properties}}}}},
	}
	gvk := (&unstructured.Unstructured{Object: crd}).GroupVersionKind()
	allocations := testing.AllocsPerRun(10, func() { storedForm(gvk, maps.Clone(crd)) })
	assert.Less(t, allocations, 1000.0)
}

// BenchmarkBody measures the cost of building the object to send, without encoding it.
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
	builder := Builder{Owner: Owner{Name: "version", UID: "x"}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := builder.object(m, true); err != nil {
			b.Fatal(err)
		}
	}
}

func decodeText(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &object))
	return object
}
