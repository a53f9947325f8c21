package cli_test

import (
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

func TestVersionNeedsNoCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent/kubeconfig")
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := cli.New(command.Streams{Out: &out, Err: &bytes.Buffer{}})
		cmd.SetArgs(append([]string{"version"}, args...))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	out, err := run("--client")
	require.NoError(t, err)
	assert.Regexp(t, `^Client Version: \S+\n$`, out)
	out, err = run("--client", "-o", "json")
	require.NoError(t, err)
	assert.Regexp(t, `^{\n  "clientVersion": "[^"]+"\n}\n$`, out)
	out, err = run()
	assert.Equal(t, command.ExitPartial, command.ExitCode(err))
	assert.Regexp(t, `^Client Version: \S+\nOperator Version: unknown\nRelease Version: unknown\n$`, out)
}

// TestUnansweredCommandsDoNotAskAgain runs commands against an address that does not answer as an API server. Without an answer, another
// request for the ClusterVersion would only double the wait.
func TestUnansweredCommandsDoNotAskAgain(t *testing.T) {
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	kubeconfig := kubeconfigOf(t, &rest.Config{Host: "https://" + server.Listener.Addr().String()})
	for _, args := range [][]string{{"version"}, {"status", "--signatures"}, {"nodes", "status"}} {
		t.Run(args[0], func(t *testing.T) {
			connections.Store(0)
			cmd := cli.New(command.Streams{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}})
			cmd.SetArgs(append(args, "--kubeconfig", kubeconfig))
			require.Error(t, cmd.ExecuteContext(t.Context()))
			assert.EqualValues(t, 1, connections.Load())
		})
	}
}

func TestVersionFlagPrintsOneLine(t *testing.T) {
	var out, errs bytes.Buffer
	cmd := cli.New(command.Streams{Out: &out, Err: &errs})
	cmd.SetArgs([]string{"--version"})
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	assert.Regexp(t, `^cvo version \S+\n$`, out.String())
	assert.Empty(t, errs.String())
}
