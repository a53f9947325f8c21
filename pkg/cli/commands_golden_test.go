package cli_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/test/golden"
)

// TestCommandsAndFlagsMatchTheGoldenFile compares all commands and flags with a golden file. Scripts depend on each of them, so the file
// may only grow.
func TestCommandsAndFlagsMatchTheGoldenFile(t *testing.T) {
	for _, name := range []string{
		"CLUSTER_PROFILE", "CVO_BRING_YOUR_OWN_NETWORK", "CVO_NAME", "CVO_NAMESPACE", "CVO_PAYLOAD_RETRIEVAL", "EXCLUDE_MANIFESTS", "PAYLOAD_OVERRIDE",
	} {
		t.Setenv(name, "") // some flags default to it
	}
	var lines strings.Builder
	writeCommands(&lines, cli.New(command.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}))
	golden.Assert(t, "commands", lines.String())
}

// writeCommands writes a line for each command and for each of its flags: name, shorthand, type and default.
func writeCommands(out io.Writer, cmd *cobra.Command) {
	fmt.Fprintln(out, cmd.CommandPath()+hidden(cmd.Hidden))
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		line := "  --" + f.Name
		if f.Shorthand != "" {
			line += " -" + f.Shorthand
		}
		line += fmt.Sprintf(" %s %q", f.Value.Type(), f.DefValue)
		if f.NoOptDefVal != "" && f.Value.Type() != "bool" {
			line += fmt.Sprintf(" without value %q", f.NoOptDefVal)
		}
		if f.Deprecated != "" {
			line += " deprecated"
		}
		fmt.Fprintln(out, line+hidden(f.Hidden))
	})
	for _, sub := range cmd.Commands() {
		writeCommands(out, sub)
	}
}

func hidden(is bool) string {
	if is {
		return " hidden"
	}
	return ""
}
