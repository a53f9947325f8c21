package precondition

import (
	"errors"
	"fmt"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"
)

// rollback rejects versions below the current one, because components are not tested for that. It allows the cluster's previous version,
// completed or not, and the last completed one, within one minor version. The check also prevents the replay of an older signed release.
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
	if in.Installing {
		return low("%s is less than %s, the release that is being installed, and the cluster has not completed any release to go back to", target, current)
	}
	previous, image, err := versionOf(Previous(in.ClusterVersion.Status))
	if completed := PreviousCompleted(in.ClusterVersion.Status); completed != nil && (err != nil || !target.EQ(previous)) {
		previous, image, err = versionOf(completed)
	}
	switch {
	case err != nil:
		return low("%s is less than the current target %s, and the cluster has no previous Semantic Version", target, current)
	case !target.EQ(previous):
		return low("%s is less than the current target %s, and the only supported rollback is to the cluster's previous version %s (%s)", target, current, previous, image)
	case target.Major != current.Major || target.Minor != current.Minor:
		return low("%s is less than the current target %s and matches the cluster's previous version, but rollbacks that change major or minor versions are not recommended, so the cluster refuses this one", target, current)
	}
	return nil
}

// PreviousCompleted returns the newest history entry of another release than the desired one that has completed; nil if there is none.
func PreviousCompleted(status configv1.ClusterVersionStatus) *configv1.UpdateHistory {
	return newestOf(status, func(entry configv1.UpdateHistory) bool { return entry.State == configv1.CompletedUpdate })
}

// Previous returns the newest history entry of another release than the desired one, completed or not; nil if there is none. As in
// OpenShift's operator, an entry with the desired version but another image counts, because the cluster has run that image.
func Previous(status configv1.ClusterVersionStatus) *configv1.UpdateHistory {
	return newestOf(status, func(configv1.UpdateHistory) bool { return true })
}

// newestOf returns the newest matching history entry of another release than the desired one.
func newestOf(status configv1.ClusterVersionStatus, matches func(configv1.UpdateHistory) bool) *configv1.UpdateHistory {
	for i, entry := range status.History {
		if matches(entry) && (entry.Version != status.Desired.Version || entry.Image != status.Desired.Image) {
			return &status.History[i]
		}
	}
	return nil
}

// versionOf returns the version and image of a history entry.
func versionOf(entry *configv1.UpdateHistory) (semver.Version, string, error) {
	if entry == nil {
		return semver.Version{}, "", errors.New("no entry")
	}
	v, err := semver.Parse(entry.Version)
	return v, entry.Image, err
}
