package cli_test

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

// TestUnknownCommandsAreErrors checks that a mistyped command is an error everywhere, also after the commands that the library adds.
// Otherwise a script could mistake help for a completion script.
func TestUnknownCommandsAreErrors(t *testing.T) {
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"", 0, ""},
		{"nosuch", command.ExitUsage, `unknown command "nosuch" for "cvo"`},
		{"release nosuch", command.ExitUsage, `unknown command "nosuch" for "cvo release"`},
		{"stauts", command.ExitUsage, `unknown command "stauts" for "cvo": did you mean start or status?` + "\n"},
		{"release lnt", command.ExitUsage, `unknown command "lnt" for "cvo release": did you mean lint?` + "\n"},
		{"status --watc", command.ExitUsage, "unknown flag: --watc: did you mean --watch?\n"},
		{"status --nosuchflag", command.ExitUsage, "unknown flag: --nosuchflag\n"},
		{"status -z", command.ExitUsage, "unknown shorthand flag: 'z' in -z\n"},
		{"completion", 0, ""},
		{"completion bash", 0, ""},
		{"completion nosuch", command.ExitUsage, `unknown command "nosuch" for "cvo completion"`},
		{"completion bash nosuch", command.ExitUsage, `unexpected argument "nosuch": use 'cvo completion bash'` + "\n"},
		{"status nosuch", command.ExitUsage, `unexpected argument "nosuch": use 'cvo status [--watch] [flags]'` + "\n"},
		{"release lint", command.ExitUsage, `accepts 1 arg(s), received 0: use 'cvo release lint RELEASE [flags]'` + "\n"},
		{"release diff a b c", command.ExitUsage, `accepts 2 arg(s), received 3: use 'cvo release diff FROM TO [flags]'` + "\n"},
		{"completion bash --nosuch", command.ExitUsage, "unknown flag"},
		{"help", 0, ""},
		{"help upgrade status", 0, ""},
		{"help nosuch", command.ExitUsage, `unknown help topic "nosuch"`},
		{"help upgrade nosuch", command.ExitUsage, `unknown help topic "upgrade nosuch"`},
	} {
		t.Run(test.args, func(t *testing.T) {
			var out, errs strings.Builder
			cmd := cli.New(command.Streams{In: strings.NewReader(""), Out: &out, Err: io.Discard})
			cmd.SetArgs(strings.Fields(test.args))
			err := cmd.ExecuteContext(t.Context())
			command.PrintError(&errs, err)
			assert.Equal(t, test.code, command.ExitCode(err))
			assert.Contains(t, errs.String(), test.says)
			assert.Equal(t, test.code == 0, out.Len() > 0, "stdout contains only results")
		})
	}
}
