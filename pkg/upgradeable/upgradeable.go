// Package upgradeable tells what keeps a cluster from updates to another minor or major version. It takes what was read
// of the cluster and returns the obstacles, each from a small pure file: ClusterOperators that object, gates that an
// administrator has to acknowledge, overrides, deletions under way, an update in progress. Condition Upgradeable is made
// of them, precondition ClusterVersionUpgradeable of that, and each is a risk of updates to another minor version. It
// reads nothing itself: caches and watches are left to its caller.
package upgradeable

import (
	"errors"
	"fmt"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// The sources of obstacles, named as OpenShift's operator names them; also the names of risks that have no subject.
const (
	SourceOverrides = "ClusterVersionOverrides"
	SourceAdminAck  = "AdminAck"
	SourceOperators = "ClusterOperatorUpgradeable"
	SourceDeletions = "ResourceDeletionInProgress"
	SourceUpdating  = "ClusterVersionUpdating"
)

// Obstacle keeps a cluster from an update to another minor or major version. Obstacles can be compared with ==.
type Obstacle struct {
	// Source names the check that found it.
	Source string
	// Subject is what it found it in, if there can be several: a ClusterOperator, a gate.
	Subject string
	// Reason is a CamelCase word, Message a text that an administrator can act on.
	Reason, Message string
	// Risk is its name among the risks of updates, which administrators accept by name; URL leads to more about it.
	Risk, URL string
	// Unknown: whether there is an obstacle could not be found out.
	Unknown bool
	// Pending: it is Unknown only because the process has not been told yet; nothing shall be said of it.
	Pending bool

	// listed is the message where it stands beside others of its source.
	listed string
}

// Concerns reports whether the obstacle is one on the way from a version to another: to a higher minor or major version,
// or to or from what is no version at all.
func (o Obstacle) Concerns(current, target string) bool { return Concerns(current, target) }

// Concerns is what Obstacle.Concerns answers; it is the same for all.
func Concerns(current, target string) bool {
	from, err := semver.Parse(current)
	if err != nil {
		return true
	}
	to, err := semver.Parse(target)
	if err != nil {
		return true
	}
	return to.GT(from) && (to.Major != from.Major || to.Minor != from.Minor)
}

// ErrPending says that a process has not been told yet what there is in the cluster, because it has just started.
var ErrPending = errors.New("it has not been read yet")

// Cluster is what others say in the cluster.
type Cluster struct {
	// Operators are all ClusterOperators, in any order; OperatorsErr is why they are not known.
	Operators    []configv1.ClusterOperator
	OperatorsErr error
	// Gates and Acks are ConfigMaps admin-gates and admin-acks.
	Gates, Acks ConfigMap
}

// ConfigMap is what was read of a ConfigMap.
type ConfigMap struct {
	// Found: there is one, with this Data.
	Found bool
	Data  map[string]string
	// Err is why that is not known.
	Err error
}

// Input is what Find looks at.
type Input struct {
	Cluster
	// Current is the version that the cluster runs, or moves to.
	Current string
	// Installed: some release has completed. Before, nobody can be asked to acknowledge anything.
	Installed bool
	// Updating: condition Progressing is True.
	Updating bool
	// Overrides are those of the ClusterVersion's spec.
	Overrides []configv1.ComponentOverride
	// Deletions names the objects whose deletion was asked for and is not done.
	Deletions []string
	// BringsGates and BringsAcks: the running release has a manifest for the ConfigMap.
	BringsGates, BringsAcks bool
}

// most is how many obstacles are told of one source.
const most = 100

// Find returns the obstacles. The same input, in whatever order its lists are, gives the same obstacles in the same order.
func Find(in Input) []Obstacle {
	var found []Obstacle
	// The order is that of the reasons in condition Upgradeable.
	for _, source := range []func(Input) []Obstacle{overrides, adminAcks, operators, deletions, updating} {
		obstacles := source(in)
		if more := len(obstacles) - most; more > 0 {
			rest := obstacles[most]
			rest.Subject, rest.Risk = "", rest.Source+"More"
			rest.Message = fmt.Sprintf("%d more: deal with those that are listed first.", more)
			rest.listed = rest.Message
			obstacles = append(obstacles[:most:most], rest)
		}
		found = append(found, obstacles...)
	}
	return found
}

// Pending reports whether something has not been read yet.
func Pending(obstacles []Obstacle) bool {
	for _, o := range obstacles {
		if o.Pending {
			return true
		}
	}
	return false
}

// docs leads to what the page for users says of an obstacle.
func docs(section string) string { return api.UserDocs + "preconditions.md#" + section }
