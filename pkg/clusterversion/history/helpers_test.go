package history

import (
	"github.com/cluster-version/cvo/test/fixture/cluster"
)

// Short names for fixtures.
var (
	now       = cluster.Now()
	imageOf   = cluster.Image
	completed = cluster.Completed
	partial   = cluster.Partial
	clusterAt = cluster.At
)

// acceptedRelease returns an accepted release with a signature.
func acceptedRelease(version string) Release {
	return Release{Version: version, Image: imageOf(version), Verified: true}
}
