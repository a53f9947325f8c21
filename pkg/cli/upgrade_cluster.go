package cli

import (
	"context"
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
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
	for _, add := range []func(*runtime.Scheme) error{configv1.Install, corev1.AddToScheme, appsv1.AddToScheme} {
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

// completionTime is how long a shell waits for what the cluster has to offer.
const completionTime = 5 * time.Second

// complete offers what a ClusterVersion knows, and nothing where there is none to be read.
func (f *versionFlags) complete(cmd *cobra.Command, offer func(*configv1.ClusterVersion) []string) ([]string, cobra.ShellCompDirective) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	c, err := f.open("cvo-completion")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	cv, err := f.readClusterVersion(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return offer(cv), cobra.ShellCompDirectiveNoFileComp
}

// noClusterVersion is what the original says where there is none; scripts look for it.
const noClusterVersion = "No cluster version information available - you must be connected to an OpenShift version 4 server to fetch the current version"

// readClusterVersion reads the ClusterVersion that the flags name.
func (f *versionFlags) readClusterVersion(ctx context.Context, c client.Reader) (*configv1.ClusterVersion, error) {
	cv := &configv1.ClusterVersion{}
	switch err := c.Get(ctx, client.ObjectKey{Name: f.name}, cv); {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, fmt.Errorf("%s: there is no ClusterVersion %q", noClusterVersion, f.name)
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("reading ClusterVersion %q: %w: ask for a role that lets you, such as cluster-reader", f.name, err)
	case err != nil:
		return nil, fmt.Errorf("reading ClusterVersion %q: %w", f.name, err)
	}
	return cv, nil
}
