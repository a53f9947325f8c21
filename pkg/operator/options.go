package operator

import (
	"fmt"
	"io/fs"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/verify"
)

// Options are the settings of the operator process.
type Options struct {
	// Config leads to the API server.
	Config *rest.Config
	// Log receives everything.
	Log logr.Logger
	// ReleaseImage is the operator's own release.
	ReleaseImage string
	// Local holds the files of the operator's own release; nil to pull it like any other.
	Local fs.FS
	// Name of the ClusterVersion; default "version".
	Name string
	// Namespace of the Lease; default api.OperatorNamespace.
	Namespace string
	// Listen is the address of metrics, health and the account of the rollout, over TLS; "0" or empty for none.
	Listen string
	// ServingCertFile and ServingKeyFile hold the certificate to serve with, and are read again when they change; empty
	// for one that is made at start. Clients that know the fingerprint in the Lease are served the latter anyway.
	ServingCertFile, ServingKeyFile string
	// ServingCertOptional: where the files are missing, a certificate of the operator's own CA serves until they appear.
	ServingCertOptional bool
	// PodIP is the address of the pod that the operator runs in; empty outside of one.
	PodIP string
	// TLS says which handshakes are accepted, before what the cluster's TLS profile wants.
	TLS TLS
	// Access says how registries are reached, as far as it is not for the cluster's configuration to say.
	Access registry.Options
	// Images says how images are read; its Access is made from the above.
	Images image.Options
	// Retrieval is how release images are read; default from their registry.
	Retrieval Retrieval
	// Policy is the administrator's root of trust; nil to find one in the cluster, see Outside.
	Policy *verify.Policy
	// Profile, ExcludeID: see manifest.Filter.
	Profile, ExcludeID string
	// BringYourOwnNetwork: see payload.Options.
	BringYourOwnNetwork bool
	// AlwaysEnable lists capabilities that are on whatever the ClusterVersion asks for.
	AlwaysEnable []configv1.ClusterVersionCapability
	// UpdateService says which update service is asked.
	UpdateService UpdateService
	// Metrics says against what the risks of updates are evaluated.
	Metrics MetricsSource
	// PodNamespace and PodName are those of the pod that this process is; empty outside of a cluster.
	PodNamespace, PodName string
	// LeaseDuration, RenewDeadline and RetryPeriod of leader election; default DefaultLeaseDuration and so on.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// Width is how many manifests are applied at a time; default 16.
	Width int
	// Seed of the spread of retries.
	Seed uint64
}

// The times of leader election. A leader that dies without a word is replaced within 20 s whatever the moment: the lease,
// and twice the retry period with its spread of up to 120 %, once for the last look at a renewal and once for the look
// that finds the lease run out. One that ends hands over within one retry period. The Lease is written once a retry
// period, and is the only thing that is written while nothing happens.
const (
	DefaultLeaseDuration = 12 * time.Second
	DefaultRenewDeadline = 8 * time.Second
	DefaultRetryPeriod   = time.Second
)

func (o *Options) setDefaults() {
	if o.Name == "" {
		o.Name = api.ClusterVersionName
	}
	if o.Namespace == "" {
		o.Namespace = api.OperatorNamespace
	}
	if o.Listen == "" {
		o.Listen = noListener
	}
	if o.LeaseDuration == 0 {
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = DefaultLeaseDuration, DefaultRenewDeadline, DefaultRetryPeriod
	}
}

// check refuses settings that contradict each other.
func (o *Options) check() error {
	if limit := maxRetryPeriod(o.LeaseDuration); o.RetryPeriod > limit {
		return fmt.Errorf("a leader that renews every %s cannot be sure of a lease of %s between two renewals: renew at least every %s",
			o.RetryPeriod, o.LeaseDuration, limit)
	}
	return nil
}
