package precondition_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/precondition"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestKubernetesVersion(t *testing.T) {
	for _, tt := range []struct {
		name, supported, server string
		err                     error
		want                    string
	}{
		{name: "it lets a release pass that says nothing", server: "v1.36.3"},
		{name: "it lets a release pass that says nothing to a server that does not answer", err: errors.New("no")},
		{name: "it lets a server in the range pass", supported: ">=1.30.0 <1.38.0", server: "v1.36.3"},
		{
			name: "it names both sides of what does not fit", supported: ">=1.30.0 <1.36.0", server: "v1.36.3+k3s1",
			want: "UnsupportedKubernetesVersion: Release 1.1.0 is made for Kubernetes >=1.30.0 <1.36.0, and the API server is Kubernetes v1.36.3+k3s1. " +
				"Update the API server to a version in this range first, or choose a release that is made for it (https://github.com/cluster-version/cvo/blob/main/docs/user/preconditions.md#kubernetesversion).",
		},
		{
			name: "it refuses a range that is none", supported: "1.30 and up", server: "v1.36.3",
			want: `InvalidKubernetesVersions: Release 1.1.0 does not say for which versions of Kubernetes it is made: in its metadata, "1.30 and up" is no range of Kubernetes versions: write it as ">=1.30.0 <1.38.0". Ask whoever made the release for one that can be read.`,
		},
		{
			name: "it refuses while the server does not answer", supported: ">=1.30.0", err: errors.New("connection refused"),
			want: "UnknownError: What the API server serves is not known: connection refused",
		},
		{
			name: "it refuses a server that says nothing of its version", supported: ">=1.30.0",
			want: `UnknownKubernetesVersion: Release 1.1.0 is made for Kubernetes >=1.30.0, and whether the API server is of that cannot be told: "" is no version of Kubernetes.`,
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
