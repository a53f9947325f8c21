package report

import (
	"cmp"
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/internal/pointers"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/watch"
	"github.com/cluster-version/cvo/pkg/node/cluster"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// notYetSet is the pool or the config of a node that has none. The API requires a name.
const notYetSet = "not-yet-set"

// machines keeps a MachineConfigNode for each node, which belongs to the node. A released node has none. Its spec repeats the node's pool and desired config; the node's
// daemon writes its status.
type machines struct {
	client client.Client
}

func (r *machines) add(mgr manager.Manager) error {
	ofAll := handler.EnqueueRequestsFromMapFunc(r.ofAll)
	return watch.Controller(mgr, "node-machines", 1).
		For(&corev1.Node{}, builder.WithPredicates(cluster.OnChanges(func(before, after *corev1.Node) bool {
			return before.Annotations[api.DesiredConfigAnnotation] != after.Annotations[api.DesiredConfigAnnotation] ||
				pool.HasReported(before) != pool.HasReported(after) ||
				pool.IsReleased(before) != pool.IsReleased(after) ||
				!equality.Semantic.DeepEqual(before.Labels, after.Labels)
		}))).
		Owns(&mcfgv1.MachineConfigNode{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&mcfgv1.MachineConfigPool{}, ofAll, builder.WithPredicates(cluster.OnChanges(func(before, after *mcfgv1.MachineConfigPool) bool {
			return !equality.Semantic.DeepEqual(before.Spec.NodeSelector, after.Spec.NodeSelector)
		}))).
		Complete(r)
}

// ofAll requests all nodes: a changed selector may move any of them.
func (r *machines) ofAll(ctx context.Context, _ client.Object) []reconcile.Request {
	var nodes corev1.NodeList
	if err := r.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil // a cache that has synced does not fail
	}
	requests := make([]reconcile.Request, len(nodes.Items))
	for i := range nodes.Items {
		requests[i] = reconcile.Request{NamespacedName: types.NamespacedName{Name: nodes.Items[i].Name}}
	}
	return requests
}

// Reconcile implements reconcile.Reconciler.
func (r *machines) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	n := &corev1.Node{}
	if err := r.client.Get(ctx, request.NamespacedName, n); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // the garbage collector deletes what belongs to the node
	}
	if pool.IsReleased(n) {
		err := r.client.Delete(ctx, &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: n.Name}})
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !pool.HasReported(n) {
		return reconcile.Result{}, nil
	}
	var pools mcfgv1.MachineConfigPoolList
	if err := r.client.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing MachineConfigPools: %w", err)
	}
	spec := mcfgv1.MachineConfigNodeSpec{
		Node:          mcfgv1.MCOObjectReference{Name: n.Name},
		Pool:          mcfgv1.MCOObjectReference{Name: notYetSet},
		ConfigVersion: mcfgv1.MachineConfigNodeSpecMachineConfigVersion{Desired: cmp.Or(n.Annotations[api.DesiredConfigAnnotation], notYetSet)},
	}
	selectors := pool.NewSelectors(pointers.To(pools.Items))
	name, _ := selectors.Pool(n)
	isDoubtful := selectors.Doubt(name) != ""
	if name != "" && !isDoubtful {
		spec.Pool.Name = name
	}
	return reconcile.Result{}, r.write(ctx, n, spec, isDoubtful)
}

// write creates the MachineConfigNode of a node, or corrects its spec. keepsPool leaves an existing pool as it is.
func (r *machines) write(ctx context.Context, n *corev1.Node, spec mcfgv1.MachineConfigNodeSpec, keepsPool bool) error {
	existing := &mcfgv1.MachineConfigNode{}
	err := r.client.Get(ctx, client.ObjectKey{Name: n.Name}, existing)
	if apierrors.IsNotFound(err) {
		created := &mcfgv1.MachineConfigNode{ObjectMeta: metav1.ObjectMeta{Name: n.Name}, Spec: spec}
		if err := controllerutil.SetControllerReference(n, created, r.client.Scheme()); err != nil {
			return err
		}
		if err := r.client.Create(ctx, created); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating MachineConfigNode %s: %w", n.Name, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading MachineConfigNode %s: %w", n.Name, err)
	}
	if keepsPool {
		spec.Pool = existing.Spec.Pool
	}
	if existing.Spec.Pool == spec.Pool && existing.Spec.ConfigVersion == spec.ConfigVersion {
		return nil
	}
	next := existing.DeepCopy()
	next.Spec.Pool, next.Spec.ConfigVersion = spec.Pool, spec.ConfigVersion
	if err := r.client.Patch(ctx, next, client.MergeFrom(existing)); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("writing MachineConfigNode %s: %w", n.Name, err))
	}
	return nil
}
