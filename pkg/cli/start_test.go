package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

func TestStartRejectsWrongFlags(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"a missing release", nil, "--release-image is missing"},
		{"an image that is a tag only", []string{"--release-image=:1.0.0"}, "--release-image is no pullspec such as registry.example/release:1.0.0: "},
		{"a certificate without a key", []string{"--release-image=a", "--serving-cert-file=b"}, "must be set together"},
		{"an invalid TLS version", []string{"--release-image=a", "--tls-min-version=1.2"}, `TLS version "1.2" is unknown`},
		{"an invalid cipher suite", []string{"--release-image=a", "--tls-cipher-suites=x"}, `cipher suite "x" is unknown`},
		{"an invalid update service", []string{"--release-image=a", "--update-service=updates.example.com"}, `--update-service: parse "updates.example.com": the scheme must be http or https`},
	} {
		t.Run("rejects "+tt.name, func(t *testing.T) {
			cmd := cli.New(command.Streams{})
			cmd.SetArgs(append([]string{"start"}, tt.args...))
			err := cmd.ExecuteContext(t.Context())
			var usage *command.UsageError
			require.ErrorAs(t, err, &usage)
			require.ErrorContains(t, err, tt.want)
		})
	}
}
