package verify

import (
	"context"
	"time"
)

// WithoutPauses makes an HTTP store go on at once where it would wait, and report how long.
func WithoutPauses(s Store, report func(time.Duration)) Store {
	h, ok := s.(*httpStore)
	if !ok {
		panic("not an HTTP store")
	}
	h.pause = func(ctx context.Context, d time.Duration) error {
		report(d)
		return ctx.Err()
	}
	return h
}

// CheckClaim reads the claim inside an OpenPGP message.
var CheckClaim = checkAtomicClaim
