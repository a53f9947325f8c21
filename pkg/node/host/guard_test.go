//go:build linux

package host_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
)

func TestGuardKeepsTheCommandThatBeganTheChange(t *testing.T) {
	root := t.TempDir()
	h := open(t, root, tree.Options{})
	require.Error(t, h.EnableGuard("/first"))
	require.NoError(t, h.Begin("new", config.Content{}))
	require.NoError(t, h.EnableGuard("/first --url=%d"))
	require.NoError(t, h.EnableGuard("/second"))
	assert.Contains(t, list(t, root)["/etc/systemd/system/cvo-node-guard.service"], "ExecStart=/first --url=%%d\n")
	require.NoError(t, h.Undo())
	assert.NotContains(t, list(t, root), "/etc/systemd/system/cvo-node-guard.service")
}

func TestInstallKeepsTheProgramOfAPendingChange(t *testing.T) {
	root := t.TempDir()
	h := open(t, root, tree.Options{})
	name, err := h.Install()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(root+config.Folder+"/bin/earlier", nil, 0o700))
	programs := func() (names []string) {
		entries, err := os.ReadDir(root + config.Folder + "/bin")
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, config.Folder+"/bin/"+e.Name())
		}
		return names
	}
	require.NoError(t, h.Begin("new", config.Content{}))
	_, err = h.Install()
	require.NoError(t, err)
	assert.Len(t, programs(), 2)
	require.NoError(t, h.Undo())
	_, err = h.Install()
	require.NoError(t, err)
	assert.Equal(t, []string{name}, programs())
	info, err := os.Stat(root + name)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode())
}
