package verify_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}
