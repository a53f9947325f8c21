package program_test

import (
	"archive/tar"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/author/assemble"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/program"
)

var (
	epoch    = time.Date(2026, 3, 1, 12, 0, 0, 500, time.UTC)
	manifest = input.File{Name: "0000_00_cluster-version-operator_00.yaml", Data: []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: operator}\n")}
)

//threat:libraries-host-image
func TestOperatorImageIsABaseForReleases(t *testing.T) {
	opts := program.ProjectOptions{
		Binary: []byte("cvo"), Certificates: []byte("pem"), Manifests: []input.File{manifest}, Architecture: "arm64", Created: epoch,
	}
	opts.Version, opts.Revision = "v1.2.3", "0123abc"
	base, err := program.Operator(opts)
	require.NoError(t, err)

	t.Run("it has the given architecture", func(t *testing.T) {
		config, err := base.ConfigFile()
		require.NoError(t, err)
		assert.Equal(t, "linux/arm64", config.Platform().String())
		index, err := program.Index([]v1.Image{base})
		require.NoError(t, err)
		list, err := index.IndexManifest()
		require.NoError(t, err)
		assert.Equal(t, types.OCIImageIndex, list.MediaType)
		assert.Equal(t, "linux/arm64", list.Manifests[0].Platform.String())
	})
	t.Run("it matches the Dockerfile", func(t *testing.T) {
		config, err := base.ConfigFile()
		require.NoError(t, err)
		got := config.Config
		data, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "Dockerfile"))
		require.NoError(t, err)
		_, final, ok := strings.Cut(string(data), "\nFROM scratch\n")
		require.True(t, ok)
		final = strings.NewReplacer("\\\n", " ", "$VERSION", opts.Version, "$REVISION", opts.Revision).Replace(final)
		labels := map[string]string{}
		for _, label := range regexp.MustCompile(`([\w.-]+)="([^"]*)"`).FindAllStringSubmatch(final, -1) {
			labels[label[1]] = label[2]
		}
		assert.Equal(t, labels, got.Labels)
		for _, line := range []string{
			"USER " + got.User, "WORKDIR " + got.WorkingDir, "ENV " + strings.Join(got.Env, " "), `ENTRYPOINT ["` + strings.Join(got.Entrypoint, `", "`) + `"]`,
		} {
			assert.Contains(t, final, "\n"+line+"\n")
		}
		var copied []string
		for _, line := range regexp.MustCompile(`(?m)^COPY --from=build /out(\S+) (\S+)$`).FindAllStringSubmatch(final, -1) {
			require.Equal(t, line[1], line[2])
			copied = append(copied, line[2])
		}
		layers, err := base.Layers()
		require.NoError(t, err)
		var folders []string
		for _, layer := range layers {
			content, err := layer.Uncompressed()
			require.NoError(t, err)
			first, err := tar.NewReader(content).Next()
			require.NoError(t, err)
			require.NoError(t, content.Close())
			folders = append(folders, "/"+strings.TrimSuffix(first.Name, "/"))
		}
		assert.Equal(t, copied, folders)
	})

	t.Run("it is a base for runnable releases", func(t *testing.T) {
		r, err := assemble.New(assemble.Options{Version: "1.0.0", Base: base})
		require.NoError(t, err)
		config, err := r.Image.ConfigFile()
		require.NoError(t, err)
		assert.Equal(t, []string{"/cvo"}, config.Config.Entrypoint)
		layers, err := r.Image.Layers()
		require.NoError(t, err)
		assert.Len(t, layers, 4)
	})
	t.Run("it has the same digest for the same input", func(t *testing.T) {
		again, err := program.Operator(opts)
		require.NoError(t, err)
		want, err := base.Digest()
		require.NoError(t, err)
		got, err := again.Digest()
		require.NoError(t, err)
		assert.Equal(t, want, got)
	})
}
