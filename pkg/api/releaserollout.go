package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ReleaseRolloutVersion and ReleaseRolloutKind identify the cluster-scoped object in which an administrator pauses updates. The operator
// also uses it to report update state that has no field in ClusterVersion. The object has the same name as the ClusterVersion; the operator
// ignores all others.
var ReleaseRolloutVersion = schema.GroupVersion{Group: "cvo.cluster-version.github.io", Version: "v1alpha1"}

// Names of ReleaseRollout.
const (
	ReleaseRolloutKind     = "ReleaseRollout"
	ReleaseRolloutResource = "releaserollouts"
	// ReleaseRolloutDefinition is the name of its CRD.
	ReleaseRolloutDefinition = "releaserollouts.cvo.cluster-version.github.io"
)

// Limits of a ReleaseRollout. Its CRD also enforces them.
const (
	// ReleaseRolloutReason is the maximum length of spec.reason.
	ReleaseRolloutReason = 256
	// ReleaseRolloutHistory is the maximum number of completed updates.
	ReleaseRolloutHistory = 5
	// ReleaseRolloutObjects is the maximum number of objects in a preflight. ReleaseRolloutText is the maximum length of a text.
	ReleaseRolloutObjects = 50
	ReleaseRolloutText    = 4096
)

// Conditions of a ReleaseRollout, and their reasons.
const (
	// RolloutPaused is True while an update waits before a runlevel: docs/user/update.md#pause.
	RolloutPaused = "Paused"
	// ReasonPaused means that the update is paused and no work remains below the boundary. The field status.current.pausedBefore is the
	// runlevel; `cvo upgrade resume` continues the update.
	ReasonPaused = "BeforeRunlevel"
	// ReasonPausing means that started work is still being finished, up to the gates of the current runlevel.
	ReasonPausing = "Pausing"
	// ReasonNoUpdate means that a pause is requested and no update is running. The next one will be paused.
	ReasonNoUpdate = "NoUpdate"
	// ReasonNotAsked means that no pause is requested.
	ReasonNotAsked = "NotAsked"
	// RolloutDefinitionComplete reports whether the CRD of ClusterVersion has every field that the operator uses.
	RolloutDefinitionComplete = "DefinitionComplete"
	// ReasonFieldsMissing means that the CRD lacks fields. Remove the override of the CRD, or stop its other writer.
	ReasonFieldsMissing = "FieldsMissing"
	// ReasonAllFields means that the CRD has all fields.
	ReasonAllFields = "AllFields"
)

// Events about pauses, preflights and the CRD of ClusterVersion.
const (
	// Updates were paused: docs/user/update.md#pause.
	EventRolloutPaused = "RolloutPaused"
	// Updates were resumed.
	EventRolloutResumed = "RolloutResumed"
	// A preflight started: docs/user/choose-update.md#preflight.
	EventPreflightStarted = "PreflightStarted"
	// A preflight found no obstacle.
	EventPreflightPassed = "PreflightPassed"
	// A preflight found that a precondition or the API server blocks the release.
	EventPreflightObjected = "PreflightObjected"
	// A preflight could not be completed.
	EventPreflightFailed = "PreflightFailed"
	// The CRD of ClusterVersion lacks fields that the operator uses. Emitted at its start.
	EventDefinitionOutdated = "DefinitionOutdated"
)

// ReleaseRollout pauses updates and reports their progress.
type ReleaseRollout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ReleaseRolloutSpec   `json:"spec,omitzero"`
	Status            ReleaseRolloutStatus `json:"status,omitzero"`
}

// ReleaseRolloutSpec is an administrator's request.
type ReleaseRolloutSpec struct {
	// Paused pauses updates at the next runlevel boundary.
	Paused bool `json:"paused,omitempty"`
	// Reason is a human-readable reason for the pause.
	Reason string `json:"reason,omitempty"`
}

// ReleaseRolloutStatus is the operator's report.
type ReleaseRolloutStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	// Current is the current update; nil if there is none. Estimate estimates its completion.
	Current  *CurrentRollout  `json:"current,omitempty"`
	Estimate *RolloutEstimate `json:"estimate,omitempty"`
	// History lists the completed updates, newest first.
	History []CompletedRollout `json:"history,omitempty"`
	// PreflightRequest is the current request, if it has mode Preflight. Preflight is the last preflight.
	PreflightRequest *PreflightRequest `json:"preflightRequest,omitempty"`
	Preflight        *Preflight        `json:"preflight,omitempty"`
}

// PreflightRequest is a request with mode Preflight. A definition of ClusterVersion without the mode drops it from the spec. From
// this record, another process knows that no administrator has requested the update.
type PreflightRequest struct {
	// ObservedGeneration is the generation of the ClusterVersion with the request.
	ObservedGeneration int64 `json:"observedGeneration"`
	RequestContent     `json:",inline"`
}

