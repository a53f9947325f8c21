package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOverlayFitsThisGo finds a version of Go whose source needs another overlay. Only `make outer` builds with the overlay.
func TestOverlayFitsThisGo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, write(file))
	var overlay struct{ Replace map[string]string }
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &overlay))
	require.Len(t, overlay.Replace, 1)
	for original, changed := range overlay.Replace {
		assert.FileExists(t, original)
		source, err := os.ReadFile(changed)
		require.NoError(t, err)
		assert.NotContains(t, string(source), "MethodByName(")
	}
}
