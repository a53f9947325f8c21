package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
)

// VersionFlags choose the ClusterVersion of a cluster.
type VersionFlags struct {
	ContextFlags
	Name string
}

// Add adds the flags.
func (f *VersionFlags) Add(flags *pflag.FlagSet) {
	f.ContextFlags.Add(flags)
	flags.StringVar(&f.Name, "name", command.EnvOr("CVO_NAME", api.ClusterVersionName), "`name` of the ClusterVersion")
}

// Open returns a client for the ClusterVersion and the operator. agent is described at ConfigFor.
func (f *VersionFlags) Open(agent string) (client.WithWatch, error) {
	return f.Connect(agent, configv1.Install, corev1.AddToScheme, appsv1.AddToScheme)
}

// CompletionTime is how long a shell waits for completions from the cluster.
const CompletionTime = 5 * time.Second

// CompletionContext returns a context that ends after CompletionTime.
func CompletionContext(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return context.WithTimeout(ctx, CompletionTime)
}

// Complete offers values from the ClusterVersion, or nothing if it cannot be read.
func (f *VersionFlags) Complete(cmd *cobra.Command, offer func(*configv1.ClusterVersion) []string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := CompletionContext(cmd)
	defer cancel()
	c, err := f.Open("cvo-completion")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	cv, err := f.ReadClusterVersion(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return offer(cv), cobra.ShellCompDirectiveNoFileComp
}

// NoVersionError means that a cluster has no ClusterVersion with a given name.
type NoVersionError struct {
	// Name is the name of the ClusterVersion. Context is the kubeconfig's context.
	Name, Context string
}

func (e *NoVersionError) Error() string {
	if e.Name != api.ClusterVersionName {
		return fmt.Sprintf("this cluster has no ClusterVersion %q: check --name, or select another cluster with --context (current: %s)", e.Name, e.Context)
	}
	return fmt.Sprintf("this cluster has no ClusterVersion, so no platform is installed: run 'cvo install', or select another cluster with --context (current: %s)",
		e.Context)
}

// NoVersion returns the error for a cluster without the ClusterVersion that the flags name.
func (f *VersionFlags) NoVersion() error {
	return &NoVersionError{Name: f.Name, Context: f.context()}
}

// CheckVersion returns a *NoVersionError if the cluster certainly lacks the ClusterVersion. Otherwise it returns err, the caller's own error
// or nil. An API server that did not answer the caller is not asked again, because that would only double the wait.
func (f *VersionFlags) CheckVersion(ctx context.Context, agent string, err error) error {
	if _, unanswered := errors.AsType[*url.Error](err); unanswered {
		return err
	}
	c, failure := f.Open(agent)
	if failure != nil {
		return err
	}
	_, failure = f.ReadClusterVersion(ctx, c)
	if _, missing := errors.AsType[*NoVersionError](failure); missing {
		return failure
	}
	return err
}

// ReadClusterVersion reads the ClusterVersion that the flags name. The error is a *NoVersionError if the cluster does not have it.
func (f *VersionFlags) ReadClusterVersion(ctx context.Context, c client.Reader) (*configv1.ClusterVersion, error) {
	cv := &configv1.ClusterVersion{}
	switch err := c.Get(ctx, client.ObjectKey{Name: f.Name}, cv); {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return nil, f.NoVersion()
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("reading ClusterVersion %q: %w: ask an administrator for ClusterRole cluster-version-operator-viewer", f.Name, err)
	case err != nil:
		return nil, fmt.Errorf("reading ClusterVersion %q: %w", f.Name, err)
	}
	return cv, nil
}