// CurrentRollout is the current update.
type CurrentRollout struct {
	From string `json:"from,omitempty"`
	To   string `json:"to"`
	// Image is the pullspec by digest.
	Image     string      `json:"image"`
	Mode      string      `json:"mode"`
	StartedAt metav1.Time `json:"startedAt"`
	// PausedBefore is the runlevel before which the update pauses; nil without a pause.
	PausedBefore *int32             `json:"pausedBefore,omitempty"`
	Runlevels    []RunlevelProgress `json:"runlevels,omitempty"`
}

// RunlevelProgress is the progress of a runlevel.
type RunlevelProgress struct {
	Runlevel  int32 `json:"runlevel"`
	Manifests int32 `json:"manifests"`
	// StartedAt is the time when work on the runlevel started, after any pause before it; nil if it has not started.
	StartedAt   *metav1.Time `json:"startedAt,omitempty"`
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
}

// CompletedRollout is a completed update.
type CompletedRollout struct {
	From        string             `json:"from,omitempty"`
	To          string             `json:"to"`
	StartedAt   metav1.Time        `json:"startedAt"`
	CompletedAt metav1.Time        `json:"completedAt"`
	Runlevels   []RunlevelDuration `json:"runlevels,omitempty"`
}

// RunlevelDuration is how long a runlevel took, without pauses.
type RunlevelDuration struct {
	Runlevel  int32           `json:"runlevel"`
	Manifests int32           `json:"manifests"`
	Took      metav1.Duration `json:"took"`
}

// RolloutEstimate is the estimated completion of the current update.
type RolloutEstimate struct {
	// RemainingLow and RemainingHigh are the bounds of the remaining time when the estimate was written.
	RemainingLow  metav1.Duration `json:"remainingLow"`
	RemainingHigh metav1.Duration `json:"remainingHigh"`
	// EarliestCompletion and LatestCompletion are absent while the update is paused. EarliestCompletion is also absent if the update may
	// complete at any moment.
	EarliestCompletion *metav1.Time `json:"earliestCompletion,omitempty"`
	LatestCompletion   *metav1.Time `json:"latestCompletion,omitempty"`
	// Basis is the source of the estimate: ThisRollout or History. With History, Rollouts is the number of updates it is based on.
	Basis    string `json:"basis"`
	Rollouts int32  `json:"rollouts,omitempty"`
}

// Preflight is the result of checking a release without rolling it out.
type Preflight struct {
	Version string `json:"version,omitempty"`
	// Image is the requested pullspec, and after it has been resolved, the pullspec by digest.
	Image string `json:"image"`
	// State is Running, Passed, Objected or Failed.
	State string `json:"state"`
	// Step is the running step, the failed step or the last step.
	Step      string       `json:"step"`
	Message   string       `json:"message,omitempty"`
	StartedAt metav1.Time  `json:"startedAt"`
	EndedAt   *metav1.Time `json:"endedAt,omitempty"`
	// VerifiedBy lists the accepted signatures. Forced is the verification failure that force overrode; empty if there is none.
	VerifiedBy []SignatureEvidence `json:"verifiedBy,omitempty"`
	Forced     string              `json:"forced,omitempty"`
	// Preconditions lists the failed preconditions.
	Preconditions []PreflightObjection `json:"preconditions,omitempty"`
	Changes       *PreflightChanges    `json:"changes,omitempty"`
}

// States of a Preflight.
const (
	PreflightRunning  = "Running"
	PreflightPassed   = "Passed"
	PreflightObjected = "Objected"
	PreflightFailed   = "Failed"
	// PreflightDryRun is the step that follows the steps of ReleaseAccepted.
	PreflightDryRun = "DryRun"
)

// PreflightObjection is a precondition's reason to block an update.
type PreflightObjection struct {
	Name     string `json:"name"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
	Blocking bool   `json:"blocking"`
}

// PreflightChanges counts the changes that an update would make to objects in the cluster. Deleted includes the objects of earlier releases
// that would be deleted once the update is complete.
type PreflightChanges struct {
	Created   int32 `json:"created"`
	Changed   int32 `json:"changed"`
	Deleted   int32 `json:"deleted"`
	Recreated int32 `json:"recreated"`
	Refused   int32 `json:"refused"`
	Unchanged int32 `json:"unchanged"`
	Unknown   int32 `json:"unknown"`
	// Objects lists objects that would change, those with rejected changes first. The list is limited; ObjectCount counts them all.
	Objects     []PreflightObject `json:"objects,omitempty"`
	ObjectCount int32             `json:"objectCount"`
}

// PreflightObject is the change that an update would make to one object.
type PreflightObject struct {
	Object   string `json:"object"`
	Runlevel int32  `json:"runlevel"`
	Verdict  string `json:"verdict"`
	Message  string `json:"message,omitempty"`
}
