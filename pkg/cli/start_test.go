package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/cli/command"
)

func TestStartRejectsWrongFlags(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options startOptions
		want    string
	}{
		{"a missing release", startOptions{}, "--release-image is missing"},
		{"a certificate without a key", startOptions{releaseImage: "a", certFile: "b"}, "must be set together"},
		{"an invalid TLS version", startOptions{releaseImage: "a", minTLS: "1.2"}, `TLS version "1.2" is unknown`},
		{"an invalid cipher suite", startOptions{releaseImage: "a", cipherSuites: []string{"x"}}, `cipher suite "x" is unknown`},
		{"an invalid update service", startOptions{releaseImage: "a", service: "updates.example.com"}, `--update-service: parse "updates.example.com": the scheme must be http or https`},
	} {
		t.Run("rejects "+tt.name, func(t *testing.T) {
			err := tt.options.run(t.Context(), command.Streams{})
			var usage *command.UsageError
			require.ErrorAs(t, err, &usage)
			require.ErrorContains(t, err, tt.want)
		})
	}
}
