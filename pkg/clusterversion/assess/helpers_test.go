package assess

import (
	"time"

	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/test/fixture/cluster"
)

// Short names for fixtures.
var (
	now = cluster.Now()
)

// Short names for problems.
var (
	operatorProblem = cluster.OperatorProblem
	updating        = cluster.Updating
	degraded        = cluster.Degraded
	unavailable     = cluster.Unavailable
	unversioned     = cluster.Unversioned
	workload        = cluster.Workload
	apiFailure      = cluster.APIFailure
)

// since returns the problem as it began some time ago.
func since(p report.Problem, ago time.Duration) report.Problem {
	p.Since = now.Add(-ago)
	return p
}

// blocked returns the problem of a workload with a pod that cannot start.
func blocked(p report.Problem) report.Problem {
	p.Pod = "pod " + p.ID.Name + "-1: ImagePullBackOff"
	return p
}

// job returns the problem of a Job.
func job(name string) report.Problem {
	p := workload(name, gate.UntilSlow, "x")
	p.ID.Group, p.ID.Kind = "batch", "Job"
	return p
}

const minute = time.Minute
