// Package background runs work that takes too long for a reconcile. Each slot runs one kind of work. A reconcile starts, wakes or cancels
// it.
package background

import (
	"context"
	"time"
)

// Runner runs work in the background, so that a reconcile never waits for a download or a rollout. *Slots implements it.
type Runner interface {
	// Start calls step repeatedly in a slot until it is done: after Next.After, or at once when woken. Start does nothing if the slot
	// works, or has worked, under the same key. It cancels work under another key and waits for its end, so two steps of one slot never run
	// at the same time.
	Start(slot, key string, step func(ctx context.Context) Next)
	// Wake runs the next step of a slot at once.
	Wake(slot string)
	// Stop cancels all work without waiting for its end. After that, Start in the same slot starts new work even under the key of the
	// canceled work, once that work has ended.
	Stop()
}

// Next determines when a step is called again.
type Next struct {
	// Done ends the work.
	Done bool
	// After is the longest time until the next call; 0 waits for an event.
	After time.Duration
}

// The slots of the runner. They work independently.
const (
	// SlotAccept retrieves, verifies and checks a release.
	SlotAccept = "accept"
	// SlotRollout rolls out a release. Watches wake it.
	SlotRollout = "rollout"
	// SlotInventory saves the inventory.
	SlotInventory = "inventory"
	// SlotRecord records the signers of a release.
	SlotRecord = "record"
	// SlotControl writes the status of the ReleaseRollout.
	SlotControl = "control"
	// SlotPreflight examines a release without rolling it out.
	SlotPreflight = "preflight"
	// SlotUpdates queries the update service.
	SlotUpdates = "updates"
	// SlotRisks evaluates the risks in its answer.
	SlotRisks = "risks"
)
