package registries

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli/command"
)

func TestCheckImagesRejectsOtherArguments(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, tt := range []struct{ name, arg, want string }{
		{"a version", "1.0.0", `"1.0.0" is a version: name its image`},
		{"a file", file, "is a file: name an image or an OCI layout"},
		{"another folder", folder, "is a folder without an OCI layout: name an image or an OCI layout"},
		{"a path that does not exist", folder + "/missing", "/missing: file does not exist"},
		{"a relative path that does not exist", "./missing", "./missing: file does not exist"},
		{"a name without a registry", "bin/platform:1.0.0", `"bin/platform:1.0.0" does not exist and names no registry: check the path, or use docker.io/bin/platform:1.0.0`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := CheckImages("", tt.arg)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, command.ExitUsage, command.ExitCode(err))
		})
	}
	require.NoError(t, CheckImages("registry.example/platform:1.0.0", ""))
}
