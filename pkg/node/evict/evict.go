// Package evict cordons, drains and releases nodes at the request of their daemons, and shows the progress in the nodes' conditions. Package
// drain decides; this package reads the objects and writes the results. The requests and their answers are in the objects, so a new leader
// continues. What is only in memory saves requests and repeated waits.
package evict

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/watch"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/pkg/node/controlplane"
	"github.com/cluster-version/cvo/pkg/node/drain"
	"github.com/cluster-version/cvo/pkg/node/plan"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// DefaultPerSecond is the default of Options.PerSecond.
const DefaultPerSecond = 50

// Options configure the controller.
type Options struct {
	// PerSecond limits the evictions of all nodes together, because each one is a write to etcd and starts a pod elsewhere. The default is
	// DefaultPerSecond. A negative number is no limit.
	PerSecond int
	// Pod is the pod of this process. If it and the pods of its ReplicaSet can run on no other node, they are not evicted: the process is needed
	// to complete the drain. Empty if the process does not run in a pod.
	Pod client.ObjectKey
}

func (o Options) limiter() flowcontrol.RateLimiter {
	most := cmp.Or(o.PerSecond, DefaultPerSecond)
	if most < 0 {
		return flowcontrol.NewFakeAlwaysRateLimiter()
	}
	return flowcontrol.NewTokenBucketRateLimiter(float32(most), most)
}

// nodeName is the index of pods by their nodes.
const nodeName = "spec.nodeName"

// Add adds the controller to a manager whose scheme cluster.NewScheme returned. It begins when the cache has caught up, and runs until ctx ends. guard
// decides whether a control-plane node may be cordoned.
func Add(
	ctx context.Context, mgr manager.Manager, caughtUp *watch.CatchUp, guard *controlplane.Guard, clk clock.PassiveClock, recorder record.EventRecorder, o Options,
) error {
	return add(ctx, mgr, caughtUp, guard, clk, recorder, o, o.limiter())
}

func add(
	ctx context.Context, mgr manager.Manager, caughtUp *watch.CatchUp, guard *controlplane.Guard, clk clock.PassiveClock, recorder record.EventRecorder, o Options,
	limit flowcontrol.RateLimiter,
) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, nodeName, func(o client.Object) []string {
		pod, ok := o.(*corev1.Pod)
		if !ok || pod.Spec.NodeName == "" {
			return nil
		}
		return []string{pod.Spec.NodeName}
	})
	if err != nil {
		return fmt.Errorf("indexing pods by node: %w", err)
	}
	core, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	shared := newPace(limit)
	for _, isControlPlane := range []bool{true, false} {
		if err := newDrains(isControlPlane, mgr.GetClient(), mgr.GetAPIReader(), core.RESTClient(), guard, clk, recorder, shared, o.Pod).add(mgr, caughtUp); err != nil {
			return err
		}
	}
	return nil
}

func (r *drains) add(mgr manager.Manager, caughtUp *watch.CatchUp) error {
	name, workers := "node-drains", drainWorkers
	if r.isControlPlane {
		name, workers = "node-drains-control-plane", 1 // two nodes must not be cordoned at the same time
	}
	return watch.Controller(mgr, name, workers).
		For(&corev1.Node{}, builder.WithPredicates(cluster.OnChanges(mattersToDrain), predicate.NewPredicateFuncs(r.serves))).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.ofWaiting), builder.WithPredicates(cluster.OnChanges(freesSlot))).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofPod)).
		Watches(&api.NodeRolloutPolicy{}, handler.EnqueueRequestsFromMapFunc(r.policyChanged), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&policyv1.PodDisruptionBudget{}, handler.EnqueueRequestsFromMapFunc(r.budgetChanged), builder.WithPredicates(cluster.OnChanges(plan.Frees))).
		Complete(caughtUp.Delay(r))
}

// ofPod requests the node of a pod if its drain is pending. Most pods change on other nodes.
func (r *drains) ofPod(ctx context.Context, o client.Object) []reconcile.Request {
	pod, ok := o.(*corev1.Pod)
	n := &corev1.Node{}
	if !ok || r.client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, n, client.UnsafeDisableDeepCopy) != nil || !r.serves(n) || !drain.IsPending(n) {
		return nil
	}
	return requestFor(n.Name)
}

// serves reports whether a node belongs to the queue. A node whose role changes may be in both until it is drained, which costs one request for
// each pod.
func (r *drains) serves(o client.Object) bool {
	n, ok := o.(*corev1.Node)
	return ok && pool.IsControlPlaneNode(n) == r.isControlPlane
}

// freesSlot reports whether pods can start on a node again.
func freesSlot(before, after *corev1.Node) bool { return pool.IsBusy(before) && !pool.IsBusy(after) }

// mattersToDrain reports whether a change of a node may change its drain.
func mattersToDrain(before, after *corev1.Node) bool {
	return before.Spec.Unschedulable != after.Spec.Unschedulable ||
		!equality.Semantic.DeepEqual(before.Annotations, after.Annotations) ||
		!equality.Semantic.DeepEqual(drain.Described(before), drain.Described(after))
}
