package precondition

import (
	"fmt"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"
)

// rollback refuses versions below the current one, which no component is tested for, but for the way back to the
// version the cluster came from within one minor version. It is also what stops a replay of an older, properly signed
// release.
func rollback(in Input) *Objection {
	current, target, objection := versions(in)
	if objection != nil {
		return objection
	}
	if target.GTE(current) {
		return nil
	}
	low := func(format string, args ...any) *Objection {
		return &Objection{Reason: "LowDesiredVersion", Message: fmt.Sprintf(format, args...)}
	}
	previous, ok := previousVersion(in.ClusterVersion.Status)
	switch {
	case !ok:
		return low("%s is less than the current target %s, and the cluster has no previous Semantic Version", target, current)
	case !target.EQ(previous):
		return low("%s is less than the current target %s, and the only supported rollback is to the cluster's previous version %s", target, current, previous)
	case target.Major != current.Major || target.Minor != current.Minor:
		return low("%s is less than the current target %s and matches the cluster's previous version, but rollbacks that change major or minor versions are not recommended", target, current)
	}
	return nil
}

// previousVersion is the newest version in the history that is not the desired release.
func previousVersion(status configv1.ClusterVersionStatus) (semver.Version, bool) {
	for _, entry := range status.History {
		if entry.Version == status.Desired.Version && entry.Image == status.Desired.Image {
			continue
		}
		v, err := semver.Parse(entry.Version)
		return v, err == nil
	}
	return semver.Version{}, false
}
