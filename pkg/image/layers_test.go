package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
		u := newUnpacker(limits)
		u.files["manifests/lower.yaml"] = (&packer{}).pack([]byte("lower"), time.Time{})
		if err := u.layer(bytes.NewReader(data), int64(len(data))); err != nil {
			require.Len(t, u.files, 1, "a layer that cannot be read leaves no trace")
			return
		}
		for name, file := range u.files {
			dir, base := path.Split(name)
			require.Contains(t, []string{"manifests/", "release-manifests/"}, dir)
			require.NotContains(t, []string{"", ".", ".."}, base)
			require.False(t, strings.HasPrefix(base, ".wh."))
			content, err := file.unpack()
			require.NoError(t, err)
			require.Len(t, content, int(file.size))
			require.LessOrEqual(t, len(content), 1<<16)
		}
		require.NoError(t, u.check())
	})
}
