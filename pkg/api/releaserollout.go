package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ReleaseRolloutVersion and ReleaseRolloutKind identify the cluster-scoped object by which an administrator pauses
// updates, and in which the operator tells of them what ClusterVersion has no field for. It bears the name of the
// ClusterVersion; objects of other names are not looked at.
var ReleaseRolloutVersion = schema.GroupVersion{Group: "cvo.cluster-version.github.io", Version: "v1alpha1"}

// Names of ReleaseRollout.
const (
	ReleaseRolloutKind     = "ReleaseRollout"
	ReleaseRolloutResource = "releaserollouts"
	// ReleaseRolloutDefinition is the name of its definition.
	ReleaseRolloutDefinition = "releaserollouts.cvo.cluster-version.github.io"
)

// Bounds of a ReleaseRollout, as its definition has them.
const (
	// ReleaseRolloutReason is how long spec.reason may be.
	ReleaseRolloutReason = 256
	// ReleaseRolloutHistory is how many completed updates are kept.
	ReleaseRolloutHistory = 5
	// ReleaseRolloutObjects is how many objects a preflight lists, ReleaseRolloutText how long a text may be.
	ReleaseRolloutObjects = 50
	ReleaseRolloutText    = 4096
)

// Conditions of a ReleaseRollout, and their reasons.
const (
	// RolloutPaused is True when an update is held back before a runlevel.
	RolloutPaused = "Paused"
	// ReasonPaused: nothing below the boundary is under way any more. ReasonPausing: what has begun goes on to its gates.
	ReasonPaused  = "BeforeRunlevel"
	ReasonPausing = "Pausing"
	// ReasonNoUpdate: there is nothing to hold back. ReasonNotAsked: nobody asks for it.
	ReasonNoUpdate = "NoUpdate"
	ReasonNotAsked = "NotAsked"
	// RolloutDefinitionComplete tells whether the definition of ClusterVersion has every field that the operator uses.
	RolloutDefinitionComplete = "DefinitionComplete"
	ReasonFieldsMissing       = "FieldsMissing"
	ReasonAllFields           = "AllFields"
)

// Reasons of events about what a ReleaseRollout asks for.
const (
	EventRolloutPaused      = "RolloutPaused"
	EventRolloutResumed     = "RolloutResumed"
	EventPreflightStarted   = "PreflightStarted"
	EventPreflightPassed    = "PreflightPassed"
	EventPreflightObjected  = "PreflightObjected"
	EventPreflightFailed    = "PreflightFailed"
	EventDefinitionOutdated = "DefinitionOutdated"
)

// ReleaseRollout pauses updates and tells how they go.
type ReleaseRollout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ReleaseRolloutSpec   `json:"spec,omitzero"`
	Status            ReleaseRolloutStatus `json:"status,omitzero"`
}

// ReleaseRolloutSpec is what an administrator asks for.
type ReleaseRolloutSpec struct {
	// Paused holds updates back at the next runlevel boundary.
	Paused bool `json:"paused,omitempty"`
	// Reason says why, for others to read.
	Reason string `json:"reason,omitempty"`
}

// ReleaseRolloutStatus is what the operator tells.
type ReleaseRolloutStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	// Current is the update under way, Estimate when it will be complete.
	Current  *CurrentRollout  `json:"current,omitempty"`
	Estimate *RolloutEstimate `json:"estimate,omitempty"`
	// History are the updates that completed, the newest first.
	History   []CompletedRollout `json:"history,omitempty"`
	Preflight *Preflight         `json:"preflight,omitempty"`
}

// CurrentRollout is the update under way.
type CurrentRollout struct {
	From string `json:"from,omitempty"`
	To   string `json:"to"`
	// Image is by digest.
	Image     string      `json:"image"`
	Mode      string      `json:"mode"`
	StartedAt metav1.Time `json:"startedAt"`
	// PausedBefore is the runlevel that is not begun while updates are paused.
	PausedBefore *int32             `json:"pausedBefore,omitempty"`
	Runlevels    []RunlevelProgress `json:"runlevels,omitempty"`
}

// RunlevelProgress tells when a runlevel was worked on.
type RunlevelProgress struct {
	Runlevel  int32 `json:"runlevel"`
	Manifests int32 `json:"manifests"`
	// StartedAt does not count the pause before it.
	StartedAt   *metav1.Time `json:"startedAt,omitempty"`
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
}

// CompletedRollout is an update that completed.
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

// RolloutEstimate is when the update under way will be complete.
type RolloutEstimate struct {
	// RemainingLow and RemainingHigh are how much work is left, when this was written.
	RemainingLow  metav1.Duration `json:"remainingLow"`
	RemainingHigh metav1.Duration `json:"remainingHigh"`
	// EarliestCompletion and LatestCompletion are missing while the update is paused.
	EarliestCompletion *metav1.Time `json:"earliestCompletion,omitempty"`
	LatestCompletion   *metav1.Time `json:"latestCompletion,omitempty"`
	// Basis is what it is made of: History, of so many Rollouts, or ThisRollout.
	Basis    string `json:"basis"`
	Rollouts int32  `json:"rollouts,omitempty"`
}

// Preflight is what was found of a release that was looked at without being rolled out.
type Preflight struct {
	Version string `json:"version,omitempty"`
	// Image is as it was asked for, and by digest once that is known.
	Image string `json:"image"`
	// State is Running, Passed, Objected or Failed.
	State string `json:"state"`
	// Step is the one that runs, or that failed, or the last one.
	Step      string       `json:"step"`
	Message   string       `json:"message,omitempty"`
	StartedAt metav1.Time  `json:"startedAt"`
	EndedAt   *metav1.Time `json:"endedAt,omitempty"`
	// VerifiedBy are those whose signatures were accepted; Forced is the failure of verification that was forced past.
	VerifiedBy []SignatureEvidence `json:"verifiedBy,omitempty"`
	Forced     string              `json:"forced,omitempty"`
	// Preconditions that object.
	Preconditions []PreflightObjection `json:"preconditions,omitempty"`
	Changes       *PreflightChanges    `json:"changes,omitempty"`
}

// States of a Preflight.
const (
	PreflightRunning  = "Running"
	PreflightPassed   = "Passed"
	PreflightObjected = "Objected"
	PreflightFailed   = "Failed"
	// PreflightDryRun is the step after those of acceptance.
	PreflightDryRun = "DryRun"
)

// PreflightObjection is what a precondition says against an update.
type PreflightObjection struct {
	Name     string `json:"name"`
	Reason   string `json:"reason"`
	Message  string `json:"message"`
	Blocking bool   `json:"blocking"`
}

// PreflightChanges sums up what an update would do to the objects of the cluster.
type PreflightChanges struct {
	Created   int32 `json:"created"`
	Changed   int32 `json:"changed"`
	Deleted   int32 `json:"deleted"`
	Recreated int32 `json:"recreated"`
	Refused   int32 `json:"refused"`
	Unchanged int32 `json:"unchanged"`
	Unknown   int32 `json:"unknown"`
	// Objects are those that something would happen to, what would be refused first: the first of ObjectCount.
	Objects     []PreflightObject `json:"objects,omitempty"`
	ObjectCount int32             `json:"objectCount"`
}

// PreflightObject is what an update would do to one object.
type PreflightObject struct {
	Object   string `json:"object"`
	Runlevel int32  `json:"runlevel"`
	Verdict  string `json:"verdict"`
	Message  string `json:"message,omitempty"`
}
