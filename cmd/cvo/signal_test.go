package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSecondSignalEndsTheProcess starts a command that waits for the writer of a pipe, whatever its context says. The first signal asks it to
// end; the next one ends it.
func TestSecondSignalEndsTheProcess(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	cmd := exec.CommandContext(t.Context(), program(t, "cvo"), "release", "keygen", "--out", filepath.Join(dir, "keys"), "--passphrase-file", pipe)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	deadline := time.After(time.Minute)
	for {
		select {
		case err := <-ended:
			require.Error(t, err)
			status, isStatus := cmd.ProcessState.Sys().(syscall.WaitStatus)
			require.True(t, isStatus)
			assert.Equal(t, syscall.SIGTERM, status.Signal())
			assert.NoDirExists(t, filepath.Join(dir, "keys"))
			return
		case <-deadline:
			t.Fatal("the process ignores signals")
		case <-time.After(200 * time.Millisecond):
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
}
