package identity

import (
	"cmp"
	"fmt"
	"slices"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/history"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/release"
)

// Inherited is the release in the inventory if the history does not show what the cluster runs: the ClusterVersion was deleted and
// recreated, or another client has replaced its history. The zero value means that the cluster has no inventory.
type Inherited struct {
	// Image has a digest. It is empty if neither the inventory nor a record of the version has one.
	Image   string
	Version string
}

// Inherit returns the release of an inventory with this version and digest; both are empty if there is no inventory. The image's location
// comes from the record found, or else from the repository of the operator's own release. Neither is trusted: the release is verified
// again.
func Inherit(version, digest string, found *api.ReleaseStatusStatus, own string) Inherited {
	out := Inherited{Version: version}
	if found != nil {
		for _, r := range found.Releases {
			recorded := request.DigestIn(r.Image)
			if recorded != "" && (recorded == digest || digest == "" && version != "" && r.Version == version) {
				out.Image = r.Image
				return out
			}
		}
	}
	if digest != "" {
		out.Image = release.Image{Pullspec: own, Digest: release.Digest(digest)}.ByDigest()
	}
	return out
}

// recallInstall returns the record of the first install of a ClusterVersion, nil if there is none.
func recallInstall(found *api.ReleaseStatusStatus, cv *configv1.ClusterVersion) *api.FirstInstall {
	if found == nil || found.Install == nil || found.Install.ClusterVersionUID != cv.UID {
		return nil
	}
	return found.Install
}

// RecordsInstall reports whether the record has the first install of a ClusterVersion.
func RecordsInstall(found *api.ReleaseStatusStatus, cv *configv1.ClusterVersion) bool {
	return recallInstall(found, cv) != nil
}

// ObserveInstall returns the identity with the record of a first install. The record has the release that the cluster continues with, the
// request that was in the spec when the install began, and the request that replaces a failing release, each request as long as the spec
// still has it. The decision to replace also ends with the failure; once the history has the replacement, the decision is not needed. If the
// beginning was not recorded, the current request counts as made before it.
func (id Identity) ObserveInstall(cv *configv1.ClusterVersion, from Inherited) Identity {
	if history.Mode(cv, "") != release.Initializing {
		return id
	}
	var asked *api.RequestContent
	if next := Of(cv); next != nil {
		asked = &api.RequestContent{Image: next.Image, Version: next.Version, Architecture: next.Architecture, Force: next.Force}
	}
	if id.install == nil || len(cv.Status.History) == 0 {
		id.install = &api.FirstInstall{ClusterVersionUID: cv.UID, Continues: from.Image, Waiting: asked}
		return id
	}
	next := *id.install
	if !isStillAsked(next.Waiting, asked) {
		next.Waiting = nil
	}
	switch {
	case next.Waiting == nil && asked != nil && asked.Image != "" && failsToInstall(cv):
		next.Replaces = asked
	case !isStillAsked(next.Replaces, asked), failure(cv) == nil:
		next.Replaces = nil
	}
	id.install = &next
	return id
}

func isStillAsked(request, asked *api.RequestContent) bool {
	return request != nil && asked != nil && *request == *asked
}

// failure returns condition Failing if it is true, nil otherwise.
func failure(cv *configv1.ClusterVersion) *configv1.ClusterOperatorStatusCondition {
	if failing := api.FindCondition(cv.Status.Conditions, api.Failing); failing != nil && failing.Status == configv1.ConditionTrue {
		return failing
	}
	return nil
}

// failsToInstall reports whether the install of the newest release fails. A release that is not accepted, for example because the registry
// is unavailable, is no failing install.
func failsToInstall(cv *configv1.ClusterVersion) bool {
	failing := failure(cv)
	return failing != nil && failing.Reason != api.ReasonNoAcceptedRelease && len(cv.Status.History) > 0
}

