package apply_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
)

// formsCRD has fields with every form of schema.
const formsCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.forms.example.com}
spec:
  group: forms.example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
          spec:
            type: object
            properties:
              text: {type: string}
              number: {type: number}
              integer: {type: integer, format: int64}
              switch: {type: boolean}
              either: {x-kubernetes-int-or-string: true}
              nullable: {type: string, nullable: true}
              defaulted: {type: string, default: given}
              deep: {type: object, default: {}, properties: {a: {type: string, default: b}}}
              object: {type: object, properties: {a: {type: string}, b: {type: object, properties: {c: {type: string}}}}}
              map: {type: object, additionalProperties: {type: string}}
              atomic: {type: object, x-kubernetes-map-type: atomic, properties: {a: {type: string}, b: {type: string}}}
              list: {type: array, items: {type: string}}
              set: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              keyed:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, value: {type: string}}}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
              embedded: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}`

func widgetText(spec string) string {
	return "apiVersion: forms.example.com/v1\nkind: Widget\nmetadata: {name: NS, namespace: NS}\nspec: {" + spec + "}"
}

func TestUnusualFormsOfCustomResourcesAreAppliedOnce(t *testing.T) {
	serveCRD(t, parse(t, formsCRD))
	ns := namespace(t)
	for _, tt := range []struct{ name, spec string }{
		{"empty fields", `object: {}, map: {}, list: [], set: [], keyed: [], free: {}, atomic: {}, deep: {}, text: ""`},
		{"empty nested fields", `object: {b: {}}, free: {a: [], b: {}, c: null}`},
		{"a null in a nullable field", `nullable: null`},
		{"a null in a field with a default", `defaulted: null`},
		{"numbers in other forms", `number: 1.0, integer: 2.0, either: "50%"`},
		{"large numbers", `number: 1.0e+3, integer: 9007199254740993, either: 5`},
		{"a set in any order", `set: [c, a, b]`},
		{"durations and quantities as written", `text: 60m, map: {a: 1000m, b: "1h0m0s"}`},
		{"an embedded object", `embedded: {apiVersion: v1, kind: Pod, metadata: {name: a, creationTimestamp: null, labels: {}}, status: {}}`},
		{"nothing", ``},
	} {
		t.Run("it applies "+tt.name+" once", func(t *testing.T) {
			m := parse(t, inNamespace(ns, widgetText(tt.spec)))
			a, _ := connect(t, owner)
			must(t, a, m)
			assertQuiet(t, a, m)
			require.NoError(t, otherClient(t).Delete(t.Context(), m.Object.DeepCopy()))
		})
	}
}

func TestCustomResourcesKeepForeignFields(t *testing.T) {
	serveCRD(t, parse(t, formsCRD))
	runKindTests(t, []kindTest{
		{
			// OpenShift's operator replaces a whole custom resource, including foreign labels, as soon as its spec differs, and never
			// compares the metadata alone. Defaults that a manifest lacks always count as a difference (CVO#862).
			name:     "owns single fields of a custom resource and keeps defaults and foreign labels and status",
			first:    "apiVersion: forms.example.com/v1\nkind: Widget\nmetadata: {name: NS, namespace: NS, labels: {a: b}, annotations: {a: b}}\nspec: {text: a, object: {a: a, b: {c: c}}, set: [a, b], keyed: [{name: a, value: a}, {name: b}], list: [a], map: {a: a, b: b}}",
			foreign:  `{metadata: {labels: {x: y1}}, spec: {number: 5, deep: {a: z}, object: {b: {}}, map: {x: x}}}`,
			tamper:   `{metadata: {labels: {a: other}, annotations: {a: null}}}`,
			repaired: `{metadata: {labels: {a: b, x: y1}, annotations: {a: b}}, spec: {number: 5, deep: {a: z}, map: {a: a, b: b, x: x}, defaulted: given}}`,
			second:   "apiVersion: forms.example.com/v1\nkind: Widget\nmetadata: {name: NS, namespace: NS}\nspec: {object: {a: b}, set: [b, c], keyed: [{name: b, value: b}], map: {}, list: [b]}",
			updated:  `{metadata: {labels: {a: null, x: y1}, annotations: null}, spec: {text: null, number: 5, object: {a: b, b: null}, set: [b, c], keyed: [{name: b, value: b}], map: {x: x, a: null, b: null}, list: [b]}}`,
		},
	})
}

func TestLastEntryOfAMapIsRemoved(t *testing.T) {
	serveCRD(t, parse(t, formsCRD))
	ns := namespace(t)
	for _, tt := range []struct{ name, before, after, want string }{
		{"the spec", `text: a`, ``, `spec: {text: null}`},
		{"lists", `list: [a], keyed: [{name: a}], set: [a]`, `list: [], keyed: [], set: []`, `spec: {list: []}`},
	} {
		t.Run("it empties "+tt.name, func(t *testing.T) {
			a, _ := connect(t, owner)
			must(t, a, parse(t, inNamespace(ns, widgetText(tt.before))))
			m := parse(t, inNamespace(ns, widgetText(tt.after)))
			_, err := a.Apply(t.Context(), m, release.Updating)
			require.NoError(t, err)
			assertMatches(t, tt.want, live(t, m).Object)
			assertQuiet(t, a, m)
			require.NoError(t, otherClient(t).Delete(t.Context(), m.Object.DeepCopy()))
		})
	}
}
