// Package uninstall removes the version operator from a cluster and, on request, the objects of releases. It holds the operator's Lease, so
// that no operator writes meanwhile, and deletes each object before the objects that it needs.
package uninstall

import (
	"cmp"
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/install/lease"
	"github.com/cluster-version/cvo/pkg/install/target"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Removal is the scope of an uninstall.
type Removal struct {
	// Namespace is the operator's namespace; default api.OperatorNamespace.
	Namespace string
	// Name is the name of the ClusterVersion; default "version".
	Name string
	// Platform also removes the objects of releases.
	Platform bool
	// DeleteData also deletes volume claims, and objects that do not come from a release.
	DeleteData bool
	// Force removes the operator even during a rollout.
	Force bool
	// DryRun only reports the planned actions.
	DryRun bool
}

// Run removes the operator and, on request, the objects of releases. It checks every reason to refuse before it changes anything. It calls
// done with each result and logLine when it waits. An interrupted uninstall can be run again. A dry run during a rollout returns its
// results and a Refusal with a RolloutError.
func Run(ctx context.Context, clk clock.Clock, cfg *rest.Config, removal Removal, done func(target.Result), logLine func(string)) ([]target.Result, error) {
	removal.Namespace = cmp.Or(removal.Namespace, api.OperatorNamespace)
	removal.Name = cmp.Or(removal.Name, api.ClusterVersionName)
	c, err := target.Connect(ctx, cfg, nil)
	if err != nil {
		return nil, err
	}
	served, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	core, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	u := &remover{Cluster: c, config: cfg, lease: lease.New(clk, c, removal.Namespace, removal.Name), clock: clk, discovery: served, core: core, removal: removal, done: done, log: logLine}
	if err := u.readInstallation(ctx); err != nil {
		return nil, err
	}
	for _, step := range []struct {
		name string
		run  func(context.Context) error
		// left describes the cluster after an interruption of this step.
		left string
	}{
		{"stopping the operator", u.stop, "the operator's Deployment may be scaled down, everything else is unchanged"},
		{"removing the platform's owner references to the ClusterVersion", u.disown, scaledDown + "everything else is unchanged except for owner references of the platform"},
		{"deleting the ClusterVersion", u.clusterVersion, scaledDown + "the ClusterVersion is deleted or being deleted, the platform is unchanged except for its owner references"},
		{"deleting the platform", u.platform, scaledDown + "the ClusterVersion and a part of the platform are deleted"},
		{"deleting the operator", u.noVersion, scaledDown + "the operator's own objects exist"},
		{"deleting the operator", u.operator, "the ClusterVersion and a part of the operator are deleted"},
	} {
		if err := step.run(ctx); err != nil {
			err = fmt.Errorf("%s: %w", step.name, err)
			if u.removal.DryRun {
				return u.results, err
			}
			if err := u.lease.Release(ctx); err != nil {
				u.log(err.Error())
			}
			return u.results, &UnfinishedError{Left: step.left + u.pendingText(), Err: err}
		}
	}
	return u.results, u.rollout
}

// scaledDown describes the operators after the first step. The release of the Lease allows one outside the cluster to lead: another replica
// at once, and the leader of before once it is restarted.
const scaledDown = "no operator runs in the cluster, but one outside it may resume; "

// UnfinishedError reports an unfinished uninstall and the state that it leaves behind.
type UnfinishedError struct {
	// Left describes the state of the cluster, in a sentence without a period.
	Left string
	Err  error
}

func (e *UnfinishedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UnfinishedError) Unwrap() error { return e.Err }

// RolloutError is the reason for the refusal of an uninstall during a rollout.
type RolloutError struct {
	// Version is the version of the release that is being rolled out.
	Version string
}

func (e *RolloutError) Error() string {
	return fmt.Sprintf("release %s is being rolled out and would stay incomplete: wait for it with 'cvo upgrade wait', or use --force", e.Version)
}

// remover uninstalls an operator from a cluster.
type remover struct {
	*target.Cluster

	config    *rest.Config
	lease     *lease.Hold
	clock     clock.Clock
	discovery *discovery.DiscoveryClient
	core      corev1client.ConfigMapsGetter
	removal   Removal
	done      func(target.Result)
	log       func(string)
	results   []target.Result
	// pending are the objects of the current step that still have to be deleted, in order.
	pending []*metav1.PartialObjectMetadata

	// version is nil if the ClusterVersion no longer exists.
	version *configv1.ClusterVersion
	// rollout is the refusal during a rollout, or nil.
	rollout error
	owned   []metav1.PartialObjectMetadata
	// records maps objects to their recorded manifests.
	records map[manifest.ID]inventory.Record
	// contents are the numbers of objects by namespace and kind that no release contains; nil before a dry run needs them.
	contents map[string]map[string]int
}
