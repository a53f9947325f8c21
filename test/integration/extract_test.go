package integration_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/test/fixture"
)

// Limits for reading a release of 17 MB in 932 files from a local registry. They limit processor time, because it does not depend on the
// load of the machine; a slow processor may need four times as long as a fast one. Most of the memory is the binary itself, so a separate
// limit applies to the excess over a command that reads nothing.
const (
	extractTime   = 900 * time.Millisecond
	infoTime      = 600 * time.Millisecond
	totalMemory   = 64 << 20
	readingMemory = 16 << 20
)

// cost is the time and the memory that a command used.
type cost struct {
	Wall, CPU      time.Duration
	Memory         int64
	Output, Failed string
}

// measured returns the cvo binary to measure, if possible a copy in memory. The kernel maps a file on disk in large or small pieces,
// depending on its page cache, which changes the memory by up to 8 MiB.
func measured(t *testing.T) string {
	t.Helper()
	cvo := filepath.Join(binaries, "cvo")
	dir, err := os.MkdirTemp("/dev/shm", "cvo-measured-") //nolint:usetesting // in memory, unlike a test's own folder
	if err != nil {
		return cvo
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	data, err := os.ReadFile(cvo)
	require.NoError(t, err)
	file := filepath.Join(dir, "cvo")
	require.NoError(t, os.WriteFile(file, data, 0o755))
	if exec.Command(file, "--version").Run() != nil {
		return cvo // the folder is mounted noexec
	}
	return file
}

// measure runs cvo five times and returns the lowest processor time and the largest memory.
func measure(t *testing.T, cvo string, prepare func(), args ...string) cost {
	t.Helper()
	var costs []cost
	for range 5 {
		prepare()
		out, err := exec.Command(filepath.Join(binaries, "measure"), append([]string{cvo}, args...)...).Output()
		require.NoError(t, err)
		var c cost
		require.NoError(t, json.Unmarshal(out, &c), string(out))
		require.Empty(t, c.Failed, c.Output)
		costs = append(costs, c)
	}
	best := slices.MinFunc(costs, func(a, b cost) int { return cmp.Compare(a.CPU, b.CPU) })
	best.Memory = slices.MaxFunc(costs, func(a, b cost) int { return cmp.Compare(a.Memory, b.Memory) }).Memory
	t.Logf("cvo %v: %v, %v of the processor, %.1f MiB", args, best.Wall.Round(time.Millisecond), best.CPU.Round(time.Millisecond), float64(best.Memory)/(1<<20))
	return best
}

// TestReadingStaysWithinItsBudget reads a real release with the built binary.
func TestReadingStaysWithinItsBudget(t *testing.T) {
	root := filepath.Join(fixture.Testdata(t), "payloads", "4.23.0")
	img, err := fixture.PushRelease(t.Context(), fixture.StartRegistry(t), os.DirFS(root), "ocp/release:4.23.0")
	require.NoError(t, err)

	cvo := measured(t)
	nothing := measure(t, cvo, func() {}, "--help")
	to := filepath.Join(t.TempDir(), "out")
	extract := measure(t, cvo, func() { require.NoError(t, os.RemoveAll(to)) }, "release", "extract", img.Pullspec, "--layout", "image", "--to", to)
	assert.Less(t, extract.CPU, extractTime)
	assert.Less(t, extract.Memory-nothing.Memory, int64(readingMemory))
	assert.Less(t, extract.Memory, int64(totalMemory))
	diff, err := exec.Command("diff", "-r", root, to).CombinedOutput()
	require.NoError(t, err, "%s", diff)

	info := measure(t, cvo, func() {}, "release", "info", img.Pullspec)
	assert.Less(t, info.CPU, infoTime)
	assert.Less(t, info.Memory-nothing.Memory, int64(readingMemory))
	assert.Less(t, info.Memory, int64(totalMemory))
	assert.Contains(t, info.Output, fmt.Sprintf("Digest:         %s\n", img.Digest))
}
