// Package identity decides what counts as the same release: which content a request stands for, whether it was accepted, which digest force
// covers, and which releases need no new verification. An Identity is a value without I/O. The reconciler stores it in the ReleaseStatus.
package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/history"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/release"
)

// Identity is the state of a request and of the accepted releases. A request goes through these states:
//
//	none ─observe→ Seen ─resolve→ Resolved ─accept→ Accepted ─observe another, or none→ Seen, none
//
// A request is the content of spec.desiredUpdate. A tag may be resolved again until its request is accepted, but never afterwards. A new
// process continues with the state that its predecessor recorded, see Recall.
type Identity struct {
	uid      types.UID
	request  *api.ReleaseRequest
	own      *api.OwnImage
	install  *api.FirstInstall
	releases []api.AcceptedRelease
	forced   []api.ForcedRelease
	older    int
	// unforced reports that the record of the request, and with it the request's force, was lost.
	unforced bool
	// serial counts the requests that this process has observed.
	serial int
}

// Recall returns the identity for a new process. found is the record of its predecessor, nil if there is none. cv is the ClusterVersion as
// the API server has it, next is its request, from Of or Recorded, target is the release that the cluster should run, and own is the operator's
// own image. Only the history and the record decide, never the texts of the status.
//
// The record of a request counts only for the same ClusterVersion. It counts as accepted if the newest history entry has its digest.
// Otherwise a request by tag counts as pending, unless the history shows that it was accepted, see overtaken.
//
// If no record counts and the status has observed the spec, the newest history entry answers a request by tag, unless that entry is the
// install. Force does not count: an earlier process has seen the request, and nothing shows which digest its force was meant for. Force does
// not count either if the status has not observed the spec and no record shows that the request is new: the edit may concern another field.
func Recall(found *api.ReleaseStatusStatus, cv *configv1.ClusterVersion, next *api.ReleaseRequest, target request.Target, own string) Identity {
	id := Identity{uid: cv.UID, own: RecallOwn(found, cv), install: recallInstall(found, cv)}
	var before *api.ReleaseRequest
	if found != nil {
		id.releases, id.forced, id.older = found.Releases, found.Forced, found.ForcedOlder
		if r := found.Request; r != nil && next != nil && same(*r, *next) {
			before = r
		}
	}
	if next == nil {
		return id
	}
	newest, install := newestDigest(cv), isInstall(cv, request.DigestIn(id.OwnImage(own)))
	switch {
	case before != nil && before.Phase == api.RequestAccepted && newest != "" && before.Digest == newest:
		id.request = before
	case !tagged(*next, target):
	case before != nil && (install || !overtaken(*before, cv.Status.History)):
		pending := *before
		id.unforced = pending.Force && seenEarlier(pending)
		if pending.Phase == api.RequestAccepted { // the history does not contain it, so the release is verified again
			pending.Phase, pending.AcceptedAt = api.RequestResolved, nil
			id.unforced = pending.Force
		}
		id.request = &pending
	case len(cv.Status.History) == 0: // no operator has begun anything, so the request is new
	case cv.Status.ObservedGeneration != cv.Generation:
		// An edit made while no operator ran may concern another field of the spec. Only a record of a different request shows that this
		// one is new. Without that, force does not count.
		if next.Force && (before != nil || !HasRecords(found)) {
			next.SeenAt = earlier
			id.request, id.unforced = next, true
		}
	case newest != "" && mayStandFor(*next, cv.Status.History[0]) && !install:
		next.Phase, next.Digest, next.SeenAt = api.RequestAccepted, newest, cv.Status.History[0].StartedTime
		id.request = next
	case install && !next.Force: // it waits for the end of the install
	default:
		next.SeenAt = earlier
		id.request, id.unforced = next, next.Force
	}
	return id
}

// isInstall reports whether no request has begun the newest history entry: it is the first install, or the release of an operator that was
// replaced during the install. own is the digest of the operator's image, empty if it is unknown.
func isInstall(cv *configv1.ClusterVersion, own string) bool {
	return history.Mode(cv, "") == release.Initializing && (len(cv.Status.History) == 1 || own == "" || own == newestDigest(cv))
}

