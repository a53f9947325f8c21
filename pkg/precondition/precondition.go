// Package precondition decides whether an update may start now. It takes the ClusterVersion and the release that is
// asked for and returns what speaks against it; each check is a small pure file. Forcing past a check is up to the caller.
package precondition

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
)

// Input is what checks look at.
type Input struct {
	// ClusterVersion as it is before the update.
	ClusterVersion *configv1.ClusterVersion
	// Target is the release asked for, loaded and verified.
	Target release.Release
	// Previous versions that the target's metadata says it can be updated from.
	Previous []string
}

// Check is one condition that must hold before an update starts. It returns nil if the condition holds.
type Check struct {
	// Name is shown to administrators and kept from OpenShift's operator.
	Name string
	Run  func(Input) *Objection
}

// Objection says what speaks against an update.
type Objection struct {
	// Check is the name of the check that objects.
	Check string
	// Reason is a CamelCase word.
	Reason string
	// Message tells what is wrong and what to do.
	Message string
	// Warning: the update may go on; the objection is recorded as an accepted risk.
	Warning bool
}

// All returns the checks in the order in which their results are reported.
func All() []Check {
	return []Check{
		{Name: "ClusterVersionRollback", Run: rollback},
		{Name: "ClusterVersionGiantHop", Run: giantHop},
	}
}

// Run asks every check and returns all objections, in the order of the checks.
func Run(checks []Check, in Input) []Objection {
	var objections []Objection
	for _, check := range checks {
		if o := check.Run(in); o != nil {
			o.Check = check.Name
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
