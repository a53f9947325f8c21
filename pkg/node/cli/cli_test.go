//go:build linux

package cli

import (
	"io"
	"os"
	"path/filepath"
	"testing"

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
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte("clusters: [{name: c, cluster: {server: https://127.0.0.1:1}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"), 0o600))
	cfg, err := (&processOptions{kubeconfig: kubeconfig}).config()
	require.NoError(t, err)
	assert.NotNil(t, cfg.Dial)
}
