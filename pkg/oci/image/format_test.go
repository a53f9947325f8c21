package image_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/release"
)

// TestCacheOfTheFirstVersionIsRead reads a cache folder from the first version; never regenerate testdata/v1. A version that cannot read
// the folder would fetch all content again after an update or a rollback.
func TestCacheOfTheFirstVersionIsRead(t *testing.T) {
	t.Parallel()
	pulled := release.Image{
		Pullspec: "registry.invalid/platform/release:1",
		Digest:   "sha256:fb52f2040afd368d53b10bfd4a1138987d2efcabb9841f10545ddbfd1769b4f6",
	}
	for _, tt := range []struct {
		name string
		// edit changes the index as another version might have written it.
		edit func(index map[string]any)
	}{
		{"it reads the cache of the first version", func(map[string]any) {}},
		{"it ignores unknown entries", func(index map[string]any) {
			index["later"] = "x"
			manifests, _ := index["manifests"].([]any)
			for _, m := range manifests {
				m.(map[string]any)["later"] = map[string]any{"a": 1}
			}
			index["manifests"] = append(manifests, map[string]any{
				"mediaType": "application/vnd.later.v9", "size": 1, "digest": "sha512:0000", "annotations": map[string]any{"later": "x"},
			})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "v1", "cache"))))
			require.NoError(t, os.Mkdir(filepath.Join(dir, "later"), 0o750))
			path := filepath.Join(dir, "index.json")
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			var index map[string]any
			require.NoError(t, json.Unmarshal(data, &index))
			tt.edit(index)
			data, err = json.Marshal(index)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, data, 0o600))

			r := receiver(t, image.Options{CacheDir: dir}) // there is no registry
			files, err := r.Manifests(t.Context(), pulled)
			require.NoError(t, err)
			content, err := fs.ReadFile(files, "manifests/0000_00_x.yaml")
			require.NoError(t, err)
			assert.Equal(t, "pulled", string(content))
			files, err = r.Received(t.Context(), received())
			require.NoError(t, err)
			require.NotNil(t, files)
			content, err = fs.ReadFile(files, "release-manifests/0000_50_y.yaml")
			require.NoError(t, err)
			assert.Equal(t, "release-manifests/0000_50_y.yaml", string(content))
		})
	}
}
