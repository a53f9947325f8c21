package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMeasureReportsTheCostOfACommand(t *testing.T) {
	t.Run("reports the cost of a command", func(t *testing.T) {
		// The shell holds 8 MiB, so that wrong units are noticed.
		c := measure("bash", "-c", `s=$(head -c 8388608 /dev/zero | tr '\0' x); echo ${#s}`)
		require.Empty(t, c.Failed)
		assert.Equal(t, "8388608", strings.TrimSpace(c.Output))
		assert.Greater(t, c.Memory, int64(8<<20))
		assert.Less(t, c.Memory, int64(8<<30), "the unit of the memory is wrong")
		assert.Positive(t, c.CPU)
		assert.Positive(t, c.Wall)
	})
	t.Run("distinguishes elapsed time from processor time", func(t *testing.T) {
		c := measure("sleep", "0.2")
		assert.GreaterOrEqual(t, c.Wall, 200*time.Millisecond)
		assert.Less(t, c.CPU, c.Wall)
	})
	t.Run("reports the failure and the output of a command", func(t *testing.T) {
		c := measure("bash", "-c", "echo out; echo err >&2; exit 3")
		assert.Equal(t, "exit status 3", c.Failed)
		assert.Equal(t, "out\nerr\n", c.Output)
	})
	t.Run("reports a missing command", func(t *testing.T) {
		c := measure(filepath.Join(t.TempDir(), "none"))
		assert.Contains(t, c.Failed, "no such file")
		assert.Zero(t, c.Memory)
	})
}
