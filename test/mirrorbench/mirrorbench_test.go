package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMain also serves as each of the processes that a measurement starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "registry", "fill", "plain", "cvo":
			main()
			return
		}
	}
	os.Exit(m.Run())
}

func TestMeasureComparesCopies(t *testing.T) {
	report, err := measure(t.Context(), options{runs: 1, images: 4, shrink: 256, parallel: 8})
	require.NoError(t, err)
	require.Len(t, report.Medians, 3)
	plain, mirror, again := report.Medians[0], report.Medians[1], report.Medians[2]
	assert.Equal(t, subjectPlain, plain.Subject)
	assert.InDelta(t, 1, plain.Ratio, 0.001)
	// There are 4 shared blobs, 4 blobs and a configuration per image, and the release's layer and configuration.
	assert.Equal(t, 4+4*4+4+2, report.Blobs)
	assert.GreaterOrEqual(t, plain.Target.Received, report.Bytes)
	assert.GreaterOrEqual(t, mirror.Target.Received, report.Bytes, "the target receives at least the same bytes")
	assert.Less(t, mirror.Source.Sent, 2*report.Bytes, "no content is fetched twice")
	assert.Less(t, again.Target.Received, int64(1000), "existing content is not sent again")
}
