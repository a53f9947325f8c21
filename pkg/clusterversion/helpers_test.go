package clusterversion

import (
	"github.com/cluster-version/cvo/test/fixture/accepted"
	"github.com/cluster-version/cvo/test/fixture/cluster"
)

// Short names for fixtures.
var (
	now             = cluster.Now()
	imageOf         = cluster.Image
	digestOf        = cluster.Digest
	completed       = cluster.Completed
	partial         = cluster.Partial
	clusterAt       = cluster.At
	wants           = cluster.Wants
	files           = cluster.Files
	acceptedRelease = accepted.Release
	progressOf      = cluster.Progress
	said            = cluster.Condition
)

// apiFailure returns the problem of an object that the API server rejects.
var apiFailure = cluster.APIFailure
