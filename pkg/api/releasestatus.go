package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// ReleaseStatusVersion and ReleaseStatusKind identify the cluster-scoped object for state that has no field in ClusterVersion. The object
// has the same name as the ClusterVersion.
var ReleaseStatusVersion = schema.GroupVersion{Group: "cvo.cluster-version.github.io", Version: "v1alpha1"}

// ReleaseStatusKind is the kind of a ReleaseStatus.
const ReleaseStatusKind = "ReleaseStatus"

// ReleaseStatusResource is the plural name of the kind in URLs.
const ReleaseStatusResource = "releasestatuses"

// ReleaseStatusDefinition is the name of the CRD of ReleaseStatus.
const ReleaseStatusDefinition = "releasestatuses.cvo.cluster-version.github.io"

const (
	// ReleaseStatusReleases is the maximum number of releases in a ReleaseStatus.
	ReleaseStatusReleases = 10
	// ReleaseStatusForced is the maximum number of forced digests in a ReleaseStatus.
	ReleaseStatusForced = 200
	// ReleaseStatusText is the maximum length of the reason for a forced digest, in bytes.
	ReleaseStatusText = 512
)

// ReleaseStatus lists the releases that a cluster accepted, who signed them, and which manifests of the newest release were skipped.
type ReleaseStatus struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Status            ReleaseStatusStatus `json:"status"`
}

