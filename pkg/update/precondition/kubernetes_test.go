package precondition_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/precondition"
)

func TestKubernetesVersionMustBeInTheRange(t *testing.T) {
	for _, tt := range []struct {
		name, supported, server string
		err                     error
		want                    string
	}{
		{name: "it accepts a release without a range", server: "v1.36.3"},
		{name: "it accepts a release without a range if the server does not respond", err: errors.New("no")},
		{name: "it accepts a server in the range", supported: ">=1.30.0 <1.38.0", server: "v1.36.3"},
		{
			name: "it reports the range and the server's version", supported: ">=1.30.0 <1.36.0", server: "v1.36.3+k3s1",
			want: "UnsupportedKubernetesVersion: Release 1.1.0 requires Kubernetes >=1.30.0 <1.36.0, but the API server runs Kubernetes v1.36.3+k3s1. " +
				"Update the API server to a version in this range first, or choose a release that supports its version (https://github.com/cluster-version/cvo/blob/main/docs/user/preconditions.md#kubernetesversion).",
		},
		{
			name: "it refuses an invalid range", supported: "1.30 and up", server: "v1.36.3",
			want: `InvalidKubernetesVersions: The metadata of release 1.1.0 contains an invalid range of Kubernetes versions: "1.30 and up" is not a range of Kubernetes versions: write it as ">=1.30.0 <1.38.0". Report this to the publisher of the release.`,
		},
		{
			name: "it refuses while the server does not respond", supported: ">=1.30.0", err: errors.New("connection refused"),
			want: "UnknownError: Cannot read the APIs of the API server: connection refused",
		},
		{
			name: "it refuses a server without a version", supported: ">=1.30.0",
			want: `UnknownKubernetesVersion: Release 1.1.0 requires Kubernetes >=1.30.0, but the version of the API server is unknown: "" is not a Kubernetes version.`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := precondition.Input{
				Target: release.Release{Version: "1.1.0", Kubernetes: tt.supported}, Server: precondition.Server{Version: tt.server, Err: tt.err},
			}
			assert.Equal(t, tt.want, said(checked(t, "KubernetesVersion", in)))
		})
	}
}
