package vandal

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/test/fixture"
)

func parse(t *testing.T, text string) *manifest.Manifest {
	t.Helper()
	list, err := manifest.Parse("0000_50_dns_01_x.yaml", []byte(text), manifest.Limits{})
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

func TestPlanEditsEachKind(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, fixture.Synthesize(dir, 300))
	var all []*manifest.Manifest
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.yaml"))
	require.NoError(t, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		list, err := manifest.Parse(file, data, manifest.Limits{})
		require.NoError(t, err)
		all = append(all, list...)
	}
	draw := func(seed uint64) []string {
		edits, kinds := Plan(all, 200, rand.New(rand.NewPCG(seed, 0)))
		assert.Equal(t, 16, kinds)
		var list []string
		for _, e := range edits {
			list = append(list, e.String())
		}
		return list
	}
	first := draw(1)
	assert.Len(t, first, 200)
	assert.Equal(t, first, draw(1), "the same seed draws the same edits")
	assert.NotEqual(t, first, draw(2))
	count := map[string]int{}
	for _, e := range first {
		count[strings.Fields(e)[0]]++
		assert.NotContains(t, e, "delete Namespace ")
		assert.NotContains(t, e, "delete ClusterOperator")
		assert.NotContains(t, e, "delete CustomResourceDefinition", "a CRD with objects is never deleted")
	}
	for _, act := range []string{editChange, editUnlabel, editDelete} {
		assert.Greater(t, count[act], 40, act)
	}
}

func TestPlanOmitsSparedKinds(t *testing.T) {
	edits, kinds := Plan([]*manifest.Manifest{
		parse(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: gone, annotations: {release.openshift.io/delete: "true"}}}`),
		parse(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: once, annotations: {release.openshift.io/create-only: "true"}}}`),
		parse(t, `{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: FlowSchema, metadata: {name: all}}`),
	}, 10, rand.New(rand.NewPCG(1, 0)))
	assert.Empty(t, edits)
	assert.Zero(t, kinds)
}

// TestChangesDifferInAFieldOfTheManifest checks that each edit changes a field that the manifest sets.
func TestChangesDifferInAFieldOfTheManifest(t *testing.T) {
	for _, tt := range []struct {
		name, manifest, live string
		tops                 []string // sorted
	}{
		{
			"changes values that the object has from the manifest",
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {x: "y"}}, data: {a: "1", b: "2"}}`,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {x: "y"}}, data: {a: "1", b: other}}`,
			[]string{"data", "metadata.annotations.x", "metadata.labels." + "cvo.cluster-version.github.io/owned-by"},
		},
		{
			"changes values in lists",
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 1, targetPort: 2}]}}`,
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 1, targetPort: 2, protocol: TCP}], type: ClusterIP}}`,
			[]string{"metadata.labels.cvo.cluster-version.github.io/owned-by", "spec"},
		},
		{
			"does not change the key of an entry",
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 1, name: http}]}}`,
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 1, name: http}]}}`,
			[]string{"metadata.labels.cvo.cluster-version.github.io/owned-by"},
		},
		{
			"changes only descriptions of a CRD",
			`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a}, spec: {scope: Namespaced, group: g}}`,
			`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a}, spec: {scope: Namespaced, group: g}}`,
			[]string{"metadata.labels.cvo.cluster-version.github.io/owned-by"},
		},
		{
			"does not change the status",
			`{apiVersion: config.openshift.io/v1, kind: ClusterOperator, metadata: {name: a}, status: {versions: [{name: b}]}}`,
			`{apiVersion: config.openshift.io/v1, kind: ClusterOperator, metadata: {name: a}, status: {versions: [{name: b}]}}`,
			[]string{"metadata.labels.cvo.cluster-version.github.io/owned-by"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := &Vandal{rand: rand.New(rand.NewPCG(1, 1))}
			live := parse(t, tt.live).Object
			before := live.DeepCopy()
			var tops []string
			for _, c := range v.changes(Edit{editChange, parse(t, tt.manifest)}, live) {
				tops = append(tops, strings.Join(c.path, "."))
				if c.path[0] != "metadata" {
					assert.NotEqual(t, c.of(live), c.value)
				}
			}
			slices.Sort(tops)
			assert.Equal(t, tt.tops, tops)
			assert.Equal(t, before, live, "the object itself does not change")
		})
	}
}

func TestChangeReturnsTheValueAtItsPath(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"a": "b"}}}
	assert.Equal(t, "b", change{path: []string{"spec", "a"}}.of(u))
	assert.Nil(t, change{path: []string{"data"}}.of(u))
}

func TestPercentileReturnsTheRank(t *testing.T) {
	var values []float64
	for i := range 200 {
		values = append(values, float64(200-i))
	}
	assert.InDelta(t, 100, Percentile(values, 0.5), 0)
	assert.InDelta(t, 198, Percentile(values, 0.99), 0)
	assert.InDelta(t, 200, Percentile(values, 1), 0)
	assert.InDelta(t, 3, Percentile([]float64{3}, 0.99), 0)
	assert.Zero(t, Percentile(nil, 0.5))
}
