package cli_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

func TestErrorsAreJSONOnRequest(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent/kubeconfig")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"an invalid command line", []string{"install", "-o", "json"}, `{"error":"--release-image is missing: set it to the pullspec of the release to install","exitCode":2}` + "\n"},
		{"a later format", []string{"uninstall", "--yes", "-o", "json", "more\x1b"}, `{"error":"unexpected argument \"more\\x1b\": use 'cvo uninstall [flags]'","exitCode":2}` + "\n"},
		{"text", []string{"install"}, "error: --release-image is missing: set it to the pullspec of the release to install\n"},
		{"a command of oc", []string{"upgrade", "--to=x", "-o", "json"}, "error: --to must be a semantic version (e.g. 4.0.1 or 4.1.0-nightly-20181104): No Major.Minor.Patch elements found\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			cmd := cli.New(command.Streams{In: &bytes.Buffer{}, Out: &out, Err: &bytes.Buffer{}})
			cmd.SetArgs(tt.args)
			executed, err := cmd.ExecuteContextC(t.Context())
			cli.PrintError(&errs, executed, err)
			assert.Equal(t, tt.want, errs.String())
			assert.Empty(t, out.String())
		})
	}
	t.Run("a state that the output shows", func(t *testing.T) {
		var errs bytes.Buffer
		cli.PrintError(&errs, nil, &command.StateError{Code: 5, Err: errors.New("updating")})
		cli.PrintError(&errs, nil, nil)
		assert.Empty(t, errs.String())
	})
}
