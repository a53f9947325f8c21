package identity

import (
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture/cluster"
)

// Short names for fixtures.
var (
	now          = cluster.Now()
	imageOf      = cluster.Image
	digestOf     = cluster.Digest
	completed    = cluster.Completed
	partial      = cluster.Partial
	clusterAt    = cluster.At
	wants        = cluster.Wants
	installingAt = cluster.InstallingAt
)

// acceptedRelease returns an accepted release with a signature.
func acceptedRelease(version string) Accepted {
	return Accepted{
		Target:  request.Target{Image: imageOf(version), Version: version},
		Version: version, Image: imageOf(version),
		Verified: release.Verified{Image: release.Image{Pullspec: imageOf(version), Digest: digestOf(version)}, Evidence: []release.Evidence{{KeyID: "K"}}},
	}
}
