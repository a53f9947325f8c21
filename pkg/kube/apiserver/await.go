// Package apiserver waits until the API server responds, recognizes its transient errors, handles its warnings, and removes or sets the limits of
// its clients.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/internal/backoff"
	"github.com/cluster-version/cvo/internal/printable"
)

// ErrAway means that the context ended before the API server responded.
var ErrAway = errors.New("waiting for the API server")

// startRetry is the delay before a request at the start of a process is repeated.
var startRetry = backoff.Doubling{First: 200 * time.Millisecond, Max: 2 * time.Second}

// Retry repeats the requests of do at the start of a process while the API server is unavailable or rejects them, because the roles of the
// process may be created a moment later. A process that exited instead would be restarted with increasing delays. Retry logs each reason
// once in a row. It returns all other errors, and if ctx ends, one that matches ErrAway.
func Retry(ctx context.Context, do func() error) error {
	logged := ""
	for failures := 1; ; failures++ {
		err := do()
		if err == nil || ctx.Err() == nil && !IsTransient(err) && !apierrors.IsForbidden(err) {
			return err
		}
		if text := printable.Steady(err.Error()); text != logged {
			logged = text
			logr.FromContextOrDiscard(ctx).Info("waiting for the API server", "error", text)
		}
		if backoff.Sleep(ctx, startRetry.After(failures)) != nil {
			return fmt.Errorf("%w: %w", ErrAway, err)
		}
	}
}

// Discover makes a mapper read the served kinds, see Retry. A manager would read them once and fail.
func Discover(ctx context.Context, mapper meta.RESTMapper) error {
	return Retry(ctx, func() error {
		_, err := mapper.RESTMapping(schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"}, "v1")
		if meta.IsNoMatchError(err) {
			return nil
		}
		return err
	})
}

// IsTransient reports whether the server does not respond or is unavailable for now. Invalid certificates and unknown host names do not
// count, because waiting does not help.
func IsTransient(err error) bool {
	var operation *net.OpError
	var timeout net.Error
	var name *net.DNSError
	switch {
	case meta.IsNoMatchError(err), errors.As(err, &name) && name.IsNotFound:
		return false
	case errors.As(err, &operation) && operation.Op != "remote error" && operation.Op != "local error": // TLS errors
		return true
	}
	return errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}
