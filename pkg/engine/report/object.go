package report

import (
	"time"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// Snapshot is the state of a rollout at one moment: its progress and the latest result of every manifest in the release. It is immutable.
type Snapshot struct {
	At       time.Time `json:"at"`
	Progress Progress  `json:"progress"`
	// Rejected is the reason why the operator rejects the requested release; empty if it does not.
	Rejected string `json:"rejected,omitempty"`
	// NothingIncluded is the reason why the cluster gets no manifest of the release, except the operator's own; empty if it gets one, or if
	// the release has no others.
	NothingIncluded string `json:"nothingIncluded,omitempty"`
	// InventoryError is the error from saving the inventory last time; empty if that succeeded.
	InventoryError string `json:"inventoryError,omitempty"`
	// UnmatchedOverrides describes the entries of spec.overrides that match no object of this or an earlier release; empty if all match.
	UnmatchedOverrides string `json:"unmatchedOverrides,omitempty"`
	// OperatorVersion is the version of the operator's program.
	OperatorVersion string `json:"operatorVersion,omitempty"`
	// InsecureRegistries are the registries that the operator contacts without TLS, or without checking their certificates.
	InsecureRegistries []string `json:"insecureRegistries,omitempty"`
	// Objects has the order of the graph, followed by the manifests that are not for this cluster.
	Objects []Object `json:"objects"`
}

// Overridden is the message for an object that spec.overrides excludes.
const Overridden = "overridden"

// Object is the latest result of one manifest.
type Object struct {
	manifest.ID

	File      string `json:"file"`
	Runlevel  int    `json:"runlevel"`
	Component string `json:"component,omitempty"`

	// Result is the result of the last attempt to make the object match, and At its time. Both are zero before the first attempt.
	Result Result    `json:"result,omitempty"`
	At     time.Time `json:"at,omitzero"`
	// State is the manifest's position in the rollout, and Since the time when it reached this state.
	State State     `json:"state"`
	Since time.Time `json:"since,omitzero"`
	// Reason is a CamelCase word and Message a sentence. They explain why the manifest is skipped, waits or failed.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Repairs is the number of drift repairs since the process started, and LastRepair the last of them.
	Repairs    int    `json:"repairs,omitempty"`
	LastRepair Repair `json:"lastRepair,omitzero"`
	// Loosened contains the fields through which other writers weaken the security of the object's pods, as `manager: field`.
	Loosened []string `json:"loosened,omitempty"`
	// Controller is the kind and name of the object's controller, unless that is the ClusterVersion or the release sets it.
	Controller string `json:"controller,omitempty"`
	// ScaledToZero is true for a workload without replicas whose manifest leaves their number to other clients.
	ScaledToZero bool `json:"scaledToZero,omitempty"`
	// Dropped contains the manifest's fields that the server's schema does not know.
	Dropped []string `json:"dropped,omitempty"`
}

// Result is the result of an attempt to make an object match its manifest.
type Result string

const (
	// Created means that the object did not exist.
	Created Result = "created"
	// Configured means that the apply changed some of the object's fields.
	Configured Result = "configured"
	// Unchanged means that the object already matched.
	Unchanged Result = "unchanged"
	// Kept means that a create-only object already existed.
	Kept Result = "kept"
	// Recreated means that the object could not be changed in place, and its manifest allows replacing it.
	Recreated Result = "recreated"
	// Deleted means that the object of a tombstone no longer exists, or never existed.
	Deleted Result = "deleted"
	// Deleting means that the deletion of the object has started.
	Deleting Result = "deleting"
	// Skipped means that the operator ignores the object on purpose.
	Skipped Result = "skipped"
	// Refused means that the attempt failed. Object.Message contains the error.
	Refused Result = "failed"
)

// State is the position of a manifest in the rollout.
type State string

const (
	// StatePending means that some of the manifest's predecessors have not settled.
	StatePending State = "pending"
	// StateWaiting means that the manifest is applied, but its gate has not settled yet.
	StateWaiting State = "waiting"
	// StateFailed means that the manifest cannot be applied, or its gate has failed.
	StateFailed State = "failed"
	// StateSettled means that the manifest is applied and its gate, if any, has settled.
	StateSettled State = "settled"
	// StateSkipped means that the manifest is not for this cluster, or the operator ignores it on purpose.
	StateSkipped State = "skipped"
)
