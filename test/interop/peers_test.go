package interop

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

// peersEnv is the environment variable with the folder of the peer programs.
const peersEnv = "CVO_PEERS_BIN"

// peer returns the path of a program that test/peers builds.
func peer(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv(peersEnv)
	if dir == "" {
		var err error
		dir, err = filepath.Abs("../../bin/peers")
		require.NoError(t, err)
	}
	path := filepath.Join(dir, name)
	_, err := os.Stat(path)
	require.NoError(t, err, "run `make peers`, or set %s to a folder with %s", peersEnv, name)
	return path
}

// run runs a peer in a folder and returns its stdout. The peer must succeed.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, peer(t, name), args...)
	cmd.Dir = dir
	// The user's own settings, keys and credentials must have no effect.
	cmd.Env = append(os.Environ(), "HOME="+dir, "DOCKER_CONFIG="+dir, "XDG_RUNTIME_DIR="+dir, "COSIGN_PASSWORD="+password,
		"SIGSTORE_NO_CACHE=true", "TUF_ROOT="+filepath.Join(dir, "tuf"))
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	require.NoError(t, cmd.Run(), "%s %s\n%s%s", name, strings.Join(args, " "), out.String(), errOut.String())
	return out.String()
}

// cvo runs our command in this process and returns its output.
func cvo(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr})
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	t.Logf("cvo %s\n%s%s", strings.Join(args, " "), stdout.String(), stderr.String())
	return stdout.String(), err
}

// serve starts a peer that runs until the test ends, and waits until it responds at probe with any HTTP status.
func serve(t *testing.T, dir, name, probe string, args ...string) {
	t.Helper()
	cmd := exec.Command(peer(t, name), args...) // the cleanup ends it with a signal
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		if err := <-ended; err == nil {
			t.Logf("%s ended unexpectedly", name)
		}
		if t.Failed() {
			t.Logf("%s:\n%s", name, output.String())
		}
	})
	require.Eventually(t, func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended: %v\n%s", name, err, output.String())
		default:
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, probe, http.NoBody)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil
	}, time.Minute, 50*time.Millisecond, "waiting for %s at %s", name, probe)
}

// freePort returns a port that is currently unused.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}
