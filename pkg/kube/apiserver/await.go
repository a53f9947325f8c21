// Package apiserver waits until the API server responds, recognizes its transient errors, handles its warnings, and removes or sets the limits of
// its clients.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/internal/backoff"
)

// serverAskedEvery is the interval of requests to an API server that does not respond. answerPatience is the timeout of each request.
const (
	serverAskedEvery = time.Second
	answerPatience   = 10 * time.Second
)

// Await waits until the API server responds, successfully or not. It returns an error if ctx ends, which matches ErrAway, or if cfg is
// invalid. A process that exited instead would be restarted with increasing delays.
func Await(ctx context.Context, clk clock.Clock, cfg *rest.Config) error {
	ask, err := askServer(cfg)
	if err != nil {
		return err
	}
	return await(ctx, clk, ask)
}

// ErrAway means that the context ended before the API server responded.
var ErrAway = errors.New("waiting for the API server")

func await(ctx context.Context, clk clock.Clock, ask func(context.Context) error) error {
	for waiting := false; ; waiting = true {
		err := ask(ctx)
		if err == nil || ctx.Err() == nil && !IsTransient(err) {
			return nil
		}
		if !waiting {
			logr.FromContextOrDiscard(ctx).Info("waiting for the API server", "error", err.Error())
		}
		timer := clk.NewTimer(serverAskedEvery)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w", ErrAway, err)
		}
	}
}

// startRetry is the delay before a request at the start of a process is repeated.
var startRetry = backoff.Doubling{First: 200 * time.Millisecond, Max: 10 * time.Second}

// Retry repeats the requests of do at the start of a process while the API server is unavailable or rejects them, because the roles of the
// process may be created a moment later. It logs each reason once in a row. It returns all other errors, and if ctx ends, one that matches
// ErrAway.
func Retry(ctx context.Context, do func() error) error {
	logged := ""
	for failures := 1; ; failures++ {
		err := do()
		if err == nil || ctx.Err() == nil && !IsTransient(err) && !apierrors.IsForbidden(err) {
			return err
		}
		if text := err.Error(); text != logged {
			logged = text
			logr.FromContextOrDiscard(ctx).Info("waiting for the API server", "error", text)
		}
		if backoff.Sleep(ctx, startRetry.After(failures)) != nil {
			return fmt.Errorf("%w: %w", ErrAway, err)
		}
	}
}

// Discovering returns a constructor of a manager's mapper that reads the served kinds at once, see Retry. The manager would read them once
// and fail.
func Discovering(ctx context.Context, provide func(*rest.Config, *http.Client) (meta.RESTMapper, error)) func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return func(cfg *rest.Config, client *http.Client) (meta.RESTMapper, error) {
		mapper, err := provide(cfg, client)
		if err != nil {
			return nil, err
		}
		return mapper, Retry(ctx, func() error {
			_, err := mapper.RESTMapping(schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"}, "v1")
			if meta.IsNoMatchError(err) {
				return nil
			}
			return err
		})
	}
}

// askServer returns a function that sends the first request of a new connection to the API server.
func askServer(config *rest.Config) (func(context.Context) error, error) {
	config = rest.CopyConfig(config)
	config.Timeout = answerPatience
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating discovery client: %w", err)
	}
	return func(ctx context.Context) error {
		_, err := client.RESTClient().Get().AbsPath("/apis").DoRaw(ctx) // within answerPatience
		return err
	}, nil
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
