package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/test/fixture"
)

// What reading a release of 17 MB in 932 files from a registry on this machine may cost. The time is what it takes on two
// idle cores; a test shares them, so it allows for three times as much. Memory is the same on a busy machine.
const (
	extractTime   = 500 * time.Millisecond
	infoTime      = 200 * time.Millisecond
	busy          = 3
	readingMemory = 64 << 20
)

// measureEnv has this test binary run a command and tell what it took, instead of testing. A process is charged the
// memory of the one that started it (Linux carries the peak over exec), and a test with a registry in it is large.
const measureEnv = "CVO_E2E_MEASURE"

// cost is what a command took.
type cost struct {
	Wall   time.Duration
	Memory int64
	Output string
	Failed string
}

// runMeasured runs the command in the arguments and prints its cost.
func runMeasured() int {
	var c cost
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	c.Wall, c.Output = time.Since(begin), string(out)
	if err != nil {
		c.Failed = err.Error()
	}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.Memory = usage.Maxrss * 1024 // Linux counts kilobytes
	}
	if err := json.NewEncoder(os.Stdout).Encode(c); err != nil {
		return 1
	}
	return 0
}

// measure runs cvo five times and returns the fastest run with the largest memory of all.
func measure(t *testing.T, prepare func(), args ...string) cost {
	t.Helper()
	var costs []cost
	for range 5 {
		prepare()
		cmd := exec.Command(os.Args[0], append([]string{filepath.Join(binaries, "cvo")}, args...)...)
		cmd.Env = append(os.Environ(), measureEnv+"=1")
		out, err := cmd.Output()
		require.NoError(t, err)
		var c cost
		require.NoError(t, json.Unmarshal(out, &c), string(out))
		require.Empty(t, c.Failed, c.Output)
		costs = append(costs, c)
	}
	best := slices.MinFunc(costs, func(a, b cost) int { return int(a.Wall - b.Wall) })
	best.Memory = slices.MaxFunc(costs, func(a, b cost) int { return int(a.Memory - b.Memory) }).Memory
	t.Logf("cvo %v: %v, %.1f MiB", args[:2], best.Wall.Round(time.Millisecond), float64(best.Memory)/(1<<20))
	return best
}

// TestReadingBudget reads a real release with the built binary.
func TestReadingBudget(t *testing.T) {
	root := filepath.Join(fixture.Testdata(t), "payloads", "4.23.0")
	img, err := fixture.PushRelease(t.Context(), fixture.StartRegistry(t), os.DirFS(root), "ocp/release:4.23.0")
	require.NoError(t, err)

	to := filepath.Join(t.TempDir(), "out")
	extract := measure(t, func() { require.NoError(t, os.RemoveAll(to)) }, "release", "extract", img.Pullspec, "--layout", "image", "--to", to)
	assert.Less(t, extract.Wall, busy*extractTime)
	assert.Less(t, extract.Memory, int64(readingMemory))
	diff, err := exec.Command("diff", "-r", root, to).CombinedOutput()
	require.NoError(t, err, "%s", diff)

	info := measure(t, func() {}, "release", "info", img.Pullspec)
	assert.Less(t, info.Wall, busy*infoTime)
	assert.Less(t, info.Memory, int64(readingMemory))
	assert.Contains(t, info.Output, fmt.Sprintf("Digest:         %s\n", img.Digest))
}
