package cli_test

import (
	"debug/elf"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli/release/create"
	"github.com/cluster-version/cvo/test/fixture"
)

// operatorFlags returns the flags with which a release contains operators for this machine's architecture and another one. The tests' own
// program may be dynamically linked.
func operatorFlags(t *testing.T) (flags, platforms []string) {
	t.Helper()
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	if machines[runtime.GOARCH] == 0 {
		t.Skip("the test has no program for " + runtime.GOARCH)
	}
	for _, architecture := range []string{"amd64", "arm64"} {
		file := filepath.Join(t.TempDir(), "cvo")
		require.NoError(t, os.WriteFile(file, fixture.StaticProgram(machines[architecture], "cvo"), 0o600))
		flags = append(flags, "--arch", "linux/"+architecture+"="+file)
		platforms = append(platforms, "linux/"+architecture)
	}
	return flags, platforms
}

func TestReleaseNewAddsTheOperator(t *testing.T) {
	p := newPlatform(t)
	flags, platforms := operatorFlags(t)
	to, result := p.Host()+"/with-operator:1.0.0", filepath.Join(t.TempDir(), "result")
	images := []string{"--from-dir", filepath.Join(examples, "1.0.0"), "--offline"}
	digest, errs := newRelease(t, append(append(images, "--name", "1.0.0", "--to-image", to, "--result-file", result), flags...)...)

	assert.Contains(t, errs, "info: The release contains this operator for nodes with linux/amd64, linux/arm64\n")
	data, err := os.ReadFile(result)
	require.NoError(t, err)
	var summary create.Summary
	require.NoError(t, json.Unmarshal(data, &summary))
	assert.Equal(t, platforms, summary.Platforms)
	ref, err := name.ParseReference(to)
	require.NoError(t, err)
	index, err := remote.Index(ref)
	require.NoError(t, err)
	list, err := index.IndexManifest()
	require.NoError(t, err)
	assert.Len(t, list.Manifests, 2)

	t.Run("reproduces the release", func(t *testing.T) {
		again, _ := newRelease(t, append(images, "--from-release", to, "--keep-manifest-list", "--dry-run")...)
		assert.Equal(t, digest, again)
	})
	t.Run("keeps the operator in the next release", func(t *testing.T) {
		_, errs := newRelease(t, append(images, "--from-release", to, "--keep-manifest-list", "--name", "1.0.1", "--dry-run")...)
		assert.Contains(t, errs, "info: The release contains the operator for nodes with linux/amd64, linux/arm64\n")
	})
	t.Run("omits the operator in the next release", func(t *testing.T) {
		_, errs := newRelease(t, append(images, "--from-release", to, "--no-operator", "--dry-run")...)
		assert.Contains(t, errs, "info: The release contains no operator: ")
	})
	t.Run("adds the operator to the next release", func(t *testing.T) {
		without := filepath.Join(t.TempDir(), "without")
		newRelease(t, append(images, "--name", "1.0.0", "--no-operator", "--to-oci", without)...)
		_, errs := newRelease(t, append(append(images, "--from-release", without, "--dry-run"), flags...)...)
		assert.Contains(t, errs, "info: The release contains this operator for nodes with linux/amd64, linux/arm64\n")
	})
}
