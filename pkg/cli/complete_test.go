package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCompletionOfArguments(t *testing.T) {
	for _, tt := range []struct {
		name string
		line string
		want string
	}{
		{"it offers formats", "release sign --output ", "text json yaml :4"},
		{"it offers modes of lint", "release new --lint ", "error off warn :4"},
		{"it offers files where a file is meant", "release sign x --key ", ":0"},
		{"it offers folders where a folder is meant", "release keygen --out ", ":16"},
		{"it offers nothing where nothing is known", "release keygen --email ", ":4"},
		{"it offers no files as arguments", "status ", ":4"},
		{"it offers layouts", "release verify ", ":16"},
		{"it offers one release where one is wanted", "release verify x ", ":4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			cmd := New(Streams{Out: &out, Err: &bytes.Buffer{}})
			cmd.SetArgs(append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(tt.line, " ")...))
			require.NoError(t, cmd.ExecuteContext(t.Context()))
			got := strings.Fields(out.String())
			assert.ElementsMatch(t, strings.Fields(tt.want), got)
		})
	}
}

// TestFlagsAgree: a name means the same everywhere. Where it names something else of a command, it is listed here.
func TestFlagsAgree(t *testing.T) {
	exceptions := map[string]bool{
		"cvo release new": true, // --name is the release's, --output the list of images, as the original has them
	}
	seen := map[string]*pflag.Flag{}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if !exceptions[cmd.CommandPath()] {
			for _, name := range []string{"name", "namespace", "kubeconfig", "context", "registry-config", "platform", "quiet"} {
				f := cmd.Flags().Lookup(name)
				if f == nil || cmd.Name() == "keygen" && name == "name" { // the key's
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
	visit(New(Streams{}))
	assert.Len(t, seen, 7)
}

func TestUsageErrors(t *testing.T) {
	for _, line := range []string{"foo", "release foo", "upgrade foo", "status foo", "--foo", "release keygen --out x -o xml"} {
		t.Run("it refuses cvo "+line, func(t *testing.T) {
			cmd := New(Streams{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}})
			cmd.SetArgs(strings.Fields(line))
			assert.Equal(t, ExitUsage, ExitCode(cmd.ExecuteContext(t.Context())))
		})
	}
}