// ReleaseStatusStatus is the content of a ReleaseStatus.
type ReleaseStatusStatus struct {
	// Request is the content of spec.desiredUpdate with its state. It is nil without a request. A request by digest is recorded only when
	// it is accepted.
	Request *ReleaseRequest `json:"request,omitempty"`
	// Own is the operator's own image if the operator was started from a tag; otherwise nil.
	Own *OwnImage `json:"own,omitempty"`
	// Install describes the first install of a ClusterVersion; nil if the operator did not record its start.
	Install *FirstInstall `json:"install,omitempty"`
	// Forced has one entry per forced digest, newest first. ForcedOlder counts the entries that were dropped.
	Forced      []ForcedRelease `json:"forced,omitempty"`
	ForcedOlder int             `json:"forcedOlder,omitempty"`
	// Releases lists the accepted releases, newest first.
	Releases []AcceptedRelease `json:"releases"`
	// Skipped lists manifests of the newest release that this cluster excludes. The list is limited; SkippedCount counts them all.
	Skipped      []SkippedManifest `json:"skipped,omitempty"`
	SkippedCount int               `json:"skippedCount,omitempty"`
	// UpdatesDigest is the SHA-256 digest of the last query that the update service answered, and of its answer. It is empty before that. A
	// new process uses the updates in the ClusterVersion only if they match its own query.
	UpdatesDigest string `json:"updatesDigest,omitempty"`
	// Inventory refers to the list of applied objects.
	Inventory InventoryReference `json:"inventory"`
	// Conditions lists the operator's conditions that have no type in ClusterVersion; see ConditionInventorySaved,
	// ConditionOperatorUpdateService and ConditionOverridesMatch.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions of a ReleaseStatus, and their reasons.
const (
	// ConditionInventorySaved is False while the operator cannot write its inventory, which records the applied objects. It is absent if no
	// write has ever failed.
	ConditionInventorySaved = "InventorySaved"
	// ReasonSaved means that the inventory is up to date.
	ReasonSaved = "Saved"
	// ReasonSaveFailed means that the inventory could not be written. The rollout continues, and the next process applies unchanged objects
	// once more. Fix the cause in the message, such as a quota, an admission policy or missing permissions; the operator retries.
	ReasonSaveFailed = "SaveFailed"
	// ConditionOperatorUpdateService is False if the operator was started without an update service, so that only spec.upstream can name one.
	// It is absent if no operator of this cluster was ever started without one.
	ConditionOperatorUpdateService = "OperatorUpdateService"
	// ReasonServiceNamed means that the operator was started with --update-service.
	ReasonServiceNamed = "Named"
	// ReasonServiceUnnamed means that the operator was started without --update-service.
	ReasonServiceUnnamed = "NotNamed"
	// ConditionOverridesMatch is False while an entry of the ClusterVersion's spec.overrides matches neither an object of the release nor
	// an orphan, so that it has no effect. It is absent until then. See docs/user/update.md#exclude-an-object.
	ConditionOverridesMatch = "OverridesMatch"
	// ReasonOverridesMatch means that every entry matches an object.
	ReasonOverridesMatch = "AllMatch"
	// ReasonOverrideUnmatched means that an entry matches no object. The message names the entry and a similar object. Correct or remove the
	// entry.
	ReasonOverrideUnmatched = "NoSuchObject"
)

// RequestPhase is the phase of a request.
type RequestPhase string

const (
	// RequestSeen means that the operator has seen the request but not resolved the tag.
	RequestSeen RequestPhase = "Seen"
	// RequestResolved means that the operator has resolved the tag but not accepted the digest.
	RequestResolved RequestPhase = "Resolved"
	// RequestAccepted means that the operator has accepted the digest. The digest stands for the request until the request is removed.
	RequestAccepted RequestPhase = "Accepted"
)

// ReleaseRequest is the content of spec.desiredUpdate with its digest.
type ReleaseRequest struct {
	// ClusterVersionUID is the UID of the edited ClusterVersion.
	ClusterVersionUID types.UID `json:"clusterVersionUID"`
	// Image, Version, Architecture and Force are the requested values; an unset value is empty.
	Image        string       `json:"image,omitempty"`
	Version      string       `json:"version,omitempty"`
	Architecture string       `json:"architecture,omitempty"`
	Force        bool         `json:"force,omitempty"`
	Phase        RequestPhase `json:"phase"`
	// Digest is the resolved digest; empty in phase Seen. With force, the digest does not change once it is resolved.
	Digest string `json:"digest,omitempty"`
	// SeenAt, ResolvedAt and AcceptedAt are the times when the phases began. SeenAt is 1970-01-01T00:00:00Z if an earlier process saw the
	// request at an unknown time. Then its force does not count.
	SeenAt     metav1.Time  `json:"seenAt"`
	ResolvedAt *metav1.Time `json:"resolvedAt,omitempty"`
	AcceptedAt *metav1.Time `json:"acceptedAt,omitempty"`
}

// OwnImage is the operator's own image by tag and the digest that the tag resolved to.
type OwnImage struct {
	ClusterVersionUID types.UID   `json:"clusterVersionUID"`
	Image             string      `json:"image"`
	Digest            string      `json:"digest"`
	ResolvedAt        metav1.Time `json:"resolvedAt"`
}

// FirstInstall records facts that are known only when the first install of a ClusterVersion starts. The operator uses it until a release
// has completed.
type FirstInstall struct {
	ClusterVersionUID types.UID `json:"clusterVersionUID"`
	// Waiting is the request that was in the spec when the install started and is still there; otherwise nil. The operator starts it after
	// the install.
	Waiting *RequestContent `json:"waiting,omitempty"`
	// Replaces is the request that replaces the release because its install fails; nil if there is none, if the request is no longer in the
	// spec, or if the install no longer fails.
	Replaces *RequestContent `json:"replaces,omitempty"`
	// Continues is the pullspec by digest of the release that the inventory named when the install started, which happens if the
	// ClusterVersion was deleted and recreated. It is empty if there was no inventory.
	Continues string `json:"continues,omitempty"`
}

// RequestContent is the content of spec.desiredUpdate; unset fields are empty.
type RequestContent struct {
	Image        string `json:"image,omitempty"`
	Version      string `json:"version,omitempty"`
	Architecture string `json:"architecture,omitempty"`
	Force        bool   `json:"force,omitempty"`
}

// ForcedRelease is a digest that an administrator forced.
type ForcedRelease struct {
	Digest  string      `json:"digest"`
	Version string      `json:"version,omitempty"`
	Time    metav1.Time `json:"time"`
	// Reason is the failure that force overrode, at most ReleaseStatusText bytes.
	Reason string `json:"reason"`
}

// ForcedCheck is a failed check that an administrator overrode with force.
type ForcedCheck struct {
	// What is the name of the check: Verification, Preconditions or Permissions. Why is the failure.
	What string `json:"what"`
	Why  string `json:"why"`
}

// Checks that an administrator can override with force.
const (
	ForcedVerification  = "Verification"
	ForcedPreconditions = "Preconditions"
	ForcedPermissions   = "Permissions"
)

// AcceptedRelease is an accepted release with its evidence.
type AcceptedRelease struct {
	// ClusterVersionUID is the UID of the ClusterVersion that accepted the release. It is empty in entries from operators that did not
	// record requests.
	ClusterVersionUID types.UID `json:"clusterVersionUID,omitempty"`
	Version           string    `json:"version"`
	// Image is the pullspec by digest.
	Image      string      `json:"image"`
	AcceptedAt metav1.Time `json:"acceptedAt"`
	// Evidence lists the accepted signatures. It is empty for a forced release and for the release that started the operator.
	Evidence []SignatureEvidence `json:"evidence,omitempty"`
	// Forced is the verification failure that force overrode; empty if there is none.
	Forced string `json:"forced,omitempty"`
	// ForcedPast lists all failed checks that force overrode, including verification.
	ForcedPast []ForcedCheck `json:"forcedPast,omitempty"`
}

// SignatureEvidence is the evidence of one accepted signature: release.Evidence as an API type.
type SignatureEvidence struct {
	Root        string       `json:"root"`
	Threshold   string       `json:"threshold,omitempty"`
	Method      string       `json:"method"`
	Identity    string       `json:"identity,omitempty"`
	Issuer      string       `json:"issuer,omitempty"`
	KeyID       string       `json:"keyID"`
	Fingerprint string       `json:"fingerprint,omitempty"`
	Certificate string       `json:"certificate,omitempty"`
	Algorithm   string       `json:"algorithm,omitempty"`
	Store       string       `json:"store"`
	SignedAt    *metav1.Time `json:"signedAt,omitempty"`
}

// SkippedManifest is a manifest that this cluster does not include.
type SkippedManifest struct {
	File   string `json:"file"`
	Object string `json:"object"`
	Reason string `json:"reason"`
}

// InventoryReference identifies the ConfigMaps of the inventory.
type InventoryReference struct {
	Namespace string `json:"namespace"`
	// Selector is the label selector of these ConfigMaps.
	Selector string `json:"selector"`
}
