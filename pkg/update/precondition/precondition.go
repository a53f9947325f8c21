// Package precondition decides whether an update may start now. It takes the ClusterVersion, the requested release, the APIs that the API
// server serves, and the obstacles to other minor versions. It returns the objections to the update. Each check is a pure function in a
// separate file; only ReadServer sends requests. The caller decides whether to force an update despite a failed check.
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

// Input is the input of checks.
type Input struct {
	// ClusterVersion is the object before the update.
	ClusterVersion *configv1.ClusterVersion
	// Target is the requested release, loaded and verified.
	Target release.Release
	// Manifests contains the target's manifests for this cluster.
	Manifests []*manifest.Manifest
	// Server describes the API server and its APIs.
	Server Server
	// Installing is true if no release has completed, so there is no release to roll back to.
	Installing bool
	// NamesService is true if the operator was started with an update service, which applies if the ClusterVersion names none.
	NamesService bool
	// Upgradeable is the current condition Upgradeable, or nil. Accepted is such a condition for the obstacles that an administrator has
	// accepted, which Upgradeable then does not contain.
	Upgradeable, Accepted *configv1.ClusterOperatorStatusCondition
}

// Server describes an API server.
type Server struct {
	// Version is the version that the server reports, such as "v1.36.3".
	Version string
	// Kinds contains the served kinds in each version.
	Kinds map[schema.GroupVersionKind]bool
	// Unknown contains the group versions whose API server does not respond, so their kinds are unknown.
	Unknown map[schema.GroupVersion]bool
	// Err is the reason why nothing is known about the server.
	Err error
}

// Check is one condition that must hold before an update starts. Run returns nil if it holds.
type Check struct {
	// Name is the name for administrators. It is the same as in OpenShift's operator.
	Name string
	// Doc is a link to the check's section in the user documentation.
	Doc string
	Run func(Input) *Objection
}

// Objection is a reason against an update.
type Objection struct {
	// Check is the name of the failed check, Doc its link.
	Check string `json:"check"`
	Doc   string `json:"doc,omitempty"`
	// Reason is a CamelCase word.
	Reason string `json:"reason"`
	// Message describes the problem and its remedy.
	Message string `json:"message"`
	// Warning is true if the update may continue. The objection is then recorded as an accepted risk.
	Warning bool `json:"warning,omitempty"`
}

// All returns the checks in the order of their results.
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

// Install returns the checks for a release that replaces another before the first install has completed.
func Install() []Check {
	return slices.DeleteFunc(All(), func(c Check) bool { return c.Name != "ClusterVersionRollback" })
}

// docs returns the URL of a section in the user documentation.
func docs(section string) string { return api.UserDocs + "preconditions.md#" + section }

// Run runs all checks and returns their objections in the same order.
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

// Error combines objections into one error with the text of OpenShift's operator. It returns nil if there are none.
func Error(objections []Objection) error {
	if len(objections) == 0 {
		return nil
	}
	return &FailedError{Objections: objections}
}

// FailedError is the error for one or more objections.
type FailedError struct{ Objections []Objection }

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

// String returns a text such as `Precondition "X" failed because of "Y": z`.
func (o Objection) String() string {
	return fmt.Sprintf("Precondition %q failed because of %q: %s", o.Check, o.Reason, o.Message)
}

// errNoCurrent means that the cluster has no version to compare.
var errNoCurrent = errors.New("the cluster has no version yet")

// versions returns the version that the cluster runs or updates to, and the target's version.
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
