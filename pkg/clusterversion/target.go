package clusterversion

import (
	"cmp"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
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
	// Return: an update was cancelled, and this is the release that it started from; it has no preconditions either.
	Return bool
}

// chooseTarget decides which release the cluster shall run. own is the image this operator was started with; invalid
// says that spec.desiredUpdate was left aside because it makes no sense.
//
// Until a release has completed it is the operator's own. Then spec.desiredUpdate decides. Without one, a cluster that
// has completed a release stays there, and so does one whose operator is of the release being rolled out; otherwise the
// update is cancelled, and the cluster returns to where it started from (as OpenShift's operator has it).
func chooseTarget(cv *configv1.ClusterVersion, own string, invalid bool) Target {
	if modeOf(cv, own) == release.Initializing {
		return Target{Image: own, Own: true}
	}
	t := askedTarget(cv, own, invalid)
	t.Own = t.Image == own
	if newest := cv.Status.History[0]; t.Image == newest.Image {
		t.Force = t.Force || forcedBefore(newest)
	}
	return t
}

// askedTarget expects a history.
func askedTarget(cv *configv1.ClusterVersion, own string, invalid bool) Target {
	newest := cv.Status.History[0]
	if update := cv.Spec.DesiredUpdate; asksForUpdate(update) {
		if update.Image != "" {
			return Target{Image: update.Image, Version: update.Version, Force: update.Force}
		}
		if images := imagesMeant(cv, *update); len(images) == 1 {
			return Target{Image: images[0], Version: versionMeant(cv, *update), Force: update.Force}
		}
		invalid = true
	}
	// A slip of the pen does not turn an update around.
	if invalid || newest.State == configv1.CompletedUpdate || newest.Image == own {
		return Target{Image: newest.Image}
	}
	for _, entry := range cv.Status.History[1:] {
		if entry.State == configv1.CompletedUpdate || entry.Image == own {
			return Target{Image: entry.Image, Force: forcedBefore(entry), Return: true}
		}
	}
	return Target{Image: newest.Image}
}

// resumeTarget is the release that the history says is being rolled out or was completed last. A process that has
// just started takes it up again before anything else: whatever becomes of what spec asks for, the cluster goes on
// with what it has. There is none during the first install, and none if spec asks for that release anyway.
func resumeTarget(cv *configv1.ClusterVersion, own string, asked Target) (Target, bool) {
	if modeOf(cv, own) == release.Initializing || cv.Status.History[0].Image == asked.Image {
		return Target{}, false
	}
	newest := cv.Status.History[0]
	return Target{Image: newest.Image, Force: forcedBefore(newest), Own: newest.Image == own}, true
}

// forcedBefore reports whether an administrator has forced this release past verification: the history has no signature,
// and says so. It is named by digest, so it is the same content; it needs no force to stay. Other risks that were accepted,
// such as an update that nobody recommends, are no such leave.
func forcedBefore(entry configv1.UpdateHistory) bool {
	return !entry.Verified && strings.HasPrefix(entry.AcceptedRisks, forcedStart) && strings.Contains(entry.AcceptedRisks, forcedReason)
}

// asksForUpdate reports whether there is an update asked for: a list of accepted risks alone asks for none.
func asksForUpdate(update *configv1.Update) bool {
	return update != nil && (update.Architecture != "" || update.Version != "" || update.Image != "")
}

// versionMeant is the version that an update asks for: without one, it is about the architecture of the current one.
func versionMeant(cv *configv1.ClusterVersion, update configv1.Update) string {
	return cmp.Or(update.Version, cv.Status.Desired.Version)
}

// imagesMeant returns the images that an update may mean which names none. One of many architectures is meant where that
// is asked for: the version alone may name the one that the cluster comes from, too.
func imagesMeant(cv *configv1.ClusterVersion, update configv1.Update) []string {
	const multi = configv1.ClusterVersionArchitectureMulti
	version := versionMeant(cv, update)
	if update.Architecture != multi {
		return imagesOf(cv, version)
	}
	known := []configv1.Release{cv.Status.Desired}
	known = append(known, cv.Status.AvailableUpdates...)
	for _, update := range cv.Status.ConditionalUpdates {
		known = append(known, update.Release)
	}
	var images []string
	for _, r := range known {
		if r.Version == version && r.Architecture == multi && r.Image != "" && !slices.Contains(images, r.Image) {
			images = append(images, r.Image)
		}
	}
	if len(images) == 0 && cv.Status.Desired.Architecture == multi {
		return imagesOf(cv, version) // the history does not tell architectures
	}
	return images
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

// completes reports whether image is the release that completed last, and nothing was asked for since.
func completes(cv *configv1.ClusterVersion, image string) bool {
	history := cv.Status.History
	return len(history) > 0 && history[0].State == configv1.CompletedUpdate && history[0].Image == image
}

// modeOf says what a rollout of image is for, by the history: an install until a release has completed, a
// reconciliation of the release that completed last, else an update. What a completed release gets anew, such as the
// objects of a capability that was just switched on, is rolled out like an update, in order and with the patience that
// operators need that have only just started: as long as status says that it progresses.
func modeOf(cv *configv1.ClusterVersion, image string) release.Mode {
	history := cv.Status.History
	completed := slices.ContainsFunc(history, func(e configv1.UpdateHistory) bool { return e.State == configv1.CompletedUpdate })
	progressing := api.FindCondition(cv.Status.Conditions, configv1.OperatorProgressing)
	switch {
	case !completed:
		return release.Initializing
	case !completes(cv, image),
		progressing != nil && progressing.Status == configv1.ConditionTrue:
		return release.Updating
	}
	return release.Reconciling
}
