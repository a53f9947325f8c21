// Package request reads which release a ClusterVersion requests. It validates the spec, clears invalid fields, and chooses the target from
// the spec, the status and the operator's own release. It is pure.
package request

import (
	"cmp"
	"slices"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/clusterversion/history"
	"github.com/cluster-version/cvo/pkg/release"
)

// Target is the release that the cluster should run.
type Target struct {
	// Image is the requested pullspec.
	Image string
	// Digest is the digest of a tag; empty if it is not known yet or if Image names a digest.
	Digest release.Digest
	// Version is the version that the payload must have; empty accepts any version.
	Version string
	// Force accepts the release despite failed signature verification and failed preconditions.
	Force bool
	// Requested reports that spec.desiredUpdate requests the release.
	Requested bool
	// Own reports that the operator was started with this release.
	Own bool
	// Return reports that an update was canceled and the cluster returns to this release, from which the update started. Preconditions are
	// skipped.
	Return bool
	// Continued reports that the inventory names this release and that the ClusterVersion was recreated since. It starts no update.
	Continued bool
}

// Named returns the pullspec of the target, with the digest if the content is known.
func (t Target) Named() string {
	if t.Digest == "" {
		return t.Image
	}
	return release.Image{Pullspec: t.Image, Digest: t.Digest}.ByDigest()
}

// Choose decides which release the cluster should run. own is the image of this operator's release. invalid reports that spec.desiredUpdate
// was ignored because it is invalid.
//
// Until a release has completed, the target is the operator's own release; see identity.InstallTarget for requests that can replace it.
// After that, spec.desiredUpdate decides. Without a request, a cluster stays at a release that has completed, or that is being rolled out
// by its own operator. Otherwise the update is canceled and the cluster returns to the release from which it started, as with OpenShift's
// operator.
func Choose(cv *configv1.ClusterVersion, own string, invalid bool) Target {
	if history.Mode(cv, own) == release.Initializing {
		return Target{Image: own, Own: true}
	}
	t := Asked(cv, own, invalid)
	t.Own = t.Image == own
	return t
}

// Asked returns the target for a cluster with a history.
func Asked(cv *configv1.ClusterVersion, own string, invalid bool) Target {
	newest := cv.Status.History[0]
	if update := cv.Spec.DesiredUpdate; IsUpdate(update) {
		if update.Image != "" {
			return Target{Image: update.Image, Version: update.Version, Force: update.Force, Requested: true}
		}
		if images := requestedImages(cv, *update); len(images) == 1 {
			return Target{Image: images[0], Version: requestedVersion(cv, *update), Force: update.Force, Requested: true}
		}
		invalid = true
	}
	// An invalid request does not cancel an update.
	if invalid || newest.State == configv1.CompletedUpdate || newest.Image == own {
		return Target{Image: newest.Image}
	}
	for _, entry := range cv.Status.History[1:] {
		if entry.State == configv1.CompletedUpdate || entry.Image == own {
			return Target{Image: entry.Image, Return: true}
		}
	}
	return Target{Image: newest.Image}
}

// Running returns the release that is being rolled out or completed last, according to the history. A process resumes this release first
// after its start: whether or not the requested release is accepted, the cluster continues with the current one. Running returns false
// during the first install, and if that release is the requested one.
func Running(cv *configv1.ClusterVersion, own string, asked Target) (Target, bool) {
	if history.Mode(cv, own) == release.Initializing || cv.Status.History[0].Image == asked.Named() {
		return Target{}, false
	}
	newest := cv.Status.History[0]
	return Target{Image: newest.Image, Own: newest.Image == own}, true
}

// IsUpdate reports whether an update is requested. A list of accepted risks alone is not a request.
func IsUpdate(update *configv1.Update) bool {
	return update != nil && (update.Architecture != "" || update.Version != "" || update.Image != "")
}

// requestedVersion returns the version that an update requests. An update without a version requests another architecture of the current
// version.
func requestedVersion(cv *configv1.ClusterVersion, update configv1.Update) string {
	return cmp.Or(update.Version, cv.Status.Desired.Version)
}

// requestedImages returns the images that an update without an image may stand for. A request for several architectures stands for a
// multi-architecture image, because the version alone may also stand for the image that the cluster comes from.
func requestedImages(cv *configv1.ClusterVersion, update configv1.Update) []string {
	const multi = configv1.ClusterVersionArchitectureMulti
	version := requestedVersion(cv, update)
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
		return imagesOf(cv, version) // the history does not record architectures
	}
	return images
}

// imagesOf returns the images that the cluster knows for a version: from the current release, recommended and conditional updates, and the
// history. More than one distinct image makes the version ambiguous.
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

// DigestIn returns the digest in a pullspec, empty for a tag.
func DigestIn(pullspec string) string {
	return string(release.Pullspec(pullspec).Digest())
}

// IsTag reports whether a pullspec names no digest.
func IsTag(pullspec string) bool { return pullspec != "" && DigestIn(pullspec) == "" }
