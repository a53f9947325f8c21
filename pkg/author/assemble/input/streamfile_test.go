package input

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStreamFileIsFetchedSafely(t *testing.T) {
	_, err := StreamFile{Name: "http://registry.example/stream"}.Read(t.Context())
	require.ErrorContains(t, err, "does not use TLS")

	stream, err := StreamFile{Name: "-", Input: strings.NewReader("kind: ImageStream\nmetadata: {name: platform}\n")}.Read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "platform", stream.Name)

	_, err = StreamFile{Name: "-", Input: strings.NewReader(strings.Repeat("#", 16<<20+1))}.Read(t.Context())
	require.ErrorContains(t, err, "it has more than")
	_, err = StreamFile{Name: filepath.Join(t.TempDir(), "gone")}.Read(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
}
