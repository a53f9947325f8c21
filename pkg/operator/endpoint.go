package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/cluster-version/cvo/pkg/retrieve"
)

// The paths of the endpoint that only callers whom the API server authorizes may read.
const (
	// RolloutPath is where the leader serves the last result of every manifest.
	RolloutPath = "/debug/rollout"
	// MetricsPath is where each replica serves its metrics.
	MetricsPath = "/metrics"
)

// Limits of the endpoint: its requests have no body, its answers fit in memory.
const (
	readHeaderTimeout = 10 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 90 * time.Second
	shutdownTimeout   = 5 * time.Second
	maxHeaderBytes    = 64 << 10
)

// endpoint is what the operator serves, over TLS alone: liveness and readiness to everybody, metrics and the account of
// the rollout to those whom the API server authorizes. It also holds the identity under which the process takes part
// in the election of a leader, because that is how clients learn which certificate to expect.
type endpoint struct {
	identity    Identity
	certificate *certificate
	// optional: the files of a certificate may be missing, so the operator's own CA is kept.
	optional bool
	// inbox takes what retrieval Jobs send.
	inbox retrieve.Inbox
	// handshakes is nil if nothing is served.
	handshakes *handshakes
	// listener is nil if nothing is served.
	listener net.Listener

	// unfenced leads to the API server for what replicas write that do not lead.
	unfenced *rest.Config
	leases   coordinationv1.LeaseInterface
	election *resourcelock.LeaseLock
}

// newEndpoint makes or reads the certificate and starts to listen; nobody is answered before the manager runs.
func newEndpoint(ctx context.Context, options Options) (*endpoint, error) {
	e := &endpoint{optional: options.ServingCertOptional}
	if options.Listen != noListener {
		var err error
		if e.certificate, err = newCertificate(clock.RealClock{}, options); err != nil {
			return nil, err
		}
		e.handshakes = newHandshakes(logr.FromContextOrDiscard(ctx), e.certificate.config(), options.TLS)
		var config net.ListenConfig
		if e.listener, err = config.Listen(ctx, "tcp", options.Listen); err != nil {
			return nil, fmt.Errorf("listening for metrics and health: %w", err)
		}
	}
	var err error
	e.identity, err = newIdentity(options.PodName, e.certificate)
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

// address is where the endpoint listens; empty if nothing is served.
func (e *endpoint) address() string {
	if e.listener == nil {
		return ""
	}
	return e.listener.Addr().String()
}

// close is for a start that fails; a manager that runs closes the listener itself, and a second time does no harm.
func (e *endpoint) close() error {
	if e.listener == nil {
		return nil
	}
	return e.listener.Close()
}

// lock is the Lease for which the replicas compete.
func (e *endpoint) lock(cfg *rest.Config, options Options) (resourcelock.Interface, error) {
	e.unfenced = rest.CopyConfig(cfg)
	cfg = rest.AddUserAgent(rest.CopyConfig(cfg), "leader-election")
	// One request that hangs must not cost the lead: there is time for a second one.
	cfg.Timeout = max(options.RenewDeadline/2, time.Second)
	client, err := coordinationv1.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating lease client: %w", err)
	}
	e.leases = client.Leases(options.Namespace)
	e.election = &resourcelock.LeaseLock{Client: client, LockConfig: resourcelock.ResourceLockConfig{Identity: e.identity.String()}}
	e.election.LeaseMeta.Namespace, e.election.LeaseMeta.Name = options.Namespace, options.Name
	return e.election, nil
}

// serve has the manager serve the endpoint, on every replica, and tell the election by events.
func (e *endpoint) serve(ctx context.Context, mgr manager.Manager, snapshot snapshotFunc, recorder record.EventRecorder) error {
	e.election.LockConfig.EventRecorder = recorder
	if e.listener == nil {
		return nil
	}
	if e.certificate.given != nil {
		if err := mgr.Add(e.certificate.given); err != nil {
			return fmt.Errorf("watching the serving certificate: %w", err)
		}
	}
	if e.optional {
		core, err := corev1client.NewForConfig(e.unfenced) // whether or not this replica leads
		if err != nil {
			return fmt.Errorf("creating client for the serving CA: %w", err)
		}
		if err := mgr.Add(newServingKeeper(clock.RealClock{}, core, e.election.LeaseMeta.Namespace, e.certificate)); err != nil {
			return fmt.Errorf("keeping the serving CA: %w", err)
		}
	}
	if err := e.handshakes.follow(mgr); err != nil {
		return err
	}
	guard, err := newGuard(clock.RealClock{}, mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	account := &account{snapshot: snapshot, elected: mgr.Elected(), leader: e.leader}
	timeout := shutdownTimeout
	return mgr.Add(&manager.Server{
		Name:            "endpoint",
		Server:          newServer(ctx, e.handler(guard, account)),
		Listener:        tls.NewListener(e.listener, e.handshakes.config()),
		ShutdownTimeout: &timeout,
	})
}

func newGuard(clk clock.PassiveClock, cfg *rest.Config, httpClient *http.Client) (*guard, error) {
	authentication, err := authenticationv1.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("creating authentication client: %w", err)
	}
	authorization, err := authorizationv1.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("creating authorization client: %w", err)
	}
	core, err := corev1client.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("creating client for the client CA: %w", err)
	}
	return &guard{
		tokens:   newReviews(clk),
		access:   newReviews(clk),
		asking:   make(chan struct{}, maxAsking),
		reviewer: authentication.TokenReviews(),
		accesses: authorization.SubjectAccessReviews(),
		clientCA: &clientCA{clock: clk, configMaps: core.ConfigMaps(clientCANamespace)},
	}, nil
}

func (e *endpoint) handler(guard *guard, account http.Handler) http.Handler {
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", ok)
	mux.HandleFunc("GET /readyz", ok)
	mux.Handle("GET "+MetricsPath, guard.protect(promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, // one metric that cannot be told keeps no other from being told
	})))
	mux.Handle("GET "+RolloutPath, guard.protect(account))
	mux.Handle("PUT "+retrieve.Path, &e.inbox) // whoever has the token of what is expected
	return mux
}

// newServer has limits for everything that a stranger decides, and speaks HTTP/1.1 alone: streams that are opened and
// reset at once (CVE-2023-44487) cost an HTTP/2 server more than their sender, and one client at a time needs none.
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

// quietLog takes what net/http has to say of strangers who do not speak TLS, or HTTP, well.
func quietLog(log logr.Logger) *stdlog.Logger { return stdlog.New(quietWriter{log}, "", 0) }

type quietWriter struct{ log logr.Logger }

func (w quietWriter) Write(line []byte) (int, error) {
	w.log.V(1).Info("serving a request", "error", strings.TrimSpace(string(line)))
	return len(line), nil
}
