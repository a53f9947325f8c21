package status

import (
	"time"

	"github.com/cluster-version/cvo/test/fixture/accepted"
	"github.com/cluster-version/cvo/test/fixture/cluster"
)

// Short names for fixtures.
var (
	now             = cluster.Now()
	imageOf         = cluster.Image
	completed       = cluster.Completed
	partial         = cluster.Partial
	clusterAt       = cluster.At
	acceptedRelease = accepted.Release
	progressOf      = cluster.Progress
	said            = cluster.Condition
)

// Short names for problems.
var (
	operatorProblem = cluster.OperatorProblem
	updating        = cluster.Updating
	degraded        = cluster.Degraded
	unavailable     = cluster.Unavailable
	apiFailure      = cluster.APIFailure
)

const minute = time.Minute
