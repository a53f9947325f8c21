// Package upgradeable finds the obstacles to updates of a cluster to another minor or major version. Each kind has a small file:
// ClusterOperators that are not upgradeable, gates that an administrator has to acknowledge, overrides, pending deletions, and an update in
// progress. The obstacles determine condition Upgradeable, and with it precondition ClusterVersionUpgradeable. Each obstacle is also a risk
// of updates to another minor version. The package reads nothing itself: its caller reads the cluster with caches and watches.
package upgradeable

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// The sources of obstacles, with the names in OpenShift's operator. They are also the names of risks without a subject.
const (
	SourceOverrides = "ClusterVersionOverrides"
	SourceAdminAck  = "AdminAck"
	SourceOperators = "ClusterOperatorUpgradeable"
	SourceDeletions = "ResourceDeletionInProgress"
	SourceUpdating  = "ClusterVersionUpdating"
)

// Obstacle blocks updates of a cluster to another minor or major version. Obstacles are comparable.
type Obstacle struct {
	// Source is the check that found the obstacle.
	Source string
	// Subject is the object or key if a source can have several obstacles: a ClusterOperator or a gate.
	Subject string
	// Reason is a CamelCase word, Message a text that an administrator can act on.
	Reason, Message string
	// Risk is the obstacle's name among the risks of updates, which administrators accept by name. URL is a link to details.
	Risk, URL string
	// Unknown is true if the check could not determine whether there is an obstacle.
	Unknown bool
	// Pending is true if the obstacle is Unknown only because the process has not read the cluster yet. It must not be reported.
	Pending bool

	// listed is the message in a list of several obstacles from the same source.
	listed string
}

// Concerns reports whether the obstacle blocks an update from current to target. It blocks updates to a higher minor or major version, and
// all updates if either version is invalid.
func (o Obstacle) Concerns(current, target string) bool { return Concerns(current, target) }

// Concerns is like Obstacle.Concerns, which has the same result for all obstacles.
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

// ErrPending means that a process has not read the cluster yet because it has just started.
var ErrPending = errors.New("not read yet")

// Cluster is the input from other components in the cluster.
type Cluster struct {
	// Operators contains all ClusterOperators in any order. OperatorsErr is the reason why they are unknown; otherwise nil.
	Operators    []configv1.ClusterOperator
	OperatorsErr error
	// Gates and Acks are the ConfigMaps admin-gates and admin-acks.
	Gates, Acks ConfigMap
}

// ConfigMap is the content of a ConfigMap.
type ConfigMap struct {
	// Found is true if the ConfigMap exists. Data is then its content.
	Found bool
	Data  map[string]string
	// Err is the reason why the content is unknown; otherwise nil.
	Err error
}

// Input is the input of Find.
type Input struct {
	Cluster
	// Current is the version that the cluster runs or updates to.
	Current string
	// Installed is true once any release has completed. Before that, administrators cannot be expected to acknowledge gates.
	Installed bool
	// Updating is true if condition Progressing is True.
	Updating bool
	// Overrides contains the overrides in the ClusterVersion's spec.
	Overrides []configv1.ComponentOverride
	// Deletions contains the objects whose requested deletion is incomplete. DeletionsErr is the reason why it may lack some; otherwise nil.
	Deletions    []string
	DeletionsErr error
	// BringsGates and BringsAcks are true if the running release has a manifest for the ConfigMap.
	BringsGates, BringsAcks bool
}

// IsRisk reports whether a risk has the name of an obstacle.
func IsRisk(name string) bool {
	return slices.ContainsFunc([]string{SourceOverrides, SourceAdminAck, SourceOperators, SourceDeletions, SourceUpdating},
		func(source string) bool { return strings.HasPrefix(name, source) })
}

// maxPerSource is the maximum number of obstacles that are reported for one source.
const maxPerSource = 100

// Find returns the obstacles. The order of the input's lists affects neither the obstacles nor their order.
func Find(in Input) []Obstacle {
	var found []Obstacle
	// This is the order of the reasons in condition Upgradeable.
	for _, source := range []func(Input) []Obstacle{overrides, adminAcks, operators, deletions, updating} {
		obstacles := source(in)
		if more := len(obstacles) - maxPerSource; more > 0 {
			rest := obstacles[maxPerSource]
			rest.Subject, rest.Risk = "", rest.Source+"More"
			rest.Message = fmt.Sprintf("%d more: resolve the listed ones first.", more)
			rest.listed = rest.Message
			obstacles = append(obstacles[:maxPerSource:maxPerSource], rest)
		}
		found = append(found, obstacles...)
	}
	return found
}

// Pending reports whether any source has not been read yet.
func Pending(obstacles []Obstacle) bool {
	for _, o := range obstacles {
		if o.Pending {
			return true
		}
	}
	return false
}

// docs returns the URL of a section in the user documentation.
func docs(section string) string { return api.UserDocs + "preconditions.md#" + section }