// RecallOwn returns the recorded digest of the operator's own tag, or nil. A record counts only for this ClusterVersion and with a digest
// of its history.
func RecallOwn(found *api.ReleaseStatusStatus, cv *configv1.ClusterVersion) *api.OwnImage {
	if found == nil || found.Own == nil || found.Own.ClusterVersionUID != cv.UID || !historyHas(cv, found.Own.Digest) {
		return nil
	}
	return found.Own
}

// HasRecords reports whether the ReleaseStatus was written by an operator that records requests.
func HasRecords(found *api.ReleaseStatusStatus) bool {
	return found != nil && (found.Request != nil || found.Own != nil || found.Install != nil ||
		slices.ContainsFunc(found.Releases, func(r api.AcceptedRelease) bool { return r.ClusterVersionUID != "" }))
}

// Migrate reads from the history the releases that an operator without request records forced past verification. It does so once. Only the
// newest entry then counts as accepted; the others are only listed.
func (id Identity) Migrate(history []configv1.UpdateHistory) Identity {
	for i, entry := range slices.Backward(history) {
		digest := request.DigestIn(entry.Image)
		if digest == "" || !forcedByText(entry) {
			continue
		}
		checks := []api.ForcedCheck{{What: api.ForcedVerification, Why: entry.AcceptedRisks}}
		id = id.withForced(digest, entry.Version, checks, entry.StartedTime)
		if i == 0 {
			id = id.withRelease(api.AcceptedRelease{
				Version: entry.Version, Image: entry.Image, AcceptedAt: entry.StartedTime, Forced: entry.AcceptedRisks, ForcedPast: checks,
			})
		}
	}
	return id
}

// Observe returns the identity with the request that is in the spec now, nil for none. now comes from history.NotBefore.
func (id Identity) Observe(next *api.ReleaseRequest, now time.Time) Identity {
	switch {
	case next == nil && id.request == nil, next != nil && id.request != nil && same(*id.request, *next):
		return id
	case next != nil:
		next.SeenAt = metav1.NewTime(now).Rfc3339Copy()
	}
	id.request, id.unforced = next, false
	id.serial++
	return id
}

// Resolve returns the identity with the current digest of the requested tag. With force, the first digest stays. serial identifies the
// request whose tag was resolved. If the answer arrives after the next request was observed, it is dropped.
func (id Identity) Resolve(serial int, digest release.Digest, now time.Time) Identity {
	r := id.request
	if serial != id.serial || r == nil || r.Phase == api.RequestAccepted || r.Digest == string(digest) || r.Force && r.Digest != "" {
		return id
	}
	next := *r
	at := metav1.NewTime(now).Rfc3339Copy()
	next.Phase, next.Digest, next.ResolvedAt = api.RequestResolved, string(digest), &at
	id.request = &next
	return id
}

// Accepted is an accepted release.
type Accepted struct {
	Target   request.Target
	Verified release.Verified
	// Version is the version of the payload. Image is the image for the status.
	Version, Image string
	// ForcedPast are the failed checks that force overrode.
	ForcedPast []api.ForcedCheck
}

// Accept returns the identity with an accepted release at the front.
func (id Identity) Accept(a Accepted, own string, now time.Time) Identity {
	at := metav1.NewTime(now).Rfc3339Copy()
	digest := string(a.Verified.Digest)
	if a.Target.Requested && id.request != nil && id.request.Phase != api.RequestAccepted && digest != "" {
		next := *id.request
		next.Phase, next.Digest, next.AcceptedAt = api.RequestAccepted, digest, &at
		if next.ResolvedAt == nil {
			next.ResolvedAt = &at
		}
		id.request = &next
	}
	if a.Target.Own && request.IsTag(own) && digest != "" && (id.own == nil || id.own.Image != own) {
		id.own = &api.OwnImage{ClusterVersionUID: id.uid, Image: own, Digest: digest, ResolvedAt: at}
	}
	entry := api.AcceptedRelease{
		Version: a.Version, Image: a.Image, AcceptedAt: at, Evidence: RecordedEvidence(a.Verified.Evidence), ForcedPast: a.ForcedPast,
	}
	if a.Verified.Forced != nil {
		entry.Forced = a.Verified.Forced.Error()
	}
	if len(id.releases) > 0 && id.releases[0].Image == entry.Image && len(entry.ForcedPast) < len(id.releases[0].ForcedPast) {
		entry.ForcedPast = id.releases[0].ForcedPast // keep the checks that were forced first
	}
	if len(a.ForcedPast) > 0 && digest != "" {
		id = id.withForced(digest, entry.Version, a.ForcedPast, at)
	}
	return id.withRelease(entry)
}

