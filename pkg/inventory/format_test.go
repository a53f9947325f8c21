package inventory

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/ownership"
)

// TestFormat reads the shard that the first version wrote: testdata/v1 is never written anew. A version that reads it in
// another way breaks the update to it, and one that writes another breaks the way back, unless it raises the format, which
// costs applies that change nothing.
func TestFormat(t *testing.T) {
	sample, err := os.ReadFile(filepath.Join("testdata", "v1", "version-inventory-0.gz"))
	require.NoError(t, err)
	h, records, err := decode(sample)
	require.NoError(t, err)
	want := header{Format: 1, Of: 1, Generation: 4, Release: "4.23.0", Digest: "sha256:aaaa"}
	assert.Equal(t, want, h)
	assert.Equal(t, sampled(), records)

	var e encoder
	now, err := e.encode(want, sampled())
	require.NoError(t, err)
	again, back, err := decode(now)
	require.NoError(t, err)
	assert.Equal(t, h, again)
	assert.Equal(t, records, back)
}

// sampled are the records of the sample.
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
