package evict

import (
	"context"

	"k8s.io/client-go/util/flowcontrol"
)

// pace limits the evictions of both queues together. Those of the control plane come first: otherwise each of them would wait for the
// evictions of other nodes that came earlier.
type pace struct {
	limit flowcontrol.RateLimiter
	// turn is held by the only request that waits for the limit.
	turn chan struct{}
	// handover gives the next eviction to a request of the control plane that waits for its turn.
	handover chan struct{}
}

func newPace(limit flowcontrol.RateLimiter) *pace {
	return &pace{limit: limit, turn: make(chan struct{}, 1), handover: make(chan struct{})}
}

// wait returns when the next eviction may be requested, or with an error when ctx ends.
func (p *pace) wait(ctx context.Context, isControlPlane bool) error {
	var given <-chan struct{} // nil, so never ready, for other nodes
	if isControlPlane {
		given = p.handover
	}
	for {
		select {
		case p.turn <- struct{}{}:
		case <-given:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		err := p.limit.Wait(ctx)
		isGiven := err == nil && !isControlPlane && p.give()
		<-p.turn
		if !isGiven {
			return err
		}
	}
}

// give hands the next eviction over to the control plane. It returns false if no request of the control plane waits.
func (p *pace) give() bool {
	select {
	case p.handover <- struct{}{}:
		return true
	default:
		return false
	}
}
