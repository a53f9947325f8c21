package source_test

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/author/lint/source"
)

func TestReadFilesReadsReleaseFoldersOnly(t *testing.T) {
	files, err := source.ReadFiles(fstest.MapFS{
		"manifests/a.yaml": {Data: []byte("a")}, "release-manifests/deep/b.yaml": {Data: []byte("b")}, "other/c.yaml": {Data: []byte("c")},
	})
	require.NoError(t, err)
	assert.Equal(t, []source.File{{Name: "manifests/a.yaml", Data: []byte("a")}, {Name: "release-manifests/deep/b.yaml", Data: []byte("b")}}, files)
}
