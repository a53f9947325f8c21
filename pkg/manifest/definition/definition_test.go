package definition_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/manifest/definition"
)

func TestInvalidVersionsAreSkipped(t *testing.T) {
	schema := map[string]any{"type": "object"}
	beta := map[string]any{"name": "v1beta1", "served": true, "storage": "yes", "schema": map[string]any{"openAPIV3Schema": schema}}
	stable := map[string]any{"name": int64(1), "storage": true}
	crd := map[string]any{"spec": map[string]any{"versions": []any{beta, "v1", nil, stable}}}

	found := definition.Versions(crd)
	assert.Equal(t, []definition.Version{
		{Name: "v1beta1", Served: true, Fields: beta},
		{Storage: true, Fields: stable},
	}, found)
	assert.Equal(t, schema, found[0].Schema())
	assert.Nil(t, found[1].Schema())
	assert.Empty(t, definition.Versions(map[string]any{"spec": []any{}}))
}
