//go:build linux

package host_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
	"github.com/cluster-version/cvo/test/ring"
)

// TestHostDependsOnlyOnItsConfig takes hosts through random configs, with crashes, undos and lost files, and compares each with a new host
// of the same config.
func TestHostDependsOnlyOnItsConfig(t *testing.T) {
	for seed := range uint64(40 / ring.Stride()) {
		random := rand.New(rand.NewPCG(seed, 0))
		root := t.TempDir()
		base(t, root)
		var current config.Content
		for change := range 8 {
			next := randomContent(random)
			want, wantErr := fresh(t, next)
			where := fmt.Sprintf("seed %d, change %d", seed, change)
			if random.IntN(4) == 0 && len(current.Files) > 0 {
				require.NoError(t, os.RemoveAll(root+current.Files[random.IntN(len(current.Files))].Path))
			}
			before := list(t, root)

			h := open(t, root, tree.Options{})
			err := dying(t, root, deadlyAfter(random.IntN(200)), func(h *host.Host) error { return h.Apply("next", next) })
			if _, pending, pendingErr := h.Pending(); pending && random.IntN(2) == 0 {
				require.NoError(t, pendingErr)
				err = h.Resume()
			} else if pending && err == nil && random.IntN(2) == 0 {
				err = h.Undo()
			}
			if wantErr != nil {
				require.NotErrorIs(t, err, host.ErrNotUndone, where)
			} else {
				require.NoError(t, err, where)
			}
			change, pending, err := h.Pending()
			require.NoError(t, err)
			if pending && change.Phase == host.Applied {
				require.NoError(t, wantErr, where)
				require.Equal(t, want, list(t, root), where)
				require.NoError(t, h.Confirm("next"))
				current = next
				continue
			}
			require.NoError(t, h.Undo(), where)
			require.Equal(t, before, list(t, root), where)
		}
		release(t, root)
	}
}

// base makes the host before its first config.
func base(t *testing.T, root string) {
	write(t, root, "/etc/a", "of the host", 0o640)
	write(t, root, "/etc/c/d", "of the host", 0o600)
	write(t, root, "/etc/keep", "of the host", 0o600)
	write(t, root, "/etc/systemd/system/a.service", "of the host", 0o644)
	require.NoError(t, os.Symlink("/dev/null", root+"/etc/systemd/system/b.service"))
	require.NoError(t, os.Symlink("c", root+"/etc/link"))
}

// randomContent returns a content without a file below a file. Some of its files are those of the host.
func randomContent(random *rand.Rand) config.Content {
	var content config.Content
	for _, path := range []string{"/etc/a", "/etc/b", "/etc/b/c", "/etc/b/c/d", "/etc/c/d", "/etc/c/e", "/etc/link", "/etc/link/f", "/opt/a/b"} {
		below := func(f config.File) bool { return strings.HasPrefix(path, f.Path+"/") }
		if random.IntN(2) == 0 || slices.ContainsFunc(content.Files, below) {
			continue
		}
		content.Files = append(content.Files, file(path, []string{"of the host", "x", "y"}[random.IntN(3)], 0o644))
	}
	for _, name := range []string{"a.service", "b.service", "c.service"} {
		unit := config.Unit{Name: name}
		if random.IntN(2) == 0 {
			mask := random.IntN(2) == 0
			unit.Mask = &mask
		}
		if random.IntN(2) == 0 {
			unit.Contents = "of a config"
			unit.DropIns = []config.DropIn{{Name: "10.conf", Contents: "of a config"}}
		}
		content.Units = append(content.Units, unit)
	}
	return content
}

// fresh returns the entries of a new host with this content.
func fresh(t *testing.T, content config.Content) (map[string]string, error) {
	root := t.TempDir()
	defer release(t, root)
	base(t, root)
	h, err := host.Open(root, host.Options{Tree: tree.Options{Sync: noSync}})
	require.NoError(t, err)
	defer h.Close()
	err = h.Apply("fresh", content)
	return list(t, root), err
}

// dying calls an action that dies before its first deadly operation, as if the process were killed.
func dying(t *testing.T, root string, isDeadly func(operation, path string) bool, action func(*host.Host) error) error {
	t.Helper()
	type death struct{}
	h, err := host.Open(root, host.Options{Tree: tree.Options{Sync: noSync, Step: func(operation, path string) error {
		if isDeadly(operation, path) {
			panic(death{})
		}
		return nil
	}}})
	require.NoError(t, err)
	defer h.Close()
	defer func() {
		if r := recover(); r != nil {
			require.IsType(t, death{}, r)
		}
	}()
	return action(h)
}

// deadlyAfter is deadly after this number of operations.
func deadlyAfter(operations int) func(string, string) bool {
	return func(string, string) bool {
		operations--
		return operations < 0
	}
}
