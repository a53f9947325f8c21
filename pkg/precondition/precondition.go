// Package precondition decides whether an update may start now. It takes the ClusterVersion, the release that is asked
// for, what the API server serves and what keeps the cluster from other minor versions, and returns what speaks against
// it; each check is a small pure file. Forcing past a check is up to the caller.
package precondition

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Input is what checks look at.
type Input struct {
	// ClusterVersion as it is before the update.
	ClusterVersion *configv1.ClusterVersion
	// Target is the release asked for, loaded and verified.
	Target release.Release
	// Manifests are those of the target that this cluster gets.
	Manifests []*manifest.Manifest
	// Server is what the API server is and serves.
	Server Server
	// Upgradeable is what condition Upgradeable says now, nil if there is none. Accepted is what it would say of the risks
	// alone that an administrator has accepted, which are not in Upgradeable then.
	Upgradeable, Accepted *configv1.ClusterOperatorStatusCondition
}

// Server is what was found out about an API server.
type Server struct {
	// Version is what it says of itself, such as "v1.36.3".
	Version string
	// Kinds are those that it serves, in each version.
	Kinds map[schema.GroupVersionKind]bool
	// Unknown are versions of groups of which it cannot say, because what serves them does not answer.
	Unknown map[schema.GroupVersion]bool
	// Err is why nothing is known.
	Err error
}

// Check is one condition that must hold before an update starts. It returns nil if the condition holds.
type Check struct {
	// Name is shown to administrators and kept from OpenShift's operator.
	Name string
	// Doc leads to what the page for users says of it.
	Doc string
	Run func(Input) *Objection
}

// Objection says what speaks against an update.
type Objection struct {
	// Check is the name of the check that objects, Doc its link.
	Check string `json:"check"`
	Doc   string `json:"doc,omitempty"`
	// Reason is a CamelCase word.
	Reason string `json:"reason"`
	// Message tells what is wrong and what to do.
	Message string `json:"message"`
	// Warning: the update may go on; the objection is recorded as an accepted risk.
	Warning bool `json:"warning,omitempty"`
}

// All returns the checks in the order in which their results are reported.
func All() []Check {
	return []Check{
		{Name: "ClusterVersionRollback", Doc: docs("clusterversionrollback"), Run: rollback},
		{Name: "ClusterVersionGiantHop", Doc: docs("clusterversiongianthop"), Run: giantHop},
		{Name: "ClusterVersionUpgradeable", Doc: docs("clusterversionupgradeable"), Run: isUpgradeable},
		{Name: "KubernetesVersion", Doc: docs("kubernetesversion"), Run: kubernetesVersion},
		{Name: "RemovedAPI", Doc: docs("removedapi"), Run: removedAPI},
		{Name: "ClusterVersionRecommendedUpdate", Doc: docs("clusterversionrecommendedupdate"), Run: recommendedUpdate},
	}
}

// docs leads to a section of the page for users.
func docs(section string) string { return api.UserDocs + "preconditions.md#" + section }

// Run asks every check and returns all objections, in the order of the checks.
func Run(checks []Check, in Input) []Objection {
	var objections []Objection
	for _, check := range checks {
		if o := check.Run(in); o != nil {
			o.Check, o.Doc = check.Name, check.Doc
			objections = append(objections, *o)
		}
	}
	return objections
}

// Blocking returns the objections that are not warnings.
func Blocking(objections []Objection) []Objection {
	return slices.DeleteFunc(slices.Clone(objections), func(o Objection) bool { return o.Warning })
}

// Error puts objections into one error as OpenShift's operator words it, nil if there are none.
func Error(objections []Objection) error {
	if len(objections) == 0 {
		return nil
	}
	return &FailedError{Objections: objections}
}

// FailedError is the error of objections.
type FailedError struct{ Objections []Objection }

// Reason is that of a failed precondition check in status.
func (e *FailedError) Reason() string { return api.ReasonPreconditionCheckFailed }

func (e *FailedError) Error() string {
	if len(e.Objections) == 1 {
		return e.Objections[0].String()
	}
	lines := make([]string, len(e.Objections))
	for i, o := range e.Objections {
		lines[i] = "* " + o.String()
	}
	return "Multiple precondition checks failed:\n" + strings.Join(lines, "\n")
}

// String reads like `Precondition "X" failed because of "Y": z`.
func (o Objection) String() string {
	return fmt.Sprintf("Precondition %q failed because of %q: %s", o.Check, o.Reason, o.Message)
}

// errNoCurrent says that the cluster has no version to compare with.
var errNoCurrent = errors.New("the cluster has no version yet")

// versions returns the version that the cluster is at or moves to, and the target's.
func versions(in Input) (current, target semver.Version, objection *Objection) {
	target, err := semver.Parse(in.Target.Version)
	if err != nil {
		return current, target, &Objection{
			Reason: "InvalidDesiredVersion", Message: fmt.Sprintf("%q is not a valid semantic version: %v", in.Target.Version, err),
		}
	}
	desired := in.ClusterVersion.Status.Desired.Version
	if current, err = semver.Parse(desired); err != nil {
		if desired == "" {
			err = errNoCurrent
		}
		return current, target, &Objection{
			Reason: "InvalidCurrentVersion", Message: fmt.Sprintf("%q is not a valid semantic version: %v", desired, err), Warning: true,
		}
	}
	return current, target, nil
}
