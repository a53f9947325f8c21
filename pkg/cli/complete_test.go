package cli_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

func TestArgumentsAreCompleted(t *testing.T) {
	for _, tt := range []struct {
		name string
		line string
		want string
	}{
		{"offers formats", "release sign --output ", "text json yaml :4"},
		{"offers lint modes", "release new --lint ", "error off warn :4"},
		{"offers files for flags that take a file", "release sign x --key ", ":0"},
		{"offers folders for flags that take a folder", "release keygen --out ", ":16"},
		{"offers nothing for free text", "release keygen --email ", ":4"},
		{"offers no files as arguments", "status ", ":4"},
		{"offers layouts", "release verify ", ":16"},
		{"offers formats that kubectl can apply", "trust from-image-policy x --output ", "json yaml :4"},
		{"offers no second release", "release verify x ", ":4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			cmd := cli.New(command.Streams{Out: &out, Err: &bytes.Buffer{}})
			cmd.SetArgs(append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(tt.line, " ")...))
			require.NoError(t, cmd.ExecuteContext(t.Context()))
			got := strings.Fields(out.String())
			assert.ElementsMatch(t, strings.Fields(tt.want), got)
		})
	}
}

// TestFlagsWithTheSameNameMeanTheSame checks that a flag has the same meaning in all commands, with the exceptions listed here.
func TestFlagsWithTheSameNameMeanTheSame(t *testing.T) {
	exceptions := map[string]bool{
		"cvo release new": true, // --name names the release, and --output prints the list of images, as in oc
	}
	seen := map[string]*pflag.Flag{}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if !exceptions[cmd.CommandPath()] {
			for _, name := range []string{"name", "namespace", "kubeconfig", "context", "registry-config", "platform", "quiet"} {
				f := cmd.Flags().Lookup(name)
				if f == nil || cmd.Name() == "keygen" && name == "name" { // the name of the key
					continue
				}
				if first := seen[name]; first != nil {
					assert.Equal(t, first.DefValue, f.DefValue, "%s --%s", cmd.CommandPath(), name)
					assert.Equal(t, first.Value.Type(), f.Value.Type(), "%s --%s", cmd.CommandPath(), name)
				} else {
					seen[name] = f
				}
			}
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(cli.New(command.Streams{}))
	assert.Len(t, seen, 7)
}

func TestUnknownArgumentsAreUsageErrors(t *testing.T) {
	for _, line := range []string{"foo", "release foo", "upgrade foo", "status foo", "--foo", "release keygen --out x -o xml"} {
		t.Run("rejects cvo "+line, func(t *testing.T) {
			cmd := cli.New(command.Streams{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}})
			cmd.SetArgs(strings.Fields(line))
			assert.Equal(t, command.ExitUsage, command.ExitCode(cmd.ExecuteContext(t.Context())))
		})
	}
}
