package accept_test

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture/cluster"
)

// Short names for fixtures.
var (
	imageOf      = cluster.Image
	digestOf     = cluster.Digest
	completed    = cluster.Completed
	partial      = cluster.Partial
	clusterAt    = cluster.At
	installingAt = cluster.InstallingAt
	files        = cluster.Files
)

// acceptedRelease returns an accepted release with a signature.
func acceptedRelease(version string) accept.Acceptance {
	return accept.Acceptance{
		Target: request.Target{Image: imageOf(version), Version: version}, Step: "PayloadLoaded", Done: true,
		Message:  `Payload loaded version="` + version + `"`,
		Verified: release.Verified{Image: release.Image{Pullspec: imageOf(version), Digest: digestOf(version)}, Evidence: []release.Evidence{{KeyID: "K"}}},
		Update: payload.Update{Payload: &payload.Payload{
			Release: release.Release{Version: version, URL: "https://example.com/" + version, Channels: []string{"stable"}}, Hash: "hash-" + version,
			Manifests: []*manifest.Manifest{{Object: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}}}}},
		}},
	}
}
