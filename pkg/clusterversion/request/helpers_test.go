package request_test

import (
	"github.com/cluster-version/cvo/test/fixture/cluster"
)

// Short names for fixtures.
var (
	imageOf   = cluster.Image
	completed = cluster.Completed
	partial   = cluster.Partial
	clusterAt = cluster.At
	wants     = cluster.Wants
)
