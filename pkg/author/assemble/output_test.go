package assemble

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/internal/atomicfile"
	"github.com/cluster-version/cvo/pkg/author/assemble/publish"
	ocilayout "github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/release"
)

// large returns a release that is slow to write.
func large(version string) Options {
	opts := small()
	opts.Version = version
	for i := range 300 {
		opts.Components[0].Files = append(opts.Components[0].Files, file(fmt.Sprintf("0000_40_ntp_%03d.yaml", i), object("Namespace", fmt.Sprintf("ntp-%s-%d", strings.ReplaceAll(version, ".", "-"), i), "")))
	}
	return opts
}

// partial is part of the names of incomplete files.
const partial = ".partial-"

// writerEnv makes this test binary write releases until it is killed. Its value is "folder" or "layout", and the target.
const writerEnv = "CVO_TEST_WRITER"

func TestMain(m *testing.M) {
	kind, dir, ok := strings.Cut(os.Getenv(writerEnv), " ")
	if !ok {
		os.Exit(m.Run())
	}
	for i := 0; ; i++ {
		r, err := New(large(fmt.Sprintf("1.0.%d", i)))
		if err == nil {
			if kind == "folder" {
				err = r.WriteFolder(filepath.Join(dir, "out", r.Version))
			} else {
				err = r.WriteLayout(filepath.Join(dir, "out"))
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(r.Version)
	}
}

// killed starts a writer and kills it after the first complete release, while the writer writes the next.
func killed(t *testing.T, kind, dir string, moment int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), writerEnv+"="+kind+" "+dir)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	if _, err = io.ReadFull(out, make([]byte, len("1.0.0\n"))); err != nil {
		_ = cmd.Wait() // waits until all of stderr has been read
		require.NoError(t, err, errs.String())
	}
	// The writer is killed once this number of files has a temporary name.
	for files := 0; files <= moment; {
		staged, err := filepath.Glob(filepath.Join(dir, "out", "*"+partial+"*"))
		require.NoError(t, err)
		besides, err := filepath.Glob(filepath.Join(dir, ".*"+partial+"*"))
		require.NoError(t, err)
		files = 0
		for _, root := range append(staged, besides...) {
			_ = filepath.WalkDir(root, func(string, os.DirEntry, error) error { files++; return nil })
		}
	}
	require.NoError(t, cmd.Process.Kill())
	_, _ = io.Copy(io.Discard, out)
	require.Error(t, cmd.Wait(), "the writer was killed")
}

func TestKilledWriterLeavesNoPartialOutput(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, moment := range []int{0, 3, 50, 200, 290} {
		t.Run(fmt.Sprintf("it leaves no partial folder when killed at file %d", moment), func(t *testing.T) {
			dir := t.TempDir()
			killed(t, "folder", dir, moment)
			written, err := filepath.Glob(filepath.Join(dir, "out", "[0-9]*"))
			require.NoError(t, err)
			require.NotEmpty(t, written)
			for _, folder := range written {
				want := assembled(t, large(filepath.Base(folder)))
				assert.Len(t, tree(t, folder), len(want.releaseFiles())+len(want.operator), folder)
			}
		})
	}
	for _, moment := range []int{0, 1, 2, 4, 6} {
		t.Run(fmt.Sprintf("it leaves complete images in a layout when killed at file %d", moment), func(t *testing.T) {
			dir := t.TempDir()
			killed(t, "layout", dir, moment)
			index, err := layout.ImageIndexFromPath(filepath.Join(dir, "out"))
			require.NoError(t, err)
			require.NoError(t, validate.Index(index))
			blobs, err := os.ReadDir(filepath.Join(dir, "out", "blobs", "sha256"))
			require.NoError(t, err)
			for _, b := range blobs {
				data, err := os.ReadFile(filepath.Join(dir, "out", "blobs", "sha256", b.Name()))
				require.NoError(t, err)
				assert.Equal(t, b.Name(), release.Digest(digestOf(data)).Hex(), "content matches its digest")
			}
			require.NoError(t, assembled(t, small()).WriteLayout(filepath.Join(dir, "out")), "the next writer can continue")
		})
	}
}

func TestOutputsAreNotOverwritten(t *testing.T) {
	r, other := assembled(t, small()), small()
	other.Components[0].Files = other.Components[0].Files[:1]
	dir := t.TempDir()
	full := filepath.Join(dir, "full")
	require.NoError(t, os.MkdirAll(full, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(full, "x"), nil, 0o644))
	oci := filepath.Join(dir, "oci")
	require.NoError(t, r.WriteLayout(oci))
	for _, tt := range []struct {
		name  string
		write func() error
		want  string
	}{
		{"a nonempty folder", func() error { return r.WriteFolder(full) }, "exists and is not empty: name an empty or new folder"},
		{"a file instead of a folder", func() error { return r.WriteFolder(filepath.Join(full, "x")) }, "name an empty or new folder"},
		{"a folder that is not a layout", func() error { return r.WriteLayout(full) }, "is not an OCI layout"},
		{"a layout that has another release with the same version", func() error { return assembled(t, other).WriteLayout(oci) }, "has another release 1.2.0+build.7"},
	} {
		t.Run("it refuses "+tt.name, func(t *testing.T) {
			assert.ErrorContains(t, tt.write(), tt.want)
		})
	}
	t.Run("it leaves no files if writing fails", func(t *testing.T) {
		to := filepath.Join(dir, "failed")
		require.Error(t, atomicfile.Appear(to, func(string) error { return io.ErrClosedPipe }))
		left, err := filepath.Glob(filepath.Join(dir, "*failed*"))
		require.NoError(t, err)
		assert.Empty(t, left)
		hidden, err := filepath.Glob(filepath.Join(dir, ".*"))
		require.NoError(t, err)
		assert.Empty(t, hidden)
	})
	t.Run("it replaces an image with the same name in a layout on request", func(t *testing.T) {
		require.NoError(t, ocilayout.Add(oci, r.Version, func(p layout.Path, o layout.Option) error { return p.AppendImage(assembled(t, other).Image, o) }))
		index, err := ocilayout.ReadIndex(oci)
		require.NoError(t, err)
		require.Len(t, index.Manifests, 1)
		assert.Equal(t, string(assembled(t, other).Digest), index.Manifests[0].Digest.String())
	})
}

func TestWrittenLayerMatchesTheImage(t *testing.T) {
	r := assembled(t, small())
	var out bytes.Buffer
	require.NoError(t, r.WriteLayer(&out))
	m, err := r.Image.Manifest()
	require.NoError(t, err)
	assert.Equal(t, m.Layers[len(m.Layers)-1].Digest.String(), digestOf(out.Bytes()), "the written layer is identical to the image's")
}

func digestOf(data []byte) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(data))
}

func TestLayoutKeepsImagesOfTwoWriters(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "oci")
	r := assembled(t, small())
	require.NoError(t, r.WriteLayout(dir))
	require.NoError(t, ocilayout.Add(dir, "slow", func(p layout.Path, o layout.Option) error {
		require.NoError(t, publish.ToLayout(r.Image, dir, "quick"), "the second writer writes while the first is still writing")
		return p.AppendImage(r.Image, o)
	}))
	index, err := ocilayout.ReadIndex(dir)
	require.NoError(t, err)
	var names []string
	for _, m := range index.Manifests {
		names = append(names, ocilayout.NameOf(m))
	}
	assert.Equal(t, []string{r.Version, "quick", "slow"}, names, "no writer drops the other writer's image")
}
