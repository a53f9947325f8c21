//go:build linux

package cli

import (
	"cmp"
	"context"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/internal/tlsprofile"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/certificate"
	"github.com/cluster-version/cvo/pkg/kube/guard"
	"github.com/cluster-version/cvo/pkg/kube/replica"
	"github.com/cluster-version/cvo/pkg/kube/serve"
	"github.com/cluster-version/cvo/pkg/kube/telemetry"
)

// endpointOptions are the flags of the controller's endpoint.
type endpointOptions struct {
	listen, certFile, keyFile string
}

func (o *endpointOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.listen, "listen", "", "`address` of /metrics, /healthz and /readyz, over TLS; default none")
	f.StringVar(&o.certFile, "serving-cert-file", "", "`file` with the serving certificate, reloaded when it changes; default a certificate created at start")
	f.StringVar(&o.keyFile, "serving-key-file", "", "`file` with the private key of that certificate")
}

// open creates or reads the certificate and starts to listen. It returns nil if nothing is to be served.
func (o *endpointOptions) open(ctx context.Context, namespace string) (*serve.Endpoint, error) {
	return serve.Listen(ctx, clock.RealClock{}, serve.Options{
		Listen: cmp.Or(o.listen, serve.NoListener), ParseProfile: tlsprofile.Settings,
		Certificate: certificate.Options{
			CertFile: o.certFile, KeyFile: o.keyFile, Service: api.MachineConfigController, Namespace: namespace, PodIP: os.Getenv("POD_IP"),
		},
	})
}

// serveMetrics makes every replica serve its metrics to callers whom the API server authorizes, and its health to all.
func serveMetrics(ctx context.Context, r *replica.Replica, e *serve.Endpoint) error {
	if e == nil {
		return nil
	}
	guarded, err := guard.New(clock.RealClock{}, r.Manager.GetConfig(), r.Manager.GetHTTPClient(), map[string]string{serve.MetricsPath: "system:monitoring"})
	if err != nil {
		return err
	}
	return e.AddTo(ctx, r.Manager, serve.NewMux(guarded.Protect(telemetry.Handler(r.Registry))))
}
