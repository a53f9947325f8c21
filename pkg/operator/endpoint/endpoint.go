// Package endpoint is the operator's HTTPS endpoint, connecting the parts in pkg/kube. It serves liveness and readiness to everyone, and
// metrics and the rollout to callers whom the API server authorizes. It receives the data of retrieval Jobs. It also holds the process's
// identity in leader election, from which clients learn which certificate to expect.
package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/internal/tlsprofile"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/kube/certificate"
	"github.com/cluster-version/cvo/pkg/kube/guard"
	"github.com/cluster-version/cvo/pkg/kube/leader"
	"github.com/cluster-version/cvo/pkg/kube/serve"
	"github.com/cluster-version/cvo/pkg/kube/telemetry"
	"github.com/cluster-version/cvo/pkg/oci/retrieve"
	"github.com/cluster-version/cvo/pkg/operator/rolloutpage"
)

// Options are the settings of an Endpoint.
type Options struct {
	// Listen is the address, or serve.NoListener.
	Listen string
	// TLS restricts the accepted handshakes. It takes precedence over the cluster's TLS profile.
	TLS serve.TLS
	// CertFile and KeyFile hold the serving certificate. If they are empty, a certificate is created at the start. While the files are
	// missing and CertOptional is set, the endpoint uses a certificate from its own CA.
	CertFile, KeyFile string
	CertOptional      bool
	// Namespace is the operator's namespace. PodName and PodIP identify its pod; they are empty outside of a pod.
	Namespace, PodName, PodIP string
}

// Endpoint serves the operator's pages.
type Endpoint struct {
	// Endpoint is nil if the operator serves nothing.
	*serve.Endpoint

	// Identity is the identity of this process in leader election.
	Identity leader.Identity
	// Inbox receives the data of retrieval Jobs.
	Inbox retrieve.Inbox

	options Options
}

// Sources provide the content of the pages.
type Sources struct {
	// Metrics are the metrics of the process.
	Metrics prometheus.Gatherer
	// Snapshot returns the state of the rollout, false if there is none.
	Snapshot func() (report.Snapshot, bool)
	// Leader returns the host of the leader, empty if no replica leads.
	Leader func(ctx context.Context) (string, error)
}

// Listen creates or reads the certificate and starts to listen. The endpoint answers requests when the manager runs.
func Listen(ctx context.Context, options Options) (*Endpoint, error) {
	e := &Endpoint{options: options}
	var err error
	e.Endpoint, err = serve.Listen(ctx, clock.RealClock{}, serve.Options{
		Listen: options.Listen, TLS: options.TLS, ParseProfile: tlsprofile.Settings,
		Certificate: certificate.Options{
			CertFile: options.CertFile, KeyFile: options.KeyFile, Optional: options.CertOptional,
			Service: api.OperatorService, Namespace: options.Namespace, PodIP: options.PodIP,
		},
	})
	if err != nil {
		return nil, err
	}
	if e.Identity, err = leader.NewIdentity(options.PodName, e.Certificate().Fingerprint()); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// Serve makes the manager serve the endpoint on every replica. unfenced is the API server connection that replicas use for writes while
// they do not lead.
func (e *Endpoint) Serve(ctx context.Context, mgr manager.Manager, unfenced *rest.Config, sources Sources) error {
	if e.Endpoint == nil {
		return nil
	}
	if e.options.CertOptional {
		core, err := corev1client.NewForConfig(unfenced) // works whether or not this replica leads
		if err != nil {
			return fmt.Errorf("creating client for the serving CA: %w", err)
		}
		keeper := certificate.NewKeeper(clock.RealClock{}, core, certificate.KeeperOptions{
			Namespace: e.options.Namespace, Name: api.ServingCAName, Owner: "version operator",
		}, e.Certificate())
		if err := mgr.Add(keeper); err != nil {
			return fmt.Errorf("writing the serving CA: %w", err)
		}
	}
	guard, err := newGuard(clock.RealClock{}, mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	page := &rolloutpage.Page{Snapshot: sources.Snapshot, Elected: mgr.Elected(), Leader: sources.Leader}
	return e.AddTo(ctx, mgr, e.handler(guard, page, sources.Metrics))
}

// newGuard returns the guard of the protected paths.
func newGuard(clk clock.PassiveClock, cfg *rest.Config, httpClient *http.Client) (*guard.Guard, error) {
	return guard.New(clk, cfg, httpClient, map[string]string{
		rolloutpage.Path: "cluster-version-operator-viewer", serve.MetricsPath: "system:monitoring",
	})
}

func (e *Endpoint) handler(guard *guard.Guard, page http.Handler, metrics prometheus.Gatherer) http.Handler {
	mux := serve.NewMux(guard.Protect(telemetry.Handler(metrics)))
	mux.Handle("GET "+rolloutpage.Path, guard.Protect(page))
	mux.Handle("PUT "+retrieve.Path, &e.Inbox) // for the holder of an expected token
	return mux
}
