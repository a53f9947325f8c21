package image_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/image/layer"
	"github.com/cluster-version/cvo/test/fixture"
)

// BenchmarkRead reads a real release of 932 files and 17 MB from a registry on this machine.
func BenchmarkRead(b *testing.B) {
	registry := fixture.StartRegistry(b)
	folder := os.DirFS(filepath.Join(fixture.Testdata(b), "payloads", "4.23.0"))
	img, err := fixture.PushRelease(b.Context(), registry, folder, "platform/release:4.23.0")
	require.NoError(b, err)
	cached := open(b, image.Options{CacheDir: b.TempDir()})
	for _, tt := range []struct {
		name string
		read func(*image.Reader) error
	}{
		{"manifests", func(r *image.Reader) error { _, err := r.Manifests(b.Context(), img); return err }},
		{"walk", func(r *image.Reader) error {
			return r.Walk(b.Context(), img, func(f layer.File) error { _, err := io.Copy(io.Discard, f.Content); return err })
		}},
		{"two files", func(r *image.Reader) error {
			_, err := r.ReadFiles(b.Context(), img, "release-manifests/image-references", "release-manifests/release-metadata")
			return err
		}},
	} {
		b.Run(tt.name+"/registry", func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, tt.read(open(b, image.Options{})))
			}
		})
		b.Run(tt.name+"/empty cache", func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, tt.read(open(b, image.Options{CacheDir: b.TempDir()})))
			}
		})
		b.Run(tt.name+"/cache", func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, tt.read(cached))
			}
		})
	}
}
