// Package sources watches the cluster for the ClusterVersion reconciler and requests a reconcile for each relevant change. Settings knows
// the cluster's feature gates, Obstacles knows what blocks another minor version, and Control knows the schema of ClusterVersion and a
// requested pause. Reading these values makes no request. Two more watches call the reconciler directly: Record with the ReleaseStatus, and
// RetrievalInputs when an input of retrievals has changed. The reconciler decides what the values mean.
package sources

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/kube/watch"
)

// Sources request reconciles of the ClusterVersion for changes of other watched objects and for background work.
type Sources struct {
	Settings  *Settings
	Obstacles *Obstacles
	Control   *Control

	clock    clock.WithTicker
	name     string
	dynamic  dynamic.Interface
	metadata metadata.Interface
	// changes holds at most one request.
	changes chan event.TypedGenericEvent[client.Object]
}

// New returns the sources for the ClusterVersion with the given name. own are the operator's own options that select manifests.
func New(
	ctx context.Context, clk clock.WithTicker, mgr manager.Manager, core corev1client.CoreV1Interface, name string, own accept.Settings,
) (*Sources, error) {
	s := &Sources{clock: clk, name: name, changes: make(chan event.TypedGenericEvent[client.Object], 1)}
	var err error
	if s.dynamic, err = dynamic.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient()); err != nil {
		return nil, fmt.Errorf("creating dynamic client: %w", err)
	}
	if s.metadata, err = metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient()); err != nil {
		return nil, fmt.Errorf("creating metadata client: %w", err)
	}
	s.Settings = newSettings(logr.FromContextOrDiscard(ctx), s.dynamic, name, own)
	s.Control = newControl(clk, s.dynamic, name)
	if s.Obstacles, err = newObstacles(ctx, clk, mgr.GetCache(), core, name); err != nil {
		return nil, err
	}
	return s, nil
}

// Changed requests a reconcile for an event of the ClusterVersion or for a result of background work. A replica that does not lead keeps the
// request until it does.
func (s *Sources) Changed() {
	cv := &configv1.ClusterVersion{}
	cv.Name = s.name
	select {
	case s.changes <- event.TypedGenericEvent[client.Object]{Object: cv}:
	default: // a pending request covers this change too
	}
}

// AddController adds a controller of the ClusterVersion to the manager. It calls the reconciler after each change of the ClusterVersion and
// each request of a source.
func (s *Sources) AddController(ctx context.Context, mgr manager.Manager, reconciler reconcile.Reconciler) error {
	// The watch starts with the other caches, before the election, so a new leader reconciles at once. The controller does not start a watch
	// of its own with For, because it then checks only every 100 ms whether it has received the existing object.
	informer, err := mgr.GetCache().GetInformer(ctx, &configv1.ClusterVersion{}, cache.BlockUntilSynced(false))
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { s.Changed() },
			UpdateFunc: func(any, any) { s.Changed() },
			DeleteFunc: func(any) { s.Changed() },
		})
	}
	if err != nil {
		return fmt.Errorf("watching the ClusterVersion: %w", err)
	}
	err = watch.Controller(mgr, "clusterversion", 1).
		WatchesRawSource(s.Settings).
		WatchesRawSource(s.Obstacles).
		WatchesRawSource(source.Channel(s.changes, &handler.EnqueueRequestForObject{})).
		WatchesRawSource(s.Control).
		Complete(reconciler)
	if err != nil {
		return fmt.Errorf("setting up the controller: %w", err)
	}
	return nil
}
