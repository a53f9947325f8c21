package operator

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/clusterversion"
)

// definition reads a definition that the API module has.
func definition(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(definitionFile(t, file))
	require.NoError(t, err)
	crd := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal(data, &crd.Object))
	return crd
}

func TestSchemaOf(t *testing.T) {
	const prefix = "0000_00_cluster-version-operator_01_clusterversions-"
	for _, test := range []struct {
		name string
		file string
		want clusterversion.Schema
	}{
		{"finds nothing in the variant of ordinary clusters", prefix + "Default.crd.yaml", clusterversion.Schema{}},
		{
			"finds risks, but no mode, in the technology preview", prefix + "TechPreviewNoUpgrade.crd.yaml",
			clusterversion.Schema{AcceptRisks: true, ConditionalUpdateRisks: true, RiskNames: true, RiskConditions: true},
		},
		{
			"finds everything in the variant that has everything", prefix + "CustomNoUpgrade.crd.yaml",
			clusterversion.Schema{Mode: true, AcceptRisks: true, ConditionalUpdateRisks: true, RiskNames: true, RiskConditions: true},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := schemaOf(definition(t, test.file))
			assert.True(t, got.Names("Console"))
			assert.False(t, got.Names("Tomorrow"))
			got.Capabilities = ""
			assert.Equal(t, test.want, got)
		})
	}
}

func TestSchemaOfOddDefinitions(t *testing.T) {
	for name, object := range map[string]map[string]any{
		"an empty object":              {},
		"versions that are no list":    {"spec": map[string]any{"versions": "v1"}},
		"a version that is no object":  {"spec": map[string]any{"versions": []any{"v1"}}},
		"a version without a schema":   {"spec": map[string]any{"versions": []any{map[string]any{"name": "v1"}}}},
		"a schema of no use":           {"spec": map[string]any{"versions": []any{map[string]any{"name": "v1", "schema": []any{}}}}},
		"properties that are a string": {"spec": map[string]any{"versions": []any{map[string]any{"name": "v1", "schema": map[string]any{"openAPIV3Schema": map[string]any{"properties": "x"}}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, clusterversion.Schema{}, schemaOf(&unstructured.Unstructured{Object: object}))
		})
	}
}

// TestPauseHoldsWhateverStatusSays: the schema lets pass durations that are none.
func TestPauseHoldsWhateverStatusSays(t *testing.T) {
	object := func(took string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "version", "generation": int64(3)},
			"spec":     map[string]any{"paused": true},
			"status": map[string]any{"history": []any{map[string]any{
				"to": "1.0.0", "runlevels": []any{map[string]any{"runlevel": int64(10), "manifests": int64(1), "took": took}},
			}}},
		}}
	}
	for took, history := range map[string]int{"3s": 1, "soon": 0} {
		rollout := releaseRolloutOf(object(took))
		require.NotNil(t, rollout, took)
		assert.True(t, rollout.Spec.Paused)
		assert.EqualValues(t, 3, rollout.Generation)
		assert.Len(t, rollout.Status.History, history)
	}
	assert.Nil(t, releaseRolloutOf(nil))
	assert.Nil(t, releaseRolloutOf(&unstructured.Unstructured{Object: map[string]any{"spec": "paused"}}))
}
