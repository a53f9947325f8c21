// Package update renders the MachineConfigs of each pool, requests that nodes stage the result, assigns it to nodes as far as the pool and
// PodDisruptionBudgets allow, and reports in the pool's status. Packages config, pool and plan decide; this package reads the objects and writes
// the results. The state of an update is in the objects, so a new leader continues. What is only in memory saves requests and repeated waits.
package update

import (
	"cmp"
	"context"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/watch"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/pkg/node/controlplane"
	"github.com/cluster-version/cvo/pkg/node/drain"
	"github.com/cluster-version/cvo/pkg/node/plan"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// DefaultSettle is the default of Options.Settle.
const DefaultSettle = 5 * time.Second

// Options configure the controller.
type Options struct {
	// Version is the controller's version. Release is the version of the release that contains the controller. Both are recorded in
	// rendered MachineConfigs.
	Version, Release string
	// OSImage is the release's image of the operating system, by pullspec; empty if it has none.
	OSImage string
	// WaitForReady is an option of the pools' status; see pool.StatusOptions.
	WaitForReady bool
	// Settle is the time without changes before MachineConfigs are rendered, so that a burst of changes updates each node once. The default
	// is DefaultSettle.
	Settle time.Duration
	// Pod is the pod of this process. Its node is updated last in the control plane. Empty if the process does not run in a pod.
	Pod client.ObjectKey
	// Metrics answers the queries about the health of pools. It is required if a pool has one.
	Metrics Metrics
}

// Add adds the controller to a manager whose scheme cluster.NewScheme returned. It begins when the cache has caught up, and runs until ctx ends.
func Add(
	ctx context.Context, mgr manager.Manager, caughtUp *watch.CatchUp, guard *controlplane.Guard, clk clock.PassiveClock, recorder record.EventRecorder, o Options,
) error {
	o.Settle = cmp.Or(o.Settle, DefaultSettle)
	return newPools(mgr.GetClient(), guard, clk, recorder, o).add(ctx, mgr, caughtUp)
}

func (r *pools) add(ctx context.Context, mgr manager.Manager, caughtUp *watch.CatchUp) error {
	if err := r.planner.add(ctx, mgr); err != nil {
		return err
	}
	roles, err := r.access.changes(mgr)
	if err != nil {
		return err
	}
	jobs, err := r.jobs.Events(mgr)
	if err != nil {
		return err
	}
	all := cluster.OneRequest() // a node can move between pools
	return watch.Controller(mgr, "node-pools", 1).
		Watches(&mcfgv1.MachineConfigPool{}, all).
		Watches(&mcfgv1.MachineConfig{}, all).
		Watches(&mcfgv1.KubeletConfig{}, all).
		Watches(&mcfgv1.ControllerConfig{}, all).
		Watches(&api.NodeRolloutPolicy{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&mcfgv1.MachineConfigNode{}, all, builder.WithPredicates(cluster.OnChanges(mattersToStaging))).
		Watches(&corev1.Node{}, all, builder.WithPredicates(cluster.OnChanges(r.mattersToPools))).
		Watches(&policyv1.PodDisruptionBudget{}, handler.EnqueueRequestsFromMapFunc(r.waitEnds), builder.WithPredicates(cluster.OnChanges(plan.Frees))).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.waitEnds)).
		WatchesRawSource(roles).
		WatchesRawSource(r.queries.events()).
		WatchesRawSource(jobs).
		Complete(caughtUp.Delay(r))
}

// mattersToPools reports whether a change of a node may change its pool.
func mattersToPools(before, after *corev1.Node) bool {
	_, wasBlocked := drain.InProgress(before)
	_, isBlocked := drain.InProgress(after)
	return pool.IsReady(before) != pool.IsReady(after) || wasBlocked != isBlocked ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Annotations, after.Annotations) ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints)
}
