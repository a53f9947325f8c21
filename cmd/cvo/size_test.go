package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/test/ring"
)

// maxBinary is the largest acceptable size of the binary for amd64 in bytes. It includes 1.6 MB for Ignition's parser, with which cvo nodes plan
// renders MachineConfigs as the controller does.
const maxBinary = 61_400_000

// TestBinaryIsSmall builds the program as make does. The binary grows by a fifth as soon as any part of it finds methods by
// names that the linker does not know: then every exported method has to stay. text/template does so without the overlay.
func TestBinaryIsSmall(t *testing.T) {
	ring.NeedOuter(t) // make test compiles everything in one way, and this build has another source and another target
	overlay, file := filepath.Join(t.TempDir(), "overlay.json"), filepath.Join(t.TempDir(), "cvo")
	for _, arguments := range [][]string{
		{"run", "../../hack/overlay", overlay},
		{"build", "-trimpath", "-overlay", overlay, "-ldflags", "-s -w", "-o", file, "."},
	} {
		command := exec.CommandContext(t.Context(), "go", arguments...)
		command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
		if arguments[0] == "build" {
			command.Env = append(command.Env, "GOARCH=amd64")
		}
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.LessOrEqual(t, info.Size(), int64(maxBinary))
}
