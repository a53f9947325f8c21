package operator

import (
	"io/fs"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/outside"
	"github.com/cluster-version/cvo/pkg/kube/serve"
	"github.com/cluster-version/cvo/pkg/oci/retrieve"
	"github.com/cluster-version/cvo/pkg/operator/endpoint"
	"github.com/cluster-version/cvo/pkg/update/metrics"
	"github.com/cluster-version/cvo/pkg/update/service"
)

// Options are the settings of the operator process.
type Options struct {
	// Config is the configuration of clients for the API server.
	Config *rest.Config
	// Version is the version of this program.
	Version string
	// Log receives all messages.
	Log logr.Logger
	// ReleaseImage is the image of the operator's own release.
	ReleaseImage string
	// Local has the files of the operator's own release; nil to pull it like any other release.
	Local fs.FS
	// Name is the name of the ClusterVersion; default "version".
	Name string
	// Namespace is the namespace of the Lease; default api.OperatorNamespace.
	Namespace string
	// Listen is the TLS address that serves metrics, health and the rollout; "0" or empty for none.
	Listen string
	// ServingCertFile and ServingKeyFile hold the serving certificate and are reloaded when they change. If they are empty, a certificate
	// is created at the start. Clients that know the fingerprint in the Lease always get the created certificate.
	ServingCertFile, ServingKeyFile string
	// ServingCertOptional makes the operator use a certificate of its own CA while the files are missing.
	ServingCertOptional bool
	// PodIP is the address of the operator's pod; empty outside of a pod.
	PodIP string
	// NodeName is the node of the operator's pod; empty outside of a pod.
	NodeName string
	// TLS restricts the accepted handshakes. It takes precedence over the cluster's TLS profile.
	TLS serve.TLS
	// Outside configures the access to release images and their signatures.
	Outside outside.Options
	// Retrieval is the method of reading release images; default retrieve.FromRegistry.
	Retrieval retrieve.Method
	// Settings are the operator's own settings that select manifests.
	Settings accept.Settings
	// UpdateService configures the requests to the update service.
	UpdateService service.Options
	// Metrics configures the Prometheus that evaluates the risks of updates.
	Metrics metrics.Source
	// PodNamespace and PodName identify the pod of this process; empty outside of a cluster.
	PodNamespace, PodName string
	// LeaseDuration, RenewDeadline and RetryPeriod configure leader election; the defaults are lead.DefaultLeaseDuration and so on.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Seed is the seed of the random numbers that spread retries and requests over time.
	Seed uint64
}

func (o *Options) setDefaults() {
	if o.Name == "" {
		o.Name = api.ClusterVersionName
	}
	if o.Namespace == "" {
		o.Namespace = api.OperatorNamespace
	}
	if o.Listen == "" {
		o.Listen = serve.NoListener
	}
}

// endpoint returns the settings of the endpoint.
func (o *Options) endpoint() endpoint.Options {
	return endpoint.Options{
		Listen: o.Listen, TLS: o.TLS, CertFile: o.ServingCertFile, KeyFile: o.ServingKeyFile, CertOptional: o.ServingCertOptional,
		Namespace: o.Namespace, PodName: o.PodName, PodIP: o.PodIP,
	}
}
