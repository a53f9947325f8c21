package content_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/engine/preview/content"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// things is a CRD that serves v1 with a required field and a default, and does not serve v0.
const things = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  names: {kind: Thing, plural: things}
  scope: Cluster
  versions:
  - {name: v0, served: false, storage: false, schema: {openAPIV3Schema: {type: object}}}
  - name: v1
    served: true
    storage: true
    subresources: {scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [a]
            properties: {a: {type: string}, b: {type: string, default: given}, size: {type: integer}}
`

func parse(t *testing.T, text string) *manifest.Manifest {
	t.Helper()
	list, err := manifest.Parse("0000_10_a_b.yaml", []byte(text), manifest.Limits{})
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

func TestReleaseKnowsWhatTheServerDoesNot(t *testing.T) {
	kind := schema.GroupKind{Group: "example.com", Kind: "Thing"}
	lacking := parse(t, "{apiVersion: example.com/v1, kind: Thing, metadata: {name: t}, spec: {size: 1}}")
	old := parse(t, "{apiVersion: example.com/v0, kind: Thing, metadata: {name: t}}")
	owned := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v0", "kind": "Thing", "metadata": map[string]any{"name": "t"}, "spec": map[string]any{"a": "set by another client"},
	}}
	release := func(t *testing.T, effect content.Effect) *content.Release {
		t.Helper()
		r := content.Of([]*manifest.Manifest{parse(t, things), parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: ns}}")})
		r.Settle(kind, effect)
		return r
	}
	for _, tt := range []struct {
		name       string
		effect     content.Effect
		live       *unstructured.Unstructured
		violations []string
		stops      bool
		others     int
		added      any
	}{
		{name: "nothing about a CRD that stays the same"},
		{name: "the schema of a new CRD", effect: content.Effect{Created: true}, live: owned, violations: []string{"spec.a"}},
		{name: "the schema and the versions of a changed CRD", effect: content.Effect{Changed: true}, live: lacking.Object, violations: []string{"spec.a"}, stops: true, others: 1, added: "given"},
		{name: "the fields of other clients", effect: content.Effect{Changed: true}, live: owned, stops: true, others: 1, added: "given"},
	} {
		t.Run("it knows "+tt.name, func(t *testing.T) {
			r := release(t, tt.effect)
			fields, texts := r.Violations(lacking, tt.live)
			assert.Equal(t, tt.violations, fields)
			assert.Len(t, texts, len(fields))
			assert.Equal(t, tt.stops, r.StopsServing(old))
			assert.False(t, r.StopsServing(lacking))
			others := 0
			for _, m := range r.InServedVersions(lacking) {
				assert.Equal(t, "v0", m.GVK().Version)
				others++
			}
			assert.Equal(t, tt.others, others)
			added, _, err := unstructured.NestedFieldNoCopy(r.Complete(lacking, lacking.Object).Object, "spec", "b")
			require.NoError(t, err)
			assert.Equal(t, tt.added, added)
		})
	}
	r := release(t, content.Effect{})
	path, served := r.Replicas(kind.WithVersion("v1"))
	assert.True(t, served)
	assert.Equal(t, ".spec.size", path)
	_, served = r.Replicas(kind.WithVersion("v0"))
	assert.False(t, served)
	assert.True(t, r.HasNamespace("ns"))
	assert.False(t, r.HasNamespace("other"))
}
