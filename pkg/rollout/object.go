package rollout

import (
	"time"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// Snapshot is all that is known of a rollout at one moment: the progress, and each manifest of the release with its
// last result. It is a value that nobody changes.
type Snapshot struct {
	At       time.Time `json:"at"`
	Progress Progress  `json:"progress"`
	// Objects are in the order of the graph; after them come the manifests that this cluster does not get.
	Objects []Object `json:"objects"`
}

// Object is the last result of one manifest.
type Object struct {
	manifest.ID

	File      string `json:"file"`
	Runlevel  int    `json:"runlevel"`
	Component string `json:"component,omitempty"`

	// Result is what the last attempt to make the object match came to, and At when that was; empty and zero before
	// the first.
	Result Result    `json:"result,omitempty"`
	At     time.Time `json:"at,omitzero"`
	// State is where the manifest stands in the rollout, and Since from when on.
	State State     `json:"state"`
	Since time.Time `json:"since,omitzero"`
	// Reason is a CamelCase word and Message a sentence: why it is skipped, what it waits on, what it failed on.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Repairs counts how often drift was repaired since the process started, and LastRepair tells of the last one.
	Repairs    int    `json:"repairs,omitempty"`
	LastRepair Repair `json:"lastRepair,omitzero"`
	// Loosened lists what others added that loosens the security of its pods, by manager and field.
	Loosened []string `json:"loosened,omitempty"`
	// Dropped lists fields of the manifest that the server's schema does not know.
	Dropped []string `json:"dropped,omitempty"`
}

// Result is what an attempt to make an object match its manifest came to.
type Result string

const (
	// Created: it was not there.
	Created Result = "created"
	// Configured: something of it was changed.
	Configured Result = "configured"
	// Unchanged: it matched.
	Unchanged Result = "unchanged"
	// Kept: a create-only object that was there already.
	Kept Result = "kept"
	// Recreated: it could not be changed in place, and its manifest asks to replace it then.
	Recreated Result = "recreated"
	// Deleted: a tombstone whose object is gone, or was never there.
	Deleted Result = "deleted"
	// Deleting: it is on its way out.
	Deleting Result = "deleting"
	// Skipped: it was left alone deliberately.
	Skipped Result = "skipped"
	// Refused: the attempt failed; Object.Message has the error.
	Refused Result = "failed"
)

// State is where a manifest stands in the rollout.
type State string

const (
	// StatePending: what comes before it has not settled.
	StatePending State = "pending"
	// StateWaiting: it is applied, and its gate is not met yet.
	StateWaiting State = "waiting"
	// StateFailed: it cannot be applied, or its gate says that it is broken.
	StateFailed State = "failed"
	// StateSettled: it is applied and its gate, if it has one, is met.
	StateSettled State = "settled"
	// StateSkipped: this cluster does not get it, or it is left alone deliberately.
	StateSkipped State = "skipped"
)

// Repair is one repair of drift.
type Repair struct {
	At     time.Time `json:"at"`
	Reason Drift     `json:"reason"`
	// Manager is the field manager that wrote last, as far as the object tells.
	Manager string `json:"manager,omitempty"`
}
