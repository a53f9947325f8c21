package api_test

import (
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
)

func TestRewordedKeepsTheCause(t *testing.T) {
	path := &fs.PathError{Op: "open", Path: "/tmp/of-a-process-4711", Err: fs.ErrNotExist}
	err := fmt.Errorf("reading the key: %w", api.Reworded(path, "there is none"))
	require.EqualError(t, err, "reading the key: there is none")
	require.ErrorIs(t, err, fs.ErrNotExist)
	var as *fs.PathError
	require.ErrorAs(t, err, &as)
	assert.Same(t, path, as)
}
