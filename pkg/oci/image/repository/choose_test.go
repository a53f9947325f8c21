package repository

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/document"
	"github.com/cluster-version/cvo/test/fixture"
)

//threat:manifests-images-indexes
func FuzzChoose(f *testing.F) {
	for _, seed := range append(fixture.HostileJSON(), `{"manifests":[{"digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000","platform":{"architecture":"arm64","os":"linux"}}]}`) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		doc, err := document.Parse(raw)
		if err != nil {
			return
		}
		if chosen, err := choose(nil, doc.Manifests); err == nil {
			require.Contains(t, doc.Manifests, chosen)
		}
	})
}
