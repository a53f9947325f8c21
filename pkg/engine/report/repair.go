package report

import (
	"fmt"
	"time"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// Drift is a kind of difference between an object and its applied content. The set of kinds is closed because they are labels of a metric.
type Drift string

const (
	// DriftDeleted means that the object was deleted.
	DriftDeleted Drift = "deleted"
	// DriftReplaced means that another object has the object's name.
	DriftReplaced Drift = "replaced"
	// DriftChanged means that another writer changed or removed our fields, or our label.
	DriftChanged Drift = "changed"
	// DriftMutated means that applying again changed the object although managedFields showed no difference. Either an admission webhook
	// changed our value during another client's write, or a client used our manager name within the same second as our own write.
	DriftMutated Drift = "mutated"
	// DriftReappeared means that an object exists again after its tombstone deleted it.
	DriftReappeared Drift = "reappeared"
)

// Repair is one repair of drift.
type Repair struct {
	At     time.Time `json:"at"`
	Reason Drift     `json:"reason"`
	// Manager is the field manager of the last write, if managedFields shows it.
	Manager string `json:"manager,omitempty"`
	// Unowned is true for a custom resource whose managedFields were empty. The API server discards them after some writes in another API
	// version, and a client can clear them, so the cause is unknown.
	Unowned bool `json:"unowned,omitempty"`
}

// By describes the other writer, with a leading space; empty if nothing is known about it.
func (r Repair) By() string {
	switch {
	case r.Manager != "":
		return fmt.Sprintf(" by field manager %q", r.Manager)
	case r.Unowned:
		return " by an unknown client (managedFields were empty)"
	}
	return ""
}

// Advice returns what may end the repairs, with a leading separator; empty if nothing is known about the cause.
func (r Repair) Advice() string {
	if !r.Unowned {
		return ""
	}
	return "; if that client writes another API version than the release, release the manifest in that version"
}

// Repaired is the repair of one object.
type Repaired struct {
	ID manifest.ID
	Repair
	// Fight is true if the object needed too many repairs. Its repairs pause until HeldBack.
	Fight    bool
	HeldBack time.Time
}
