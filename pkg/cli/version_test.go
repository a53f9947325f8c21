package cli_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli"
)

func TestVersionFlag(t *testing.T) {
	var out, errs bytes.Buffer
	cmd := cli.New(cli.Streams{Out: &out, Err: &errs})
	cmd.SetArgs([]string{"--version"})
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	assert.Regexp(t, `^cvo version \S+\n$`, out.String())
	assert.Empty(t, errs.String())
}
