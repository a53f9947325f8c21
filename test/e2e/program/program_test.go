package program_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/test/e2e/program"
)

// TestImageRunsAsAnyUser checks that a pod can run the image as user nobody with a read-only root file system.
func TestImageRunsAsAnyUser(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "probe")
	require.NoError(t, os.WriteFile(binary, []byte("\x7fELF"), 0o600))
	files := map[string][]byte{"etc/b": []byte("b"), "etc/a": []byte("a")}
	image, err := program.Image(binary, files, "data")
	require.NoError(t, err)

	config, err := image.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, runtime.GOARCH, config.Architecture)
	assert.Equal(t, "linux", config.OS)
	assert.Equal(t, []string{"/probe"}, config.Config.Entrypoint)
	assert.NotContains(t, []string{"", "0", "root"}, config.Config.User)

	stream := mutate.Extract(image)
	defer stream.Close()
	found := map[string]*tar.Header{}
	contents := map[string]string{}
	for archive := tar.NewReader(stream); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		data, err := io.ReadAll(archive)
		require.NoError(t, err)
		name := filepath.Clean("/" + header.Name)
		found[name], contents[name] = header, string(data)
	}
	require.Contains(t, found, "/probe")
	assert.Equal(t, os.FileMode(0o555), found["/probe"].FileInfo().Mode().Perm()&0o555, "every user may run the program, although the file was not executable")
	assert.Equal(t, "\x7fELF", contents["/probe"])
	assert.Equal(t, "a", contents["/etc/a"])
	assert.Equal(t, os.FileMode(0o444), found["/etc/a"].FileInfo().Mode().Perm()&0o444)
	require.Contains(t, found, "/data")
	assert.True(t, found["/data"].FileInfo().IsDir())
	folder := fmt.Sprintf("%v of %d", found["/data"].FileInfo().Mode(), found["/data"].Uid)
	assert.True(t, found["/data"].FileInfo().Mode().Perm()&0o002 != 0 || found["/data"].Uid != 0, "a program that is not root may write there: %s", folder)
}

// TestImageIsReproducible checks that equal inputs result in equal bytes. A registry then stores them once, and the digest is known in
// advance.
func TestImageIsReproducible(t *testing.T) {
	digest := func(content string, files map[string][]byte) string {
		binary := filepath.Join(t.TempDir(), "probe")
		require.NoError(t, os.WriteFile(binary, []byte(content), 0o600))
		image, err := program.Image(binary, files, "data")
		require.NoError(t, err)
		digest, err := image.Digest()
		require.NoError(t, err)
		return digest.String()
	}
	files := map[string][]byte{"etc/a": []byte("a"), "etc/b": []byte("b"), "etc/c": []byte("c"), "etc/d": []byte("d")}
	first := digest("one", files)
	for range 5 { // the map has a different order each time
		assert.Equal(t, first, digest("one", files))
	}
	assert.NotEqual(t, first, digest("two", files))
	assert.NotEqual(t, first, digest("one", nil))
}

func TestImageRejectsAMissingProgram(t *testing.T) {
	_, err := program.Image(filepath.Join(t.TempDir(), "none"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}
