package golden_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/test/golden"
)

// verdict is a fake test whose result another test checks.
type verdict struct {
	testing.TB
	failed bool
	said   string
}

func (v *verdict) Helper() {}

func (v *verdict) Errorf(format string, args ...any) {
	v.failed = true
	v.said += fmt.Sprintf(format, args...)
}

// FailNow ends only the fake test.
func (v *verdict) FailNow() { panic(v) }

func watch(t *testing.T, file, got string) (v *verdict) {
	t.Helper()
	v = &verdict{TB: t}
	defer func() {
		if r := recover(); r != nil && r != any(v) {
			panic(r)
		}
	}()
	golden.AssertFile(v, file, got)
	return v
}

func TestDifferentFileFails(t *testing.T) {
	require.NoError(t, flag.Set("update", "false"))
	file := filepath.Join(t.TempDir(), "testdata", "deep", "graph.golden")

	missing := watch(t, file, "one\n")
	assert.True(t, missing.failed, "a missing file fails the test")
	assert.Contains(t, missing.said, "-update")
	assert.NoFileExists(t, file, "only -update writes")

	require.NoError(t, flag.Set("update", "true"))
	t.Cleanup(func() { require.NoError(t, flag.Set("update", "false")) })
	assert.False(t, watch(t, file, "one\n").failed)
	require.NoError(t, flag.Set("update", "false"))

	assert.False(t, watch(t, file, "one\n").failed)
	for _, other := range []string{"two\n", "one", "one\n\n", ""} {
		differs := watch(t, file, other)
		assert.True(t, differs.failed, "%q differs from the file", other)
		assert.Contains(t, differs.said, file)
	}
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "one\n", string(data), "a difference changes no file")
}

func TestAssertReadsTheGoldenFile(t *testing.T) {
	require.NoError(t, flag.Set("update", "false"))
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("testdata", 0o700))
	require.NoError(t, os.WriteFile("testdata/help.golden", []byte("text"), 0o600))
	golden.Assert(t, "help", "text")
}