// installing returns the release that is being installed, whatever is requested: the operator's own release or the one that the cluster
// continues with, unless another release has replaced it. That one stays even after its request is cleared, because no release has completed
// to which the cluster could go back.
func (id Identity) installing(cv *configv1.ClusterVersion, own string) request.Target {
	first := request.Target{Image: own, Own: true}
	if i := id.install; i != nil && i.Continues != "" && (request.IsTag(own) || request.DigestIn(i.Continues) != request.DigestIn(own)) {
		first = request.Target{Image: i.Continues, Continued: true}
	}
	isFirst := func(e configv1.UpdateHistory) bool { return e.Image == first.Image }
	if at := slices.IndexFunc(cv.Status.History, isFirst); at > 0 {
		return request.Target{Image: cv.Status.History[0].Image}
	}
	return first
}

// InstallTarget decides which release the cluster should run until one has completed. It also returns a text that says when the request in
// the spec starts, empty if no request waits. A request by image that was made after the install began replaces a failing release, and with
// force any release. The operator's own release has to be of the version that the cluster inherits, if only that is known. recorded reports
// that the API server has the record of the install, so that every process decides alike.
func (id Identity) InstallTarget(cv *configv1.ClusterVersion, own string, from Inherited, recorded bool) (request.Target, string) {
	target, pending := id.installTarget(cv, own, recorded)
	if target.Own && from.Image == "" && len(cv.Status.History) == 0 && from.Version != "" {
		target.Version, target.Continued = from.Version, true
	}
	return target, pending
}

func (id Identity) installTarget(cv *configv1.ClusterVersion, own string, recorded bool) (request.Target, string) {
	update := cv.Spec.DesiredUpdate
	current := id.installing(cv, own)
	if !request.IsUpdate(update) {
		return current, ""
	}
	requested := id.Pin(request.Target{Image: update.Image, Version: update.Version, Force: update.Force, Requested: true})
	digest := request.DigestIn(requested.Named())
	same := update.Image == current.Image || digest != "" && digest == request.DigestIn(current.Image)
	switch {
	case same && current.Own:
		return current, ""
	case same:
		requested.Continued = current.Continued
		return requested, ""
	}
	since := id.install != nil && id.install.Waiting == nil && len(cv.Status.History) > 0
	now := update.Force || failsToInstall(cv) || id.install != nil && id.install.Replaces != nil
	if update.Image != "" && since && now && recorded {
		requested.Own = update.Image == own
		return requested, ""
	}
	return current, waitsForInstall(*update, since, now, recorded, failure(cv) != nil)
}

// waitsForInstall returns the text for Progressing that says when a delayed request starts. since reports that the request was made after
// the install began. now reports that such a request would replace the release at once. If the install fails and now is false, it fails
// because no release is accepted.
func waitsForInstall(update configv1.Update, since, now, recorded, fails bool) string {
	text := fmt.Sprintf("the requested update to %s starts after the install", cmp.Or(update.Version, update.Image, string(update.Architecture)))
	switch {
	case update.Image == "" && now:
		text += " (to replace the release now, request it by its image)"
	case update.Image == "":
	case !since && now:
		text += " (to replace the release now, clear spec.desiredUpdate and request it again)"
	case since && now && !recorded:
		text += " (to replace the release now, the operator must record the request; if it cannot, apply the CustomResourceDefinition " + api.ReleaseStatusDefinition + " of this operator's release)"
	case since && fails:
		text += ", or at once if the install fails for another reason"
	case since:
		text += ", or at once if the install fails"
	}
	return text
}

// Running returns the release that a process resumes after its start while the requested release is examined, see request.Running. During a
// first install this is the release that is being installed.
func (id Identity) Running(cv *configv1.ClusterVersion, own string, asked request.Target) (request.Target, bool) {
	if history.Mode(cv, own) != release.Initializing {
		return request.Running(cv, own, asked)
	}
	current := id.installing(cv, own)
	if !asked.Requested || asked.Continued || len(cv.Status.History) == 0 || request.DigestIn(current.Image) == request.DigestIn(asked.Named()) {
		return request.Target{}, false
	}
	return current, true
}
