// Package operator runs the version operator as a process. Run creates the parts and connects them: clients, caches, leader election, the
// background work, the endpoint for views and metrics, and the stages of the ClusterVersion reconciler. It returns when the process has to
// exit. It decides nothing itself; the rules are in the packages that it connects.
package operator

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/kube/apiserver"
	"github.com/cluster-version/cvo/pkg/kube/lead"
	"github.com/cluster-version/cvo/pkg/kube/replica"
	"github.com/cluster-version/cvo/pkg/operator/endpoint"
	"github.com/cluster-version/cvo/pkg/operator/handover"
)

// Run runs the operator until ctx ends and then returns nil. If it loses the Lease, it returns an error. The cluster must have the CRDs of
// ClusterVersion and ClusterOperator.
//
// At the end, Run waits at most process.EndLimit for its parts. If a part is still running then, the log has its stacks and the error names
// it. The process has to exit when Run returns.
func Run(ctx context.Context, options Options) error {
	options.setDefaults()
	if err := lead.CheckRetryPeriod(options.LeaseDuration, options.RetryPeriod); err != nil {
		return err // before the first request, which may wait long
	}
	ctx = logr.NewContext(ctx, options.Log)
	options.Config = apiserver.Tune(options.Config)
	return replica.End(options.Log, run(ctx, options))
}

func run(ctx context.Context, options Options) error {
	end, err := endpoint.Listen(ctx, options.endpoint())
	if err != nil {
		return err
	}
	defer func() { _ = end.Close() }()
	var self *handover.Deployment
	err = apiserver.Retry(ctx, func() (err error) {
		self, err = handover.Find(ctx, options.Config, handover.Options{
			PodNamespace: options.PodNamespace, PodName: options.PodName, ClusterVersion: options.Name, ReleaseImage: options.ReleaseImage,
		})
		return err
	})
	if err != nil {
		return err
	}
	this, err := newReplica(ctx, options, end.Identity, self)
	if err != nil {
		return err
	}
	if err := checkServed(ctx, this.Manager.GetRESTMapper()); err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	slots := background.NewSlots(working)
	set := &setup{Replica: this, slots: slots, stop: stop, options: options, endpoint: end, self: self}
	if err := set.run(ctx); err != nil {
		return err
	}
	if err := this.Run(ctx, slots, stop); err != nil {
		return fmt.Errorf("running the operator: %w", err)
	}
	return nil
}

// SetLogger makes log receive the messages that controller-runtime logs without a context.
func SetLogger(log logr.Logger) { ctrl.SetLogger(log) }
