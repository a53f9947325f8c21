// Package golden compares the result of a test with a file in testdata. With -update, the test rewrites the file.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite golden files")

// Assert fails the test if got differs from testdata/NAME.golden in the folder of the package under test.
func Assert(t testing.TB, name, got string) {
	t.Helper()
	AssertFile(t, filepath.Join("testdata", name+".golden"), got)
}

// AssertFile fails the test if got differs from the content of the file.
func AssertFile(t testing.TB, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "create it with -update")
	assert.Equal(t, string(want), got, "%s differs: if this is intended, rewrite it with -update", file)
}
