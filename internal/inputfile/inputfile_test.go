package inputfile_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/internal/inputfile"
)

func TestReadReturnsTheWholeFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "largest")
	content := make([]byte, inputfile.Max)
	content[len(content)-1] = 'x'
	require.NoError(t, os.WriteFile(file, content, 0o600))
	data, err := inputfile.Read(file)
	require.NoError(t, err)
	assert.Equal(t, content, data)
}

func TestReadAcceptsAPipe(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	_, err = w.WriteString("secret")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	data, err := inputfile.Read(fmt.Sprintf("/dev/fd/%d", r.Fd()))
	require.NoError(t, err)
	assert.Equal(t, "secret", string(data))
}

// TestReadRejectsAFileWithoutEnd reads a device that returns bytes for ever.
func TestReadRejectsAFileWithoutEnd(t *testing.T) {
	_, err := inputfile.Read("/dev/zero")
	require.EqualError(t, err, "/dev/zero has more than 4 MiB: name another file")
}

func TestReadNamesAMissingFile(t *testing.T) {
	_, err := inputfile.Read("missing")
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "missing")
}
