//go:build linux

package cli

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli/command"
)

func TestControllerNeedsEvictions(t *testing.T) {
	cmd := New(command.Streams{Out: io.Discard, Err: io.Discard})
	cmd.SetArgs([]string{"controller", "--evictions-per-second", "0"})
	err := cmd.ExecuteContext(t.Context())
	require.EqualError(t, err, "--evictions-per-second is 0: set a positive number, or -1 for no limit")
	assert.Equal(t, command.ExitUsage, command.ExitCode(err))
}
