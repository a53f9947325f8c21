package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStartRefuses(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options startOptions
		want    string
	}{
		{"to start without a release", startOptions{}, "--release-image is missing"},
		{"a certificate without a key", startOptions{releaseImage: "a", certFile: "b"}, "need each other"},
		{"a version of TLS that is none", startOptions{releaseImage: "a", minTLS: "1.2"}, `TLS version "1.2" is unknown`},
		{"a cipher suite that is none", startOptions{releaseImage: "a", cipherSuites: []string{"x"}}, `cipher suite "x" is unknown`},
		{"an update service that is none", startOptions{releaseImage: "a", service: "updates.example.com"}, `--update-service: parse "updates.example.com": the scheme has to be http or https`},
	} {
		t.Run("it refuses "+tt.name, func(t *testing.T) {
			err := tt.options.run(t.Context(), Streams{})
			var usage *UsageError
			require.ErrorAs(t, err, &usage)
			require.ErrorContains(t, err, tt.want)
		})
	}
}
