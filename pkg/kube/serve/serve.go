// Package serve has the endpoint of a process, with TLS only, and its client. The endpoint serves a certificate of package certificate,
// restricts handshakes to the cluster's TLS profile, and limits everything that strangers can influence. The caller provides the handler;
// package guard restricts it to permitted callers. A Client shows its credentials only to a server with a trusted certificate, by the
// fingerprint in a Lease or by a CA.
package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/pkg/kube/certificate"
)

// MetricsPath is the path of each replica's metrics.
const MetricsPath = "/metrics"

// Limits of an endpoint. Its requests have no body, and its responses fit into memory.
const (
	readHeaderTimeout = 10 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 90 * time.Second
	maxHeaderBytes    = 64 << 10
)

// ShutdownTimeout is the maximum time in which an endpoint ends its connections. One without a request must not delay the release of the
// Lease, which follows.
const ShutdownTimeout = 500 * time.Millisecond

// NoListener is the address of an endpoint that serves nothing. controller-runtime uses the same value.
const NoListener = "0"

// Options configures an Endpoint.
type Options struct {
	// Listen is the address, or NoListener.
	Listen string
	// Certificate configures the certificate.
	Certificate certificate.Options
	// TLS restricts the accepted handshakes. It takes precedence over the cluster's TLS profile.
	TLS TLS
	// ParseProfile parses the cluster's TLS profile.
	ParseProfile ParseProfile
}

// Endpoint is a TLS server.
type Endpoint struct {
	certificate *certificate.Certificate
	handshakes  *handshakes
	listener    net.Listener
}

// Listen creates or reads the certificate and starts to listen. The endpoint responds to requests once its Runnables run. Listen returns
// nil if nothing is to be served.
func Listen(ctx context.Context, clk clock.PassiveClock, options Options) (*Endpoint, error) {
	if options.Listen == NoListener {
		return nil, nil
	}
	e := &Endpoint{}
	var err error
	if e.certificate, err = certificate.New(clk, options.Certificate); err != nil {
		return nil, err
	}
	e.handshakes = newHandshakes(logr.FromContextOrDiscard(ctx), e.certificate.TLSConfig(), options.TLS, options.ParseProfile)
	var config net.ListenConfig
	if e.listener, err = config.Listen(ctx, "tcp", options.Listen); err != nil {
		return nil, fmt.Errorf("listening for metrics and health: %w", err)
	}
	return e, nil
}

// Certificate returns the certificate, or nil if nothing is served.
func (e *Endpoint) Certificate() *certificate.Certificate {
	if e == nil {
		return nil
	}
	return e.certificate
}

// Address returns the endpoint's address, or "" if nothing is served.
func (e *Endpoint) Address() string {
	if e == nil {
		return ""
	}
	return e.listener.Addr().String()
}

// Close closes the endpoint after a failed start. A running endpoint closes its listener itself; closing it twice is harmless.
func (e *Endpoint) Close() error {
	if e == nil {
		return nil
	}
	return e.listener.Close()
}

// Runnables returns the parts that a manager runs on every replica: the watch of the certificate's files, the watch of the cluster's TLS
// profile, and the server with the given handler. Requests have ctx as their base context.
func (e *Endpoint) Runnables(ctx context.Context, cluster dynamic.Interface, handler http.Handler) []manager.Runnable {
	timeout := ShutdownTimeout
	return []manager.Runnable{
		e.certificate,
		&tlsProfile{cluster, e.handshakes},
		&manager.Server{
			Name:            "endpoint",
			Server:          newServer(ctx, handler),
			Listener:        tls.NewListener(e.listener, e.handshakes.config()),
			ShutdownTimeout: &timeout,
		},
	}
}

// AddTo makes a manager serve the handler on every replica; see Runnables.
func (e *Endpoint) AddTo(ctx context.Context, mgr manager.Manager, handler http.Handler) error {
	cluster, err := dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("creating dynamic client: %w", err)
	}
	for _, runnable := range e.Runnables(ctx, cluster, handler) {
		if err := mgr.Add(runnable); err != nil {
			return fmt.Errorf("serving: %w", err)
		}
	}
	return nil
}

// NewMux returns the paths that every process serves: liveness and readiness to everyone, and the metrics by a handler, which checks its callers.
func NewMux(metrics http.Handler) *http.ServeMux {
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", ok)
	mux.HandleFunc("GET /readyz", ok)
	mux.Handle("GET "+MetricsPath, metrics)
	return mux
}

// newServer limits everything that strangers can influence. It supports only HTTP/1.1, because streams that are opened and reset
// immediately cost an HTTP/2 server more than the client (CVE-2023-44487). These few clients need no streams.
func newServer(ctx context.Context, handler http.Handler) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           handler,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readHeaderTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		Protocols:         protocols,
		ErrorLog:          quietLog(logr.FromContextOrDiscard(ctx)),
	}
}

// quietLog receives net/http's messages about clients with invalid TLS or HTTP.
func quietLog(log logr.Logger) *stdlog.Logger { return stdlog.New(quietWriter{log}, "", 0) }

type quietWriter struct{ log logr.Logger }

func (w quietWriter) Write(line []byte) (int, error) {
	w.log.V(1).Info("serving a request", "error", strings.TrimSpace(string(line)))
	return len(line), nil
}
