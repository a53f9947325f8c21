package store

import (
	"context"
	"time"
)

// WithoutPauses makes an HTTP store retry without waiting, and report how long it would have waited.
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
