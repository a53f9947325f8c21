package cli

import (
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
)

// versionFlags choose the ClusterVersion of a cluster.
type versionFlags struct {
	contextFlags
	name string
}

func (f *versionFlags) add(flags *pflag.FlagSet) {
	f.contextFlags.add(flags)
	flags.StringVar(&f.name, "name", envOr("CVO_NAME", api.ClusterVersionName), "`name` of the ClusterVersion")
}

// open returns a client that can also watch; agent tells the API server which command it is.
func (f *versionFlags) open(agent string) (client.WithWatch, error) {
	cfg, err := f.config()
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = agent
	cfg.WarningHandlerWithContext = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{configv1.Install, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return c, nil
}

// noClusterVersion is what the original says where there is none; scripts look for it.
const noClusterVersion = "No cluster version information available - you must be connected to an OpenShift version 4 server to fetch the current version"

// readClusterVersion reads the ClusterVersion that the flags name.
func (f *versionFlags) readClusterVersion(ctx context.Context, c client.Reader) (*configv1.ClusterVersion, error) {
	cv := &configv1.ClusterVersion{}
	switch err := c.Get(ctx, client.ObjectKey{Name: f.name}, cv); {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, fmt.Errorf("%s: there is no ClusterVersion %q", noClusterVersion, f.name)
	case err != nil:
		return nil, fmt.Errorf("reading ClusterVersion %q: %w", f.name, err)
	}
	return cv, nil
}
