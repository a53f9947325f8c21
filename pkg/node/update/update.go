// Package update is the controller of the node stage. It renders the MachineConfigs of each pool, assigns the result to nodes as far as the
// pool and PodDisruptionBudgets allow, drains and releases nodes at the request of their daemons, and reports in the pool's status. Packages
// config, pool, plan and drain decide; this package reads the objects and writes the results. The state of an update is in the objects, so a
// new leader continues. What is only in memory saves requests and repeated waits.
package update

import (
	"cmp"
	"context"
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/kube/events"
	"github.com/cluster-version/cvo/pkg/node/config"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// Defaults of Options.
const (
	DefaultSettle = 5 * time.Second
	DefaultRetry  = 30 * time.Second
)

// Options configure the controller.
type Options struct {
	// Version is the controller's version. Release is the version of the release that contains the controller. Both are recorded in
	// rendered MachineConfigs.
	Version, Release string
	// OSImage is the release's image of the operating system, by pullspec; empty if it has none.
	OSImage string
	// Config has the rules for MachineConfigs.
	Config config.Options
	// WaitForReady is an option of the pools' status; see pool.StatusOptions.
	WaitForReady bool
	// Settle is the time without changes before MachineConfigs are rendered, so that a burst of changes updates each node once. The default
	// is DefaultSettle.
	Settle time.Duration
	// Retry is the delay before a refused eviction is requested again, unless its budget changes earlier. The default is DefaultRetry.
	Retry time.Duration
}

// NewScheme returns a scheme with the types that the controller and the daemon read and write.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, mcfgv1.Install} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("preparing scheme: %w", err)
		}
	}
	return scheme, nil
}

// nodeName is the index of pods by their nodes.
const nodeName = "spec.nodeName"

// Add adds the controllers to a manager whose scheme NewScheme returned. They run until ctx ends.
func Add(ctx context.Context, mgr manager.Manager, clk clock.PassiveClock, o Options) error {
	o.Settle, o.Retry = cmp.Or(o.Settle, DefaultSettle), cmp.Or(o.Retry, DefaultRetry)
	recorder, err := events.NewRecorder(mgr, "machineconfigcontroller")
	if err != nil {
		return err
	}
	err = mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, nodeName, func(o client.Object) []string {
		pod, ok := o.(*corev1.Pod)
		if !ok || pod.Spec.NodeName == "" {
			return nil
		}
		return []string{pod.Spec.NodeName}
	})
	if err != nil {
		return fmt.Errorf("indexing pods by node: %w", err)
	}
	if err := newPools(mgr.GetClient(), mgr.GetAPIReader(), clk, recorder, o).add(ctx, mgr); err != nil {
		return err
	}
	core, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	return newDrains(mgr.GetClient(), core.RESTClient(), clk, recorder, o).add(mgr)
}

// all is the only request of the controller of pools: a node can move between pools, so it looks at all of them.
var all = handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })

func (r *pools) add(ctx context.Context, mgr manager.Manager) error {
	if err := r.planner.add(ctx, mgr); err != nil {
		return err
	}
	return builder.ControllerManagedBy(mgr).Named("node-pools").
		Watches(&mcfgv1.MachineConfigPool{}, all).
		Watches(&mcfgv1.MachineConfig{}, all).
		Watches(&corev1.Node{}, all, builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			before, wasNode := e.ObjectOld.(*corev1.Node)
			after, isNode := e.ObjectNew.(*corev1.Node)
			return !wasNode || !isNode || matters(before, after)
		}})).
		Watches(&policyv1.PodDisruptionBudget{}, handler.EnqueueRequestsFromMapFunc(r.budgetChanged)).
		Complete(r)
}

// matters reports whether a change of a node may change its pool.
func matters(before, after *corev1.Node) bool {
	return pool.IsReady(before) != pool.IsReady(after) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Annotations, after.Annotations) ||
		!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints)
}

func (r *drains) add(mgr manager.Manager) error {
	ofPod := func(_ context.Context, o client.Object) []reconcile.Request {
		pod, ok := o.(*corev1.Pod)
		if !ok || pod.Spec.NodeName == "" {
			return nil
		}
		return requestFor(pod.Spec.NodeName)
	}
	return builder.ControllerManagedBy(mgr).Named("node-drains").
		For(&corev1.Node{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(ofPod)).
		Watches(&policyv1.PodDisruptionBudget{}, handler.EnqueueRequestsFromMapFunc(r.budgetChanged)).
		WithOptions(controller.Options{MaxConcurrentReconciles: drainWorkers}).
		Complete(r)
}
