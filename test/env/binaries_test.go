package env_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBuildChecksLinkedTools fills the folder of envtest, and updates it after its kubectl was linked. A script replaces go.
func TestBuildChecksLinkedTools(t *testing.T) {
	bin, assets, path := t.TempDir(), t.TempDir(), t.TempDir()
	program := func(file, script string) {
		require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	}
	program(filepath.Join(path, "go"), `if [ "$1" = build ]; then while [ "$1" != -o ]; do shift; done; echo built >"$2"; fi`)
	build := func(assets string) string {
		cmd := exec.CommandContext(t.Context(), "../kube/build.sh", "kubectl")
		cmd.Env = append(os.Environ(), "CVO_KUBE_BIN="+bin, "CVO_KUBE_MODULE=", "KUBEBUILDER_ASSETS="+assets, "PATH="+path+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	assert.Contains(t, build(assets), assets+" has no kubectl")
	require.NoError(t, os.Remove(filepath.Join(bin, "kubectl")))
	candidate, tool := filepath.Join(assets, "kubectl"), filepath.Join(bin, "kubectl")
	program(candidate, "echo Client Version: v1.36.0")
	assert.Contains(t, build(assets), "using "+candidate)
	program(candidate, "echo Client Version: v1.36.1")
	assert.NotContains(t, build(assets), "using ", "the link is current")
	program(candidate, "echo Client Version: v1.35.0")
	assert.Contains(t, build(assets), "is not used, because it is not version v1.36: Client Version: v1.35.0")
	data, err := os.ReadFile(tool)
	require.NoError(t, err)
	assert.Equal(t, "built\n", string(data))

	require.NoError(t, os.Remove(tool))
	program(candidate, "echo Client Version: v1.36.0")
	assert.Contains(t, build(assets), "using "+candidate)
	program(candidate, "echo Client Version: v1.35.0")
	assert.Contains(t, build(""), "building ", "the link is checked without the variable, too")
}
