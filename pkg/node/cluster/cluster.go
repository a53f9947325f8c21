// Package cluster has what the processes of the node stage need to read and write a cluster: the kinds of objects, and for the controllers the
// contents of the cache, the release of the stage, the changes that matter, and the delay after a conflict.
package cluster

import (
	"context"
	"fmt"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/plan"
)

// ConflictRetry is the delay after a write that met a change of the Node which the cache did not show. The event of that change may be one that
// the controllers ignore.
const ConflictRetry = 50 * time.Millisecond

// NewScheme returns a scheme with the types that the processes read and write.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, mcfgv1.Install, configv1.Install, operatorv1.Install, api.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("preparing scheme: %w", err)
		}
	}
	return scheme, nil
}

// NewDaemonClient returns the client of a daemon, without a cache. It knows the kinds that a daemon reads and writes. Otherwise each daemon would
// request the kinds from the API server when it starts, also after each reboot.
func NewDaemonClient(cfg *rest.Config) (client.WithWatch, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Node"),
		mcfgv1.GroupVersion.WithKind("MachineConfig"),
		mcfgv1.GroupVersion.WithKind("MachineConfigNode"),
		operatorv1.GroupVersion.WithKind("MachineConfiguration"),
	} {
		mapper.Add(kind, meta.RESTScopeRoot)
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	return c, nil
}

// OtherRelease returns plan.OtherRelease for the ControllerConfig of the cluster.
func OtherRelease(ctx context.Context, c client.Reader, release string) (why string, err error) {
	config := &mcfgv1.ControllerConfig{}
	if err := c.Get(ctx, client.ObjectKey{Name: api.MachineConfigController}, config); apierrors.IsNotFound(err) {
		config = nil
	} else if err != nil {
		return "", fmt.Errorf("reading ControllerConfig %s: %w", api.MachineConfigController, err)
	}
	return plan.OtherRelease(config, release), nil
}

// OneRequest returns a handler that requests the same reconcile for every event, for a controller that looks at all objects. The request is empty.
func OneRequest() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
}

// OnChanges limits a watch to the updates that matter. Most updates of nodes are heartbeats, and most of PodDisruptionBudgets follow an eviction.
func OnChanges[T client.Object](matters func(before, after T) bool) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isBefore := e.ObjectOld.(T)
		after, isAfter := e.ObjectNew.(T)
		return !isBefore || !isAfter || matters(before, after)
	}}
}
