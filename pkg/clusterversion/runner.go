package clusterversion

import (
	"context"
	"time"
)

// Runner works in the background, so that a reconcile never waits for a download or a rollout.
type Runner interface {
	// Start has step called in a slot until it is done: again after Next.After, or at once when woken. Nothing
	// happens if the slot works, or has worked, under the same key; work under another key is cancelled first.
	// Two steps of one slot never run at the same time.
	Start(slot, key string, step func(ctx context.Context) Next)
	// Wake has a slot's next step come at once.
	Wake(slot string)
}

// Next says when a step wants to be called again.
type Next struct {
	// Done: never.
	Done bool
	// After: not later than that; 0 waits for an event alone.
	After time.Duration
}

// The slots of the runner: a release can be examined while another is being rolled out, and what the rollout has done is
// recorded beside it, and so is who signed the release. The rollout is woken by watches.
const (
	SlotAccept    = "accept"
	SlotRollout   = "rollout"
	SlotInventory = "inventory"
	SlotRecord    = "record"
)
