package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

func TestStatusRejectsWrongArguments(t *testing.T) {
	for name, args := range map[string][]string{
		"it rejects an unknown format":     {"status", "-o", "xml"},
		"it rejects plain HTTP":            {"status", "--server", "http://127.0.0.1:9099"},
		"it rejects arguments":             {"status", "dns"},
		"it rejects --watch for orphans":   {"status", "--orphans", "--watch"},
		"it rejects an unreadable CA file": {"status", "--kubeconfig", kubeconfigFile(t), "--server-ca", "/nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}})
			cmd.SetArgs(args)
			assert.Equal(t, command.ExitUsage, command.ExitCode(cmd.ExecuteContext(t.Context())))
		})
	}
}

// kubeconfigFile writes a kubeconfig for a cluster that does not exist.
func kubeconfigFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(file, []byte(`{"clusters":[{"name":"a","cluster":{"server":"https://127.0.0.1:1"}}],
"contexts":[{"name":"a","context":{"cluster":"a"}},{"name":"b","context":{"cluster":"a"}}],"current-context":"a"}`), 0o600))
	return file
}

func TestStatusReportsAnUnreachableCluster(t *testing.T) {
	cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}})
	cmd.SetArgs([]string{"status", "--kubeconfig", kubeconfigFile(t), "--context", "b"})
	err := cmd.ExecuteContext(t.Context())
	require.ErrorContains(t, err, "reading Lease openshift-cluster-version/version")
	assert.Equal(t, command.ExitFailed, command.ExitCode(err), "there is no result at all")

	cmd.SetArgs([]string{"status", "--kubeconfig", kubeconfigFile(t), "--context", "c"})
	require.ErrorContains(t, cmd.ExecuteContext(t.Context()), `context "c" does not exist`)
}

func TestCompletionScriptsArePrinted(t *testing.T) {
	complete := func(args ...string) string {
		var out bytes.Buffer
		cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: &out, Err: &bytes.Buffer{}})
		cmd.SetArgs(args)
		require.NoError(t, cmd.ExecuteContext(t.Context()))
		return out.String()
	}
	assert.Contains(t, complete("completion", "bash"), "__start_cvo")
	assert.Contains(t, complete("__complete", "st"), "status\t")
	assert.Contains(t, complete("__complete", "status", "-o", ""), "yaml")
	assert.Contains(t, complete("__complete", "status", "--wa"), "--watch")
}
