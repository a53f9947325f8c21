package customresource

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: widgets}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [size, color]
            properties:
              size: {type: integer, minimum: 0, exclusiveMinimum: true, maximum: 10}
              flag: {type: boolean}
              color: {type: string, enum: [red, blue], default: red}
              port: {x-kubernetes-int-or-string: true}
              level: {type: integer, enum: [1, 2]}
              nested: {type: object, default: {}, required: [deep], properties: {deep: {type: string, default: x}}}
              map: {type: object, additionalProperties: {type: string}}
              note: {type: string, nullable: true, maxLength: 3, pattern: '^[a-z]*$'}
              more: {type: object, x-kubernetes-preserve-unknown-fields: true}
              code: {type: string, minLength: 2}
              zones: {type: array, minItems: 1, items: {type: string}}
              hosts: {type: array, minItems: 1, x-kubernetes-list-type: set, items: {type: string}}
              labels: {type: object, minProperties: 1, additionalProperties: {type: string}}
              whole: {type: object, x-kubernetes-map-type: atomic, minProperties: 1, required: [a], properties: {a: {type: string}}}
              rules: {type: array, items: {type: object, required: [name], properties: {name: {type: string}}}}
              parts:
                type: array
                maxItems: 2
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, weight: {type: number}}}
  - name: v1alpha1
    served: true
    storage: false
`

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	require.NoError(t, object.UnmarshalJSON(data))
	return object
}

func TestViolationsAreFound(t *testing.T) {
	for _, tt := range []struct {
		name, version, spec string
		want                []string
	}{
		{"accepts a valid object", "v1", "{size: 1, color: blue, port: 80, parts: [{name: a, weight: 1}, {name: b, weight: 0.5}]}", nil},
		{"accepts unknown fields", "v1", "{size: 1, other: x, more: {a: [1]}, port: http}", nil},
		{"accepts a default instead of a required field", "v1", "{size: 1, nested: {}}", nil},
		{"accepts nulls", "v1", "{size: 1, color: null, note: null, parts: null}", nil},
		{"accepts a whole number with a fraction", "v1", "{size: 1.0}", nil},
		{"finds a wrong type", "v1", "{size: big}", []string{"spec.size: must be of type integer"}},
		{"finds a fraction", "v1", "{size: 1.5}", []string{"spec.size: must be of type integer"}},
		{"finds wrong types", "v1", "{size: 1, port: true, nested: x, parts: {}, flag: 'no', color: 1}", []string{
			"spec.color: must be of type string", "spec.flag: must be of type boolean", "spec.nested: must be of type object",
			"spec.parts: must be of type array", "spec.port: must be an integer or a string",
		}},
		{"finds limits", "v1", "{size: 11}", []string{"spec.size: must be at most 10"}},
		{"finds exclusive limits", "v1", "{size: 0}", []string{"spec.size: must be more than 0"}},
		{"finds long texts and lists", "v1", "{size: 1, note: ÄÄÄÄ, parts: [{name: a}, {name: b}, {name: c}]}", []string{
			"spec.note: must have at most 3 characters", "spec.note: must match ^[a-z]*$", "spec.parts: must have at most 2 items",
		}},
		{"finds missing fields", "v1", "{color: red}", []string{"spec.size: is required"}},
		{"finds a required null", "v1", "{size: null}", []string{"spec.size: is required"}},
		{"finds a short text", "v1", "{size: 1, code: a}", []string{"spec.code: must have at least 2 characters"}},
		{"finds few items", "v1", "{size: 1, zones: []}", []string{"spec.zones: must have at least 1 items"}},
		{"finds values in lists", "v1", "{size: 1, color: green, parts: [{name: a, weight: x}, {weight: 1}]}", []string{
			"spec.color: must be one of [red blue]", "spec.parts[0].weight: must be of type number", "spec.parts[1].name: is required",
		}},
		{"accepts a number of an enumeration", "v1", "{size: 1, level: 2.0}", nil},
		{"finds a number that is not in an enumeration", "v1", "{size: 1, level: 4}", []string{"spec.level: must be one of [1 2]"}},
		{"finds values of maps", "v1", "{size: 1, map: {a: 1}}", []string{"spec.map.a: must be of type string"}},
		{"accepts a version without a schema", "v1alpha1", "{size: big}", nil},
		{"accepts a version that the definition lacks", "v2", "{size: big}", nil},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			object := parse(t, "apiVersion: example.com/"+tt.version+"\nkind: Widget\nmetadata: {name: a}\nspec: "+tt.spec)
			before := object.DeepCopy()
			var got []string
			for _, v := range Validate(parse(t, widgets), object) {
				got = append(got, v.String())
			}
			assert.Equal(t, tt.want, got)
			assert.Equal(t, before, object)
		})
	}
}

// Another client may have set what a manifest lacks, except in values that only one client can own.
func TestMissingPartsAreMarked(t *testing.T) {
	missing := map[string]bool{}
	for _, v := range Validate(parse(t, widgets), parse(t, "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\n"+
		"spec: {code: a, zones: [], hosts: [], labels: {}, whole: {}, rules: [{}], parts: [{}]}")) {
		missing[v.String()] = v.Missing
	}
	assert.Equal(t, map[string]bool{
		"spec.size: is required":                     true,
		"spec.hosts: must have at least 1 items":     true,
		"spec.labels: must have at least 1 fields":   true,
		"spec.parts[0].name: is required":            true,
		"spec.code: must have at least 2 characters": false,
		"spec.zones: must have at least 1 items":     false,
		"spec.whole: must have at least 1 fields":    false,
		"spec.whole.a: is required":                  false,
		"spec.rules[0].name: is required":            false,
	}, missing)
}

func TestStatusIsIgnoredIfItIsASubresource(t *testing.T) {
	text := strings.Replace(widgets, "          spec:\n", "          status: {type: object, properties: {ready: {type: boolean}}}\n          spec:\n", 1)
	object := parse(t, "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {size: 1}\nstatus: {ready: yes indeed}")
	require.Len(t, Validate(parse(t, text), object), 1)
	assert.Empty(t, Validate(parse(t, strings.Replace(text, "    schema:\n", "    subresources: {status: {}}\n    schema:\n", 1)), object))
}

func TestCompletedKindsMayLackFields(t *testing.T) {
	for kind, group := range map[string]string{"ClusterOperator": "config.openshift.io", "SecurityContextConstraints": "security.openshift.io"} {
		text := "apiVersion: " + group + "/v1\nkind: " + kind + "\nmetadata: {name: a}\nspec: "
		assert.Empty(t, Validate(parse(t, widgets), parse(t, text+"{}")))
		assert.Len(t, Validate(parse(t, widgets), parse(t, text+"{size: 11}")), 1)
	}
}

func TestInvalidSchemasAreIgnored(t *testing.T) {
	object := parse(t, "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nspec: {size: 11, note: Big, color: x}")
	text := strings.NewReplacer("maximum: 10", "maximum: x", "'^[a-z]*$'", "'('", "enum: [red, blue]", "enum: {}").Replace(widgets)
	assert.Empty(t, Validate(parse(t, text), object))
}