// withRelease prepends an accepted release. It keeps the recorded evidence of the same image if the new entry has none, because the
// operator was started from that image, or if the same signers were found elsewhere.
func (id Identity) withRelease(entry api.AcceptedRelease) Identity {
	entry.ClusterVersionUID = id.uid
	releases := slices.Clone(id.releases)
	if len(releases) > 0 && releases[0].Image == entry.Image {
		entry.AcceptedAt = releases[0].AcceptedAt
		if entry.Forced == "" && (len(entry.Evidence) == 0 || sameSigners(entry.Evidence, releases[0].Evidence)) {
			entry.Evidence, entry.Forced = releases[0].Evidence, releases[0].Forced
		}
		releases = releases[1:]
	}
	releases = slices.Insert(releases, 0, entry)
	id.releases = releases[:min(len(releases), api.ReleaseStatusReleases)]
	return id
}

// withForced prepends a forced digest unless it is already listed.
func (id Identity) withForced(digest, version string, checks []api.ForcedCheck, at metav1.Time) Identity {
	if slices.ContainsFunc(id.forced, func(f api.ForcedRelease) bool { return f.Digest == digest }) {
		return id
	}
	reasons := make([]string, len(checks))
	for i, check := range checks {
		reasons[i] = check.What + ": " + check.Why
	}
	line := api.ForcedRelease{Digest: digest, Version: version, Time: at, Reason: printable.Excerpt(strings.Join(reasons, "; "), api.ReleaseStatusText)}
	forced := slices.Insert(slices.Clone(id.forced), 0, line)
	if over := len(forced) - api.ReleaseStatusForced; over > 0 {
		forced, id.older = forced[:api.ReleaseStatusForced], id.older+over
	}
	id.forced = forced
	return id
}

// ForcedDigests returns the forced digests.
func (id Identity) ForcedDigests() sets.Set[string] {
	out := sets.New[string]()
	for _, f := range id.forced {
		out.Insert(f.Digest)
	}
	return out
}

// hasForced reports whether the release with this digest was accepted by force.
func (id Identity) hasForced(digest string) bool {
	entry, ok := id.accepted(digest)
	return ok && entry.Forced != ""
}

// accepted returns the record of a release that was accepted for this ClusterVersion.
func (id Identity) accepted(digest string) (api.AcceptedRelease, bool) {
	for _, r := range id.releases {
		if r.ClusterVersionUID == id.uid && id.uid != "" && request.DigestIn(r.Image) == digest && digest != "" {
			return r, true
		}
	}
	return api.AcceptedRelease{}, false
}

// Pin returns a target with the known content of an accepted request. Force without its record does not count.
func (id Identity) Pin(target request.Target) request.Target {
	r := id.request
	switch {
	case !target.Requested || r == nil:
	case r.Phase == api.RequestAccepted:
		if digest := release.Digest(r.Digest); request.IsTag(target.Image) {
			target.Digest = digest
		}
		target.Force = target.Force && !id.unforced && request.DigestIn(target.Image) != ""
	case id.unforced:
		target.Force = false
	}
	return target
}

// OwnImage returns the operator's own image, with its digest if the tag was resolved before.
func (id Identity) OwnImage(own string) string {
	if id.own == nil || id.own.Image != own {
		return own
	}
	return release.Image{Pullspec: own, Digest: release.Digest(id.own.Digest)}.ByDigest()
}

