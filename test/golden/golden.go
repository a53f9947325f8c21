// Package golden compares what a test got with a file in testdata, and writes the file anew when the test is run with
// -update.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write golden files anew")

// Assert fails the test if got is not the content of testdata/NAME.golden of the package under test.
func Assert(t testing.TB, name, got string) {
	t.Helper()
	AssertFile(t, filepath.Join("testdata", name+".golden"), got)
}

// AssertFile fails the test if got is not the content of the file.
func AssertFile(t testing.TB, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644)) //nolint:gosec // a file of the repository
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "write it with -update")
	assert.Equal(t, string(want), got, "%s differs: if that is meant, write it anew with -update", file)
}
