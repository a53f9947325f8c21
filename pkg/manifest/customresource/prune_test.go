package customresource

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPrunedFieldsAreFound(t *testing.T) {
	const list = "properties: {ports: {type: array, items: {type: object, properties: {name: {type: string}}}}}"
	schema := func(spec string) map[string]any {
		return parse(t, "{apiVersion: v1, kind: Schema, properties: {metadata: {type: object}, spec: {type: object, "+spec+"}}}").Object
	}
	for _, tt := range []struct{ name, applied, stored, want string }{
		{"none of equal schemas", list, list, ""},
		{"none that only the applied schema has", list, "properties: {}", ""},
		{"the first field", "properties: {a: {}}", "properties: {a: {}, c: {}, b: {}}", "spec.b"},
		{"a field if the applied schema has none", "description: none", "properties: {a: {}}", "spec.a"},
		{"a field of list entries", strings.Replace(list, "name:", "key:", 1), list, "spec.ports[*].name"},
		{"none of a map", "additionalProperties: {}", "properties: {a: {}}", ""},
		{"none of a map of any values", "additionalProperties: true", "properties: {a: {}}", ""},
		{"none among preserved fields", "x-kubernetes-preserve-unknown-fields: true", "properties: {a: {properties: {b: {}}}}", ""},
		{
			"a field below preserved fields", "x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: object}}",
			"properties: {a: {properties: {b: {}}}}", "spec.a.b",
		},
	} {
		t.Run("it finds "+tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, Pruned(schema(tt.applied), schema(tt.stored), ""))
		})
	}
	assert.Equal(t, "spec", Pruned(map[string]any{"type": "object"}, schema(""), ""))
}
