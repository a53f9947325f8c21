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
	require.Error(t, h.EnableGuard([]string{"/first"}))
	require.NoError(t, h.Begin("new", config.Content{}))
	require.NoError(t, h.EnableGuard([]string{"/first", `--url=%d "a\b" $HOME`, "'\n", ";"}))
	require.NoError(t, h.EnableGuard([]string{"/second"}))
	assert.Contains(t, list(t, root)["/etc/systemd/system/cvo-node-guard.service"],
		"\n"+`ExecStart="/first" "--url=%%d \"a\\b\" $$HOME" "'\n" ";"`+"\n", "systemd passes the same words")
	require.NoError(t, h.Undo())
	assert.NotContains(t, list(t, root), "/etc/systemd/system/cvo-node-guard.service")
}

func TestInstallKeepsTheProgramOfAPendingChange(t *testing.T) {
	root := t.TempDir()
	h := open(t, root, tree.Options{})
	require.NoError(t, h.Begin("new", config.Content{}))
	const folder = config.Folder + "/bin/"
	write(t, root, folder+"earlier", "", 0o700)
	name, err := h.Install()
	require.NoError(t, err)
	info, err := os.Stat(root + name)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode())
	assert.FileExists(t, root+folder+"earlier", "a change is pending")

	busy := open(t, root, tree.Options{Step: func(string, string) error {
		same, err := h.Install()
		require.NoError(t, err)
		assert.Equal(t, name, same)
		return nil
	}})
	require.NoError(t, busy.Undo())
	require.NoError(t, os.Remove(root+name))
	_, err = h.Install()
	require.NoError(t, err)
	assert.FileExists(t, root+name)
	assert.NoFileExists(t, root+folder+"earlier")
}
