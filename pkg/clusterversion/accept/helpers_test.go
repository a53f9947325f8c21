package accept_test

import (
	"github.com/cluster-version/cvo/test/fixture/accepted"
	"github.com/cluster-version/cvo/test/fixture/cluster"
)

// Short names for fixtures.
var (
	imageOf         = cluster.Image
	digestOf        = cluster.Digest
	completed       = cluster.Completed
	partial         = cluster.Partial
	clusterAt       = cluster.At
	installingAt    = cluster.InstallingAt
	files           = cluster.Files
	acceptedRelease = accepted.Release
)
