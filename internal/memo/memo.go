// Package memo keeps the last result of a read and shares one read among concurrent callers. The caller decides when a result is due for
// another read and what to keep of a failed one.
package memo

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// Last is the last result of a read. The zero value contains the zero result. It is safe for concurrent use.
type Last[T any] struct {
	reads singleflight.Group

	mu    sync.Mutex
	value T
}

// Value returns the last result.
func (l *Last[T]) Value() T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value
}

// Read returns the last result, or replaces it first if it is due. read gets the result that it replaces, and timeout limits it. Concurrent
// callers share one read, which continues for the others if ctx ends. Only then, Read fails, with the error of ctx and the last result.
func (l *Last[T]) Read(ctx context.Context, timeout time.Duration, due func(T) bool, read func(context.Context, T) T) (T, error) {
	last := l.Value()
	if !due(last) {
		return last, nil
	}
	done := l.reads.DoChan("", func() (any, error) {
		last := l.Value()
		if !due(last) {
			return last, nil // another read has finished since the caller last looked
		}
		background, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		next := read(background, last)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.value = next
		return next, nil
	})
	select {
	case result := <-done:
		next, _ := result.Val.(T)
		return next, nil
	case <-ctx.Done():
		return last, ctx.Err()
	}
}
