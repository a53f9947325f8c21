package cli_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

// TestInsecureFlagsPrintAWarning checks that the warning describes the weakened protection.
//
//threat:plain-http-redirect
func TestInsecureFlagsPrintAWarning(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, ""},
		{[]string{"--insecure"}, "warning: --insecure applies to all registries and mirrors: certificates are not checked"},
		{[]string{"--insecure-registry", "a.example,b.example:5000"}, "warning: --insecure-registry applies to a.example, b.example:5000: certificates are not checked"},
	} {
		var stderr bytes.Buffer
		cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: &stderr, Err: &stderr})
		cmd.SetArgs(append([]string{"release", "graph", t.TempDir()}, tt.args...))
		require.Error(t, cmd.ExecuteContext(t.Context()), "an empty folder is not a release")
		if tt.want == "" {
			assert.NotContains(t, stderr.String(), "insecure")
		} else {
			assert.Equal(t, 1, strings.Count(stderr.String(), tt.want), stderr.String())
		}
	}
}