// VerifiedBefore returns the evidence with which a target was accepted, if the target is a release of the history and its acceptance record
// counts.
func (id Identity) VerifiedBefore(cv *configv1.ClusterVersion, target request.Target) (release.Verified, bool) {
	digest := request.DigestIn(target.Named())
	if !target.Return && (digest == "" || digest != newestDigest(cv)) {
		return release.Verified{}, false
	}
	return id.Evidence(release.Image{Pullspec: target.Image, Digest: release.Digest(digest)})
}

// Evidence returns the evidence with which an image was accepted, if its acceptance record counts.
func (id Identity) Evidence(image release.Image) (release.Verified, bool) {
	entry, ok := id.accepted(string(image.Digest))
	switch {
	case !ok || len(entry.Evidence) == 0 && entry.Forced == "":
		return release.Verified{}, false
	case entry.Forced != "":
		return release.Verified{Image: image, Forced: errors.New(entry.Forced)}, true
	}
	return release.Verified{Image: image, Evidence: releaseEvidence(entry.Evidence)}, true
}

// Covers returns the reason why force does not cover a digest, nil if it does.
func (id Identity) Covers(target request.Target, digest release.Digest) error {
	if r := id.request; target.Requested && target.Force && r != nil && r.Digest != "" && r.Digest != string(digest) {
		return fmt.Errorf("%q was forced for %s and now resolves to %s, which the force does not cover: to force it, "+
			"clear spec.desiredUpdate and request it again, or request it by digest", target.Image, r.Digest, digest)
	}
	return nil
}

// Record writes the identity into a ReleaseStatus. It records a request that names its content only after it is accepted.
func (id Identity) Record(s api.ReleaseStatusStatus) api.ReleaseStatusStatus {
	named := func(r *api.ReleaseRequest) bool { return r == nil || request.DigestIn(r.Image) != "" }
	if r := id.request; r == nil || r.Phase != api.RequestSeen || !named(r) || !named(s.Request) {
		s.Request = r
	}
	s.Own, s.Install, s.Releases, s.Forced, s.ForcedOlder = id.own, id.install, id.releases, id.forced, id.older
	if s.Releases == nil {
		s.Releases = []api.AcceptedRelease{}
	}
	return s
}

// Of returns the request in a spec, nil for none.
func Of(cv *configv1.ClusterVersion) *api.ReleaseRequest {
	update := cv.Spec.DesiredUpdate
	if !request.IsUpdate(update) {
		return nil
	}
	return &api.ReleaseRequest{
		ClusterVersionUID: cv.UID, Image: update.Image, Version: update.Version, Architecture: string(update.Architecture),
		Force: update.Force, Phase: api.RequestSeen,
	}
}

// Recorded returns the request that counts while the one in the spec is invalid: the recorded one, as if it were in the spec. It is the
// request in the spec if the record has none.
func Recorded(found *api.ReleaseStatusStatus, cv *configv1.ClusterVersion) *api.ReleaseRequest {
	if found == nil || found.Request == nil {
		return Of(cv)
	}
	r := found.Request
	return &api.ReleaseRequest{
		ClusterVersionUID: cv.UID, Image: r.Image, Version: r.Version, Architecture: r.Architecture, Force: r.Force, Phase: api.RequestSeen,
	}
}

// tagged reports whether a request names a tag, by its image or by a version whose image has a tag.
func tagged(r api.ReleaseRequest, target request.Target) bool {
	return request.IsTag(r.Image) || r.Image == "" && target.Requested && request.IsTag(target.Image)
}

// same reports whether a recorded request equals the request in the spec. An accepted request whose force was removed stays the same,
// because it requests nothing more.
func same(recorded, asked api.ReleaseRequest) bool {
	return recorded.ClusterVersionUID == asked.ClusterVersionUID && recorded.Image == asked.Image && recorded.Version == asked.Version &&
		recorded.Architecture == asked.Architecture && (recorded.Force == asked.Force || recorded.Phase == api.RequestAccepted && !asked.Force)
}

