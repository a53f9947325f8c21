package operator

import (
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cluster-version/cvo/pkg/engine/cluster"
	"github.com/cluster-version/cvo/pkg/kube/apiserver"
	"github.com/cluster-version/cvo/pkg/kube/leader"
	"github.com/cluster-version/cvo/pkg/kube/replica"
	"github.com/cluster-version/cvo/pkg/operator/handover"
)

// newReplica returns this process as a replica that competes for the operator's Lease.
func newReplica(ctx context.Context, options Options, identity leader.Identity, self *handover.Deployment) (*replica.Replica, error) {
	scheme, err := cluster.NewScheme()
	if err != nil {
		return nil, err
	}
	return replica.New(ctx, options.Config, replica.Options{
		UserAgent: "cluster-version-operator", Metrics: "operator",
		Namespace: options.Namespace, Lease: options.Name, Identity: identity, Turn: self.Turn(),
		LeaseDuration: options.LeaseDuration, RenewDeadline: options.RenewDeadline, RetryPeriod: options.RetryPeriod,
		Scheme: scheme, Cache: cluster.CacheOptions(options.Name), Log: options.Log,
	})
}

// checkServed returns an error with a remedy if the cluster does not serve a kind that the operator needs.
func checkServed(ctx context.Context, mapper meta.RESTMapper) error {
	for _, kind := range []string{"ClusterVersion", "ClusterOperator"} {
		gvk := configv1.GroupVersion.WithKind(kind)
		err := apiserver.Retry(ctx, func() error {
			_, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
			return err
		})
		switch {
		case meta.IsNoMatchError(err):
			return fmt.Errorf("the cluster does not serve %s (%w): prepare it with 'cvo install --no-operator'", gvk, err)
		case err != nil:
			return fmt.Errorf("looking up %s: %w", gvk, err)
		}
	}
	return nil
}
