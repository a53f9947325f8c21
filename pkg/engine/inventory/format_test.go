package inventory

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// TestFirstFormatIsStillReadable reads a shard of the first version; testdata/v1 is never rewritten. A version that reads it differently
// breaks the update to that version, and a version that writes it differently breaks the rollback. Raising the format avoids both, but
// causes a round of no-op applies.
func TestFirstFormatIsStillReadable(t *testing.T) {
	sample, err := os.ReadFile(filepath.Join("testdata", "v1", "version-inventory-0.gz"))
	require.NoError(t, err)
	h, records, err := decode(sample)
	require.NoError(t, err)
	want := header{Format: 1, Of: 1, Generation: 4, Release: "4.23.0", Digest: "sha256:aaaa"}
	assert.Equal(t, want, h)
	assert.Equal(t, sampled(), records)

	written := sampled() // with the additional fields of this version
	for i := range written {
		written[i].UID, written[i].Time = "7f6a", 1_764_000_000
	}
	written[0].ResourceVersion, written[1].CreateOnly, written[2].Generation = "4711", true, 3
	var e encoder
	now, err := e.encode(want, written)
	require.NoError(t, err)
	again, back, err := decode(now)
	require.NoError(t, err)
	assert.Equal(t, h, again)
	assert.Equal(t, written, back)
}

// TestFieldsOfALaterVersionAreIgnored checks that additional fields of a later version are ignored, just as the earlier version ignores UID
// and time.
func TestFieldsOfALaterVersionAreIgnored(t *testing.T) {
	var plain bytes.Buffer
	zip := gzip.NewWriter(&plain)
	_, err := zip.Write([]byte(`{"format":1,"shard":0,"of":1,"generation":1,"release":"9.0.0","later":{}}
{"object":{"group":"","kind":"ConfigMap","namespace":"x","name":"y"},"version":"v1","release":"9.0.0","later":["z"]}
`))
	require.NoError(t, err)
	require.NoError(t, zip.Close())
	h, records, err := decode(plain.Bytes())
	require.NoError(t, err)
	assert.Equal(t, "9.0.0", h.Release)
	assert.Equal(t, []Record{{ID: manifest.ID{Kind: "ConfigMap", Namespace: "x", Name: "y"}, Version: "v1", Release: "9.0.0"}}, records)
}

// sampled returns the records in testdata/v1.
func sampled() []Record {
	var content Content
	var fields ownership.Hash
	for i := range content {
		content[i] = byte(i)
	}
	for i := range fields {
		fields[i] = byte(255 - i)
	}
	return []Record{
		{ID: manifest.ID{Kind: "ConfigMap", Namespace: "x", Name: "settings"}, Version: "v1", Content: content, Fields: fields, Release: "4.23.0", Reached: true},
		{ID: manifest.ID{Kind: "Namespace", Name: "old"}, Version: "v1", Release: "4.22.9", Dropped: "4.23.0"},
		{
			ID: manifest.ID{Group: "config.openshift.io", Kind: "ClusterOperator", Name: "dns"}, Version: "v1", Content: content, Fields: fields,
			Release: "4.23.0", Since: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC),
		},
	}
}
