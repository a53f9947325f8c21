package operator

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
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// serverAskedEvery is how often an API server that is away is asked whether it is back, answerPatience how long it has for
// the answer.
const (
	serverAskedEvery = time.Second
	answerPatience   = 10 * time.Second
)

// awaitServer waits for an API server that is away: a process that ended instead would be started again later and later.
// What it answers with does not matter.
func awaitServer(ctx context.Context, clk clock.Clock, ask func() error) error {
	for waiting := false; ; waiting = true {
		err := ask()
		if err == nil || !away(err) {
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
			return fmt.Errorf("waiting for the API server: %w", err)
		}
	}
}

// askServer asks what connecting to the API server begins with.
func askServer(config *rest.Config) (func() error, error) {
	config = rest.CopyConfig(config)
	config.Timeout = answerPatience
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating discovery client: %w", err)
	}
	return func() error {
		_, err := client.ServerGroups()
		return err
	}, nil
}

// away reports whether an error is that of a server that does not answer, or cannot do so for the moment. Certificates
// and names that are wrong stay wrong.
func away(err error) bool {
	var operation *net.OpError
	var timeout net.Error
	var name *net.DNSError
	switch {
	case meta.IsNoMatchError(err), errors.As(err, &name) && name.IsNotFound:
		return false
	case errors.As(err, &operation) && operation.Op != "remote error" && operation.Op != "local error": // what TLS has to say
		return true
	}
	return errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}
