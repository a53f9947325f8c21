// Package cluster connects the engine to one cluster, for one payload. Observer answers from the state that watches have delivered. Gated
// keeps this state for kinds with a gate. Causes watches objects whose changes may repair a failed apply. Applier injects the cluster's
// configuration into manifests. They implement the interfaces of package rollout, which has no client.
package cluster

import (
	"context"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/clusterconfig"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/body"
	"github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Owner returns the owner of the objects that belong to this ClusterVersion. namespace is the operator's namespace.
func Owner(cv *configv1.ClusterVersion, namespace string) body.Owner {
	return body.Owner{Name: cv.Name, UID: cv.UID, ApplySet: inventory.ApplySetID(namespace, cv.Name)}
}

// Values are the parts of a cluster that are written into manifests.
type Values struct {
	// Owner is the ClusterVersion that owns the objects.
	Owner body.Owner
	// Injection is the part of the cluster's configuration that manifests request.
	Injection inject.Values
}

// ReadValues returns the values for the objects of a ClusterVersion. namespace is the operator's namespace.
func ReadValues(ctx context.Context, reader client.Reader, cv *configv1.ClusterVersion, namespace string) (Values, error) {
	injection, err := Injection(ctx, reader)
	return Values{Owner: Owner(cv, namespace), Injection: injection}, err
}

// Injection reads the parts of the cluster's configuration that are injected into manifests. Missing objects inject nothing.
func Injection(ctx context.Context, reader client.Reader) (inject.Values, error) {
	proxy, err := clusterconfig.Get(ctx, reader, &configv1.Proxy{})
	if err != nil {
		return inject.Values{}, err
	}
	server, err := clusterconfig.Get(ctx, reader, &configv1.APIServer{})
	if err != nil {
		return inject.Values{}, err
	}
	infrastructure, err := clusterconfig.Get(ctx, reader, &configv1.Infrastructure{})
	if err != nil {
		return inject.Values{}, err
	}
	return inject.FromCluster(proxy, server, infrastructure)
}

// Access gives the engine access to the cluster for one payload.
type Access struct {
	Observer *Observer
	Causes   *Causes
	Applier  *Applier
}

// New returns the access for a payload's manifests. The given applier injects nothing.
func New(
	gated *Gated, watcher *observe.Watcher, mapper *kinds.Mapper, applier *apply.Applier, reader client.Reader,
	manifests []*manifest.Manifest,
) *Access {
	observer := newObserver(gated, watcher, mapper)
	return &Access{
		Observer: observer,
		Causes:   newCauses(watcher, mapper, observer.uses),
		Applier:  newApplier(applier, observer, reader, manifests),
	}
}

// Retain ends watches that neither the payload nor its failures need.
func (a *Access) Retain() { a.Observer.retain(a.Causes) }

// Close ends the watches on possible causes of failures.
func (a *Access) Close() { a.Causes.close() }

// Names returns the names of all objects in manifests, both with and without their namespaces, because a manifest of a cluster-scoped kind
// may also have a namespace.
func Names(manifests []*manifest.Manifest) observe.Names {
	names := make(observe.Names, 2*len(manifests))
	for _, m := range manifests {
		names[types.NamespacedName{Namespace: m.Object.GetNamespace(), Name: m.Object.GetName()}] = true
		names[types.NamespacedName{Name: m.Object.GetName()}] = true
	}
	return names
}
