package cli_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

func TestVersionFlagPrintsOneLine(t *testing.T) {
	var out, errs bytes.Buffer
	cmd := cli.New(command.Streams{Out: &out, Err: &errs})
	cmd.SetArgs([]string{"--version"})
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	assert.Regexp(t, `^cvo version \S+\n$`, out.String())
	assert.Empty(t, errs.String())
}
