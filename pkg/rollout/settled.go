package rollout

import (
	"crypto/sha256"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// Settled is what earlier passes have achieved: which content was applied to which object, and what the attempts that
// failed are waiting for. It belongs to a process; after a restart the cluster itself is the state, and an empty
// Settled costs applies that change nothing. A pass takes one and returns the next; the zero value is empty.
type Settled struct{ entries map[manifest.ID]entry }

// entry is what is known of one object.
type entry struct {
	// applied: content was applied, and uid and generation are what the server answered.
	applied    bool
	content    [sha256.Size]byte
	uid        types.UID
	generation int64
	// observed: watches have delivered the object with that uid, so if it is missing later, it was deleted.
	observed bool
	// dropped are the fields that the server did not know when content was applied.
	dropped []string
	// reached: the gate was met once in this rollout, so progress counts it from then on.
	reached bool
	// waitingSince is when a pass first found the gate unmet, in a row; zero when it is met.
	waitingSince time.Time
	// failures in a row, the last error, and when the next attempt is due.
	failures int
	err      error
	retryAt  time.Time
}

// Restart returns a Settled for a new rollout: what was applied stays, what was reached and failed starts anew.
func (s Settled) Restart() Settled {
	next := make(map[manifest.ID]entry, len(s.entries))
	for id, e := range s.entries {
		next[id] = entry{applied: e.applied, content: e.content, uid: e.uid, generation: e.generation, observed: e.observed}
	}
	return Settled{next}
}
