package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestCommandsThatThereAreNot has a mistyped command be an error wherever it stands, also behind the commands that the
// library brings: a script must not take help for a completion script.
func TestCommandsThatThereAreNot(t *testing.T) {
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"", 0, ""},
		{"nosuch", ExitUsage, `unknown command "nosuch" for "cvo"`},
		{"release nosuch", ExitUsage, `unknown command "nosuch" for "cvo release"`},
		{"completion", 0, ""},
		{"completion bash", 0, ""},
		{"completion nosuch", ExitUsage, `unknown command "nosuch" for "cvo completion"`},
		{"completion bash nosuch", ExitUsage, `unknown command "nosuch" for "cvo completion bash"`},
		{"completion bash --nosuch", ExitUsage, "unknown flag"},
		{"help", 0, ""},
		{"help upgrade status", 0, ""},
		{"help nosuch", ExitUsage, `unknown help topic "nosuch"`},
		{"help upgrade nosuch", ExitUsage, `unknown help topic "upgrade nosuch"`},
	} {
		t.Run(test.args, func(t *testing.T) {
			var out, errs strings.Builder
			cmd := New(Streams{In: strings.NewReader(""), Out: &out, Err: io.Discard})
			cmd.SetArgs(strings.Fields(test.args))
			err := cmd.ExecuteContext(t.Context())
			PrintError(&errs, err)
			assert.Equal(t, test.code, ExitCode(err))
			assert.Contains(t, errs.String(), test.says)
			assert.Equal(t, test.code == 0, out.Len() > 0, "results on stdout, and only results")
		})
	}
}
