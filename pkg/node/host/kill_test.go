//go:build linux

package host_test

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/host"
	"github.com/cluster-version/cvo/pkg/node/host/tree"
	"github.com/cluster-version/cvo/test/ring"
)

// The environment variables of a child process that kills itself: its host, the operation before which it dies, and its action.
const (
	rootEnv   = "CVO_TEST_HOST_ROOT"
	killEnv   = "CVO_TEST_HOST_KILL"
	actionEnv = "CVO_TEST_HOST_ACTION"
)

func TestMain(m *testing.M) {
	if root := os.Getenv(rootEnv); root != "" {
		child(root)
	}
	// The temporary folders of these tests are in memory where the system allows it: on a disk, the tests are ten times slower.
	const memory = "/dev/shm"
	if unix.Access(memory, unix.W_OK) == nil {
		must(os.Setenv("TMPDIR", memory))
	}
	os.Exit(m.Run())
}

// child executes the action on the host and dies by SIGKILL. It exits with code 0 if the action has fewer operations, else 1.
func child(root string) {
	last, err := strconv.Atoi(os.Getenv(killEnv))
	must(err)
	operations := 0
	h, err := host.Open(root, host.Options{Tree: tree.Options{Sync: noSync, Step: func(string, string) error {
		if operations == last {
			must(syscall.Kill(os.Getpid(), syscall.SIGKILL))
			select {}
		}
		operations++
		return nil
	}}})
	must(err)
	switch os.Getenv(actionEnv) {
	case "apply":
		must(h.Apply("to", target()))
	case "resume":
		must(h.Resume())
	case "undo":
		must(h.Undo())
	case "confirm":
		must(h.Confirm("to"))
	case "release":
		must(h.Release())
	}
	os.Exit(0)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// killed runs an action in a child process, killed before its operation with this number. It returns false if the action ended before.
func killed(t *testing.T, root, action string, operation int) bool {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), rootEnv+"="+root, killEnv+"="+strconv.Itoa(operation), actionEnv+"="+action)
	output, err := command.CombinedOutput()
	if err == nil {
		return false
	}
	status, _ := command.ProcessState.Sys().(syscall.WaitStatus)
	require.Equal(t, syscall.SIGKILL, status.Signal(), string(output))
	return true
}

// scenario makes a host with config "from" and returns the contents of "from" and "to". The change creates, replaces, restores and removes
// files, links and folders, and a file and a folder replace each other.
func scenario(t testing.TB, root string) (from, to config.Content) {
	t.Helper()
	write(t, root, "/etc/replaced", "of the host", 0o640)
	write(t, root, "/etc/restored", "of the host", 0o4755)
	write(t, root, "/etc/systemd/system/masked.service", "of the host", 0o644)
	require.NoError(t, os.Symlink("replaced", root+"/etc/link"))
	// A change writes to each of these folders only once.
	require.NoError(t, os.Mkdir(root+"/opt", 0o755))
	require.NoError(t, os.Mkdir(root+"/srv", 0o755))
	from = files(
		file("/etc/changed", "from", 0o600), file("/etc/folder", "a file", 0o644), file("/etc/other/deep/file", "x", 0o644),
		file("/etc/restored", "from", 0o644), file("/etc/same", "same", 0o644),
		file("/opt/removed", "from", 0o644))
	update(t, open(t, root, tree.Options{}), "from", from)
	return from, target()
}

func target() config.Content {
	yes := true
	to := files(
		file("/etc/changed", "to", 0o644), file("/etc/folder/file", "now below a folder", 0o644), file("/etc/link", "no link", 0o644),
		file("/etc/new/folder/file", "new", 0o600), file("/etc/other", "now a file", 0o644), file("/etc/replaced", "to", 0o644),
		file("/etc/same", "same", 0o644), file("/srv/created", "to", 0o644))
	to.Units = []config.Unit{{Name: "masked.service", Mask: &yes}}
	return to
}

// entries returns the entries of a host before and after the change of the scenario.
func entries(t *testing.T) (before, after map[string]string) {
	t.Helper()
	root := t.TempDir()
	scenario(t, root)
	before = list(t, root)
	require.NoError(t, open(t, root, tree.Options{}).Apply("to", target()))
	return before, list(t, root)
}

