package report

import (
	"fmt"
	"time"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// Drift is a kind of difference between an object and its applied content. The set of kinds is closed because they are labels of a metric.
type Drift string

const (
	// DriftDeleted means that the object was deleted or has lost our label.
	DriftDeleted Drift = "deleted"
	// DriftReplaced means that another object has the object's name.
	DriftReplaced Drift = "replaced"
	// DriftChanged means that another writer changed or removed our fields.
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
	// Version is the API version in which another client probably writes the object, if the server discarded managedFields.
	Version string `json:"version,omitempty"`
}

// By describes the other writer, with a leading space; empty if nothing is known about it.
func (r Repair) By() string {
	switch {
	case r.Manager != "":
		return fmt.Sprintf(" by field manager %q", r.Manager)
	case r.Version != "":
		return " by a client that probably writes it in API version " + r.Version
	}
	return ""
}

// Remedy returns what ends the repairs; empty if that depends on the other writer.
func (r Repair) Remedy() string {
	if r.Version == "" {
		return ""
	}
	return "release its manifest in that version, because the API server discards managedFields at each such write"
}

// Repaired is the repair of one object.
type Repaired struct {
	ID manifest.ID
	Repair
	// Fight is true if the object needed too many repairs. Its repairs pause until HeldBack.
	Fight    bool
	HeldBack time.Time
}
