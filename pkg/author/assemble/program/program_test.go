package program_test

import (
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/program"
	"github.com/cluster-version/cvo/test/fixture"
)

func TestProgramImageHasTheGivenFiles(t *testing.T) {
	opts := program.Options{
		Name: "tool", Binary: []byte("\x7fELF"), Architecture: "arm64", Created: time.Unix(1_700_000_000, 999),
		Files: []input.File{{Name: "words/greeting", Data: []byte("hello\n")}}, Folders: []string{"data"},
	}
	img, err := program.Image(opts)
	require.NoError(t, err)
	config, err := img.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, "arm64", config.Architecture)
	assert.Equal(t, v1.Config{Entrypoint: []string{"/tool"}, User: "65532:65532"}, config.Config)
	assert.True(t, config.Created.Equal(time.Unix(1_700_000_000, 0)))
	layers, err := img.Layers()
	require.NoError(t, err)
	require.Len(t, layers, 1)
	content, err := fixture.ListLayer(layers[0])
	require.NoError(t, err)
	assert.Equal(t, "0 0755 0:0 2023-11-14T22:13:20Z tool\n"+
		"0 0444 0:0 2023-11-14T22:13:20Z words/greeting\n"+
		"5 1777 0:0 2023-11-14T22:13:20Z data/\n", content)

	digest, err := img.Digest()
	require.NoError(t, err)
	again, err := program.Image(opts)
	require.NoError(t, err)
	same, err := again.Digest()
	require.NoError(t, err)
	assert.Equal(t, digest, same, "the same input results in the same digest")
}
