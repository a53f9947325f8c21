package clusterversion

import (
	"slices"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/release"
)

// Target is the release that the cluster shall run.
type Target struct {
	// Image is the pullspec as it was asked for.
	Image string
	// Version is what the payload must say it is; empty takes what it says.
	Version string
	// Force goes on past an unverified signature and past preconditions.
	Force bool
	// Own: it is the release that this operator was started with; it has no preconditions.
	Own bool
}

// chooseTarget decides which release the cluster shall run. own is the image this operator was started with.
//
// While the first install runs, it stays at the release being installed. Otherwise spec.desiredUpdate decides; without
// one, a cluster that has completed a release stays there, and one in the middle of an update goes back to the
// operator's own release, which is how clients cancel (as OpenShift's operator has it).
func chooseTarget(cv *configv1.ClusterVersion, own string) Target {
	history := cv.Status.History
	if len(history) > 0 && modeOf(cv, history[0].Image) == release.Initializing {
		return ownTarget(Target{Image: history[0].Image}, own)
	}
	if len(history) == 0 {
		return Target{Image: own, Own: true}
	}
	if update := cv.Spec.DesiredUpdate; update != nil {
		if update.Image != "" {
			return ownTarget(Target{Image: update.Image, Version: update.Version, Force: update.Force}, own)
		}
		if candidates := imagesOf(cv, update.Version); len(candidates) == 1 {
			return ownTarget(Target{Image: candidates[0], Version: update.Version, Force: update.Force}, own)
		}
	}
	if history[0].State == configv1.CompletedUpdate {
		return ownTarget(Target{Image: history[0].Image}, own)
	}
	return Target{Image: own, Own: true}
}

func ownTarget(t Target, own string) Target {
	t.Own = t.Image == own
	return t
}

// imagesOf returns the images that the cluster knows for a version: current release, recommended and conditional
// updates, history. More than one distinct image makes the version ambiguous.
func imagesOf(cv *configv1.ClusterVersion, version string) []string {
	var images []string
	add := func(v, image string) {
		if v == version && image != "" && !slices.Contains(images, image) {
			images = append(images, image)
		}
	}
	add(cv.Status.Desired.Version, cv.Status.Desired.Image)
	for _, update := range cv.Status.AvailableUpdates {
		add(update.Version, update.Image)
	}
	for _, update := range cv.Status.ConditionalUpdates {
		add(update.Release.Version, update.Release.Image)
	}
	for _, entry := range cv.Status.History {
		add(entry.Version, entry.Image)
	}
	return images
}

// modeOf says what a rollout of image is for, by the history: an install until a release has completed, a
// reconciliation of the release that completed last, else an update.
func modeOf(cv *configv1.ClusterVersion, image string) release.Mode {
	history := cv.Status.History
	completed := slices.ContainsFunc(history, func(e configv1.UpdateHistory) bool { return e.State == configv1.CompletedUpdate })
	switch {
	case !completed:
		return release.Initializing
	case history[0].State == configv1.CompletedUpdate && history[0].Image == image:
		return release.Reconciling
	}
	return release.Updating
}
