//go:build linux

package cli

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/cli/command"
)

func TestControllerRejectsInvalidFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "--release-version is missing: set it to the release that ControllerConfig machine-config-controller names"},
		{[]string{"--release-version", "1.0.0", "--evictions-per-second", "0"}, "--evictions-per-second is 0: set a positive number, or -1 for no limit"},
		{[]string{"--serving-cert-file", "tls.crt"}, "--serving-cert-file and --serving-key-file must be set together"},
	} {
		cmd := New(command.Streams{Out: io.Discard, Err: io.Discard})
		cmd.SetArgs(append([]string{"controller"}, tt.args...))
		err := cmd.ExecuteContext(t.Context())
		require.EqualError(t, err, tt.want)
		assert.Equal(t, command.ExitUsage, command.ExitCode(err))
	}
}

func TestGuardOfAFolderWithoutAChangeEnds(t *testing.T) {
	cmd := New(command.Streams{Out: io.Discard, Err: io.Discard})
	cmd.SetArgs([]string{"guard", "--root", t.TempDir()})
	require.NoError(t, cmd.ExecuteContext(t.Context()))
}

func TestProcessWithoutAKubeconfigNeedsAPod(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := (&processOptions{}).config()
	require.ErrorIs(t, err, rest.ErrNotInCluster)
	assert.ErrorContains(t, err, "run in a pod, or set --kubeconfig")
}

// TestProcessesLimitTheTimeOfAConnection has no server: the default of client-go is 30 seconds, which each reboot would cost.
func TestProcessesLimitTheTimeOfAConnection(t *testing.T) {
	cfg, err := (&processOptions{kubeconfig: kubeconfigOf(t, "127.0.0.1:1")}).config()
	require.NoError(t, err)
	assert.NotNil(t, cfg.Dial)
}

func kubeconfigOf(t *testing.T, server string) string {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte("clusters: [{name: c, cluster: {server: 'https://"+server+"'}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"), 0o600))
	return kubeconfig
}

// TestControllerEndsNormallyWhileTheServerHangs has a server that accepts connections and never responds. The client would wait for half a
// minute.
func TestControllerEndsNormallyWhileTheServerHangs(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer server.Close()
	ctx, end := context.WithCancel(t.Context())
	defer end()
	go func() {
		for {
			connection, err := server.Accept()
			if err != nil {
				return
			}
			defer connection.Close()
			end()
		}
	}()
	log := &strings.Builder{}
	cmd := New(command.Streams{Out: io.Discard, Err: log})
	cmd.SetArgs([]string{"controller", "--release-version", "1.0.0", "--kubeconfig", kubeconfigOf(t, server.Addr().String())})
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	select {
	case err := <-ended:
		require.NoError(t, err)
		assert.Contains(t, log.String(), `"msg":"waiting for the API server"`)
		assert.Contains(t, log.String(), `"msg":"ending"`)
		assert.NotContains(t, log.String(), "ERROR")
	case <-time.After(time.Minute):
		t.Fatal("the request still runs")
	}
}