// mayStandFor reports whether a request may have led to a history entry: repository and version match.
func mayStandFor(r api.ReleaseRequest, entry configv1.UpdateHistory) bool {
	requested, rolledOut := release.Pullspec(r.Image), release.Pullspec(entry.Image)
	return (r.Image == "" || requested.Repository() == rolledOut.Repository()) && (r.Version == "" || r.Version == entry.Version)
}

// overtaken reports whether the history proves that a request was accepted although its record does not show it. The proof is a newest
// entry that began after the request was seen, because only an acceptance begins an entry. Times are whole seconds, so an entry of the same
// second proves nothing. Requests that were seen later have no earlier time, even if the clocks of two processes differ, see Observe. The
// oldest entry does not count: it is the install, which no request begins. Such a record was not written by this operator, or was written
// before a restored backup.
func overtaken(r api.ReleaseRequest, history []configv1.UpdateHistory) bool {
	return len(history) > 1 && r.SeenAt.Before(&history[0].StartedTime) && !seenEarlier(r)
}

// earlier is the time in the record of a request that an earlier process has seen at an unknown time. The request's force does not count.
var earlier = metav1.Unix(0, 0)

func seenEarlier(r api.ReleaseRequest) bool { return r.SeenAt.Equal(&earlier) }

// historyHas reports whether the history is empty or has an entry with the digest.
func historyHas(cv *configv1.ClusterVersion, digest string) bool {
	return len(cv.Status.History) == 0 || slices.ContainsFunc(cv.Status.History, func(e configv1.UpdateHistory) bool {
		return digest != "" && request.DigestIn(e.Image) == digest
	})
}

// newestDigest returns the digest of the newest history entry, empty if there is none.
func newestDigest(cv *configv1.ClusterVersion) string {
	if len(cv.Status.History) == 0 {
		return ""
	}
	return request.DigestIn(cv.Status.History[0].Image)
}

// forcedByText reports whether an entry of an operator without request records was forced past verification, judging by its text.
func forcedByText(entry configv1.UpdateHistory) bool {
	return !entry.Verified && strings.HasPrefix(entry.AcceptedRisks, forcedStart) && strings.Contains(entry.AcceptedRisks, forcedReason)
}

// The text for an image that was forced past verification, as OpenShift's operator writes it.
const (
	forcedStart  = "Target release "
	forcedReason = "cannot be verified, but continuing anyway because the update was forced"
)

// ForcedText returns the text about an image that was forced past verification.
func ForcedText(release string, failure error) string {
	return fmt.Sprintf("%s%s %s: %v", forcedStart, release, forcedReason, failure)
}

// Serial returns how many requests this process has observed.
func (id Identity) Serial() int { return id.serial }

// WithOwn returns the identity with the recorded content of the operator's own tag.
func (id Identity) WithOwn(own *api.OwnImage) Identity {
	id.own = own
	return id
}

// IsMigrated reports whether Migrate has found that the newest release of the history was forced.
func (id Identity) IsMigrated(history []configv1.UpdateHistory) bool {
	return len(id.releases) > 0 && len(history) > 0 && id.hasForced(request.DigestIn(history[0].Image))
}

// WithoutMigration returns the identity with the releases of before, because the migrated ones could not be recorded.
func (id Identity) WithoutMigration(before Identity) Identity {
	id.releases, id.forced = before.releases, before.forced
	return id
}

// NeedsRecord reports whether a release may be accepted only after the content of its tag is recorded.
func (id Identity) NeedsRecord(target request.Target, own string) bool {
	return id.request != nil && tagged(*id.request, target) || target.Own && request.IsTag(own)
}

// HasRequest reports whether a record has the request, or need not have it because it does not name a tag.
func (id Identity) HasRequest(found *api.ReleaseStatusStatus, target request.Target) bool {
	r := id.request
	return r == nil || !tagged(*r, target) || found != nil && found.Request != nil && same(*found.Request, *r)
}

// HasInstall reports whether a record has the current state of the first install.
func (id Identity) HasInstall(found *api.ReleaseStatusStatus) bool {
	return found != nil && equality.Semantic.DeepEqual(found.Install, id.install)
}
