package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ReleaseStatusVersion and ReleaseStatusKind identify the cluster-scoped object in which the operator keeps what
// ClusterVersion has no field for. It bears the name of the ClusterVersion.
var ReleaseStatusVersion = schema.GroupVersion{Group: "cvo.cluster-version.github.io", Version: "v1alpha1"}

// ReleaseStatusKind is the kind of a ReleaseStatus.
const ReleaseStatusKind = "ReleaseStatus"

// ReleaseStatusReleases is how many releases a ReleaseStatus remembers.
const ReleaseStatusReleases = 10

// ReleaseStatus tells of the releases that a cluster accepted: who signed them, and what of the newest it was not given.
type ReleaseStatus struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Status            ReleaseStatusStatus `json:"status"`
}

// ReleaseStatusStatus is the content of a ReleaseStatus.
type ReleaseStatusStatus struct {
	// Releases are those that were accepted, the newest first.
	Releases []AcceptedRelease `json:"releases"`
	// Skipped are the manifests of the newest release that this cluster is not given: the first of SkippedCount.
	Skipped      []SkippedManifest `json:"skipped,omitempty"`
	SkippedCount int               `json:"skippedCount,omitempty"`
	// Inventory leads to what releases have applied.
	Inventory InventoryReference `json:"inventory"`
}

// AcceptedRelease is a release and the evidence by which it was accepted.
type AcceptedRelease struct {
	Version string `json:"version"`
	// Image is by digest.
	Image      string      `json:"image"`
	AcceptedAt metav1.Time `json:"acceptedAt"`
	// Evidence says who signed. It is empty for a release that was forced, or that the operator was started from.
	Evidence []SignatureEvidence `json:"evidence,omitempty"`
	// Forced is the failure of verification that was forced past.
	Forced string `json:"forced,omitempty"`
}

// SignatureEvidence answers for one accepted signature; see release.Evidence, which it repeats in the form of the API.
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

// SkippedManifest is a manifest that a cluster is not given.
type SkippedManifest struct {
	File   string `json:"file"`
	Object string `json:"object"`
	Reason string `json:"reason"`
}

// InventoryReference names the ConfigMaps of the inventory.
type InventoryReference struct {
	Namespace string `json:"namespace"`
	// Selector is the label selector that finds them.
	Selector string `json:"selector"`
}