// TestKilledChangeContinuesOrIsUndone kills the process that applies a change before each of its operations, or in the gate before a part of
// them.
func TestKilledChangeContinuesOrIsUndone(t *testing.T) {
	before, after := entries(t)
	for operation := 0; ; operation += ring.Stride() {
		root := t.TempDir()
		scenario(t, root)
		if !killed(t, root, "apply", operation) {
			assert.Greater(t, operation, 50)
			break
		}
		copied := t.TempDir()
		require.NoError(t, exec.Command("cp", "-a", root+"/.", copied).Run())

		h := open(t, root, tree.Options{})
		_, pending, err := h.Pending()
		require.NoError(t, err)
		if !pending {
			require.Equal(t, before, list(t, root), "killed at %d: nothing is written before the journal", operation)
		}
		require.NoError(t, h.Undo())
		require.Equal(t, before, list(t, root), "killed at %d, then undone", operation)
		// The host is as if nothing had happened: the next change works.
		update(t, h, "to", target())
		require.Equal(t, after, list(t, root), "killed at %d, then undone and repeated", operation)

		if !pending {
			release(t, root, copied)
			continue
		}
		h = open(t, copied, tree.Options{})
		require.NoError(t, h.Resume())
		require.Equal(t, after, list(t, copied), "killed at %d, then continued", operation)
		require.NoError(t, h.Undo())
		require.Equal(t, before, list(t, copied), "killed at %d, then continued and undone", operation)
		release(t, root, copied)
	}
}

// TestKilledRecoveryIsRepeated kills the process that continues, undoes or confirms a change before each of its operations; in short
// mode, before some.
func TestKilledRecoveryIsRepeated(t *testing.T) {
	before, after := entries(t)
	for _, test := range []struct {
		name, action string
		// begin leaves the change that the action finds.
		begin  func(t *testing.T, root string)
		repeat func(*host.Host) error
		want   map[string]string
	}{
		{"undo of an applied change", "undo", applied, (*host.Host).Undo, before},
		{"undo of half a change", "undo", half, (*host.Host).Undo, before},
		{"continuation of half a change", "resume", half, (*host.Host).Resume, after},
		{"confirmation", "confirm", applied, func(h *host.Host) error { return h.Confirm("to") }, after},
	} {
		t.Run(test.name, func(t *testing.T) {
			for operation := 0; ; operation += ring.Stride() {
				root := t.TempDir()
				scenario(t, root)
				test.begin(t, root)
				isKilled := killed(t, root, test.action, operation)
				h := open(t, root, tree.Options{})
				change, _, err := h.Pending()
				require.NoError(t, err)
				if change.Phase == host.Undoing {
					require.ErrorIs(t, h.Resume(), host.ErrUndoing)
				}
				require.NoError(t, test.repeat(h))
				require.Equal(t, test.want, list(t, root), "killed at %d", operation)
				if test.action == "confirm" {
					state, err := h.State()
					require.NoError(t, err)
					require.Equal(t, "to", state.Current.Name)
					update(t, h, "empty", config.Content{})
					require.Contains(t, list(t, root)["/etc/restored"], "of the host")
					require.Contains(t, list(t, root)["/etc/replaced"], "of the host")
				}
				release(t, root)
				if !isKilled {
					break
				}
			}
		})
	}
}

func applied(t *testing.T, root string) {
	require.NoError(t, open(t, root, tree.Options{}).Apply("to", target()))
}

// half leaves a change in its middle, as a killed process does.
func half(t *testing.T, root string) {
	middle := func(operation, path string) bool { return operation == "rename" && path == "/etc/new/folder/file" }
	require.NoError(t, dying(t, root, middle, func(h *host.Host) error { return h.Apply("to", target()) }))
	h := open(t, root, tree.Options{})
	change, pending, err := h.Pending()
	require.NoError(t, err)
	require.True(t, pending)
	require.Equal(t, host.Applying, change.Phase)
	require.Contains(t, list(t, root)["/etc/changed"], "to", "some steps have happened")
	require.NotContains(t, list(t, root), "/srv/created", "some have not")
}

// release removes hosts before the end of a test, which makes hundreds in memory.
func release(t *testing.T, roots ...string) {
	for _, root := range roots {
		require.NoError(t, os.RemoveAll(root))
	}
}
