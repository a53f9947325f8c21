package layer

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/failure"
)

//threat:layers-tar-gzip
func FuzzLayer(f *testing.F) {
	seed := func(headers ...tar.Header) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for _, h := range headers {
			h.Size = int64(len(h.Name))
			if h.Typeflag != tar.TypeReg {
				h.Size = 0
			}
			require.NoError(f, w.WriteHeader(&h))
			if h.Size > 0 {
				_, err := w.Write([]byte(h.Name))
				require.NoError(f, err)
			}
		}
		require.NoError(f, w.Close())
		return out.Bytes()
	}
	plain := seed(
		tar.Header{Name: "manifests/", Typeflag: tar.TypeDir}, tar.Header{Name: "manifests/a.yaml", Typeflag: tar.TypeReg},
		tar.Header{Name: "manifests/.wh.b.yaml", Typeflag: tar.TypeReg}, tar.Header{Name: ".wh..wh..opq", Typeflag: tar.TypeReg},
	)
	f.Add(plain)
	f.Add(seed(tar.Header{Name: "manifests/x", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}))
	f.Add(seed(tar.Header{Name: "../manifests/x", Typeflag: tar.TypeReg}))
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(plain)
	require.NoError(f, err)
	require.NoError(f, w.Close())
	f.Add(packed.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		limits := Limits{UnpackedBytes: 16 << 20, FileBytes: 1 << 16, TotalBytes: 1 << 20}.WithDefaults()
		found := map[string][]byte{}
		w := NewWalker(limits, func(file File) error {
			data, err := io.ReadAll(file.Content)
			if err == nil && int64(len(data)) != file.Size {
				t.Errorf("%s: %d bytes instead of %d", file.Name, len(data), file.Size)
			}
			require.NotContains(t, found, file.Name)
			found[file.Name] = data
			return err
		})
		w.hidden["manifests/upper.yaml"] = true
		if err := w.Layer(bytes.NewReader(data), int64(len(data))); err != nil {
			require.True(t, errors.Is(err, failure.ErrIntegrity) || errors.Is(err, failure.ErrLimit), err)
			return
		}
		for name, data := range found {
			dir, base := path.Split(name)
			require.Contains(t, []string{"manifests/", "release-manifests/"}, dir)
			require.NotContains(t, []string{"", ".", "..", "upper.yaml"}, base)
			require.False(t, strings.HasPrefix(base, ".wh."))
			require.LessOrEqual(t, len(data), 1<<16)
		}
	})
}
