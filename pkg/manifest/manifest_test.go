package manifest_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/manifest"
)

func TestTextsAreAllStringsAndFieldNames(t *testing.T) {
	value := map[string]any{"b": []any{"x", int64(1), map[string]any{"c": "y"}}, "a": true}
	assert.Equal(t, []string{"a", "b", "x", "c", "y"}, slices.Collect(manifest.Texts(value)))
	for text := range manifest.Texts(value) {
		assert.Equal(t, "a", text)
		break
	}
}
