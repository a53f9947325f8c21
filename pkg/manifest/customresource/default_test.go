package customresource_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/manifest/customresource"
)

func TestDefaultsAreAdded(t *testing.T) {
	read := func(text string) *unstructured.Unstructured {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &object.Object))
		return object
	}
	crd := read(`
spec:
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        properties:
          spec:
            properties:
              color: {default: red}
              none: {default: red, nullable: true}
              nested: {default: {}, properties: {deep: {default: x}}}
              absent: {properties: {deep: {default: x}}}
              list: {items: {properties: {deep: {default: x}}}}
              map: {additionalProperties: {properties: {deep: {default: x}}}}
`)
	for _, tt := range []struct{ name, version, object, want string }{
		{"adds missing fields", "v1", "spec: {}", "spec: {color: red, none: red, nested: {deep: x}}"},
		{"keeps fields", "v1", "spec: {color: blue, none: null, nested: {deep: q}}", "spec: {color: blue, none: null, nested: {deep: q}}"},
		{"replaces null", "v1", "spec: {color: null, none: q, nested: null}", "spec: {color: red, none: q, nested: {deep: x}}"},
		{
			"looks into lists and maps", "v1", "spec: {color: a, none: a, nested: 1, list: [{}, 1], map: {a: {}, b: null}}",
			"spec: {color: a, none: a, nested: 1, list: [{deep: x}, 1], map: {a: {deep: x}, b: null}}",
		},
		{"does not create parents", "v1", "{}", "{}"},
		{"ignores other versions", "v2", "spec: {}", "spec: {}"},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			object := read(tt.object)
			customresource.Default(crd, tt.version, object)
			assert.Equal(t, read(tt.want), object)
		})
	}
}
