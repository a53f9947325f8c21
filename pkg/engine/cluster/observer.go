package cluster

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Observer answers from the state that watches have delivered. For kinds with a gate, the state is the part of an object that the gate
// reads. For all other kinds it is the metadata. It implements rollout.Observer for one payload.
type Observer struct {
	gated   *Gated
	watcher *observe.Watcher
	mapper  *kinds.Mapper

	mu   sync.Mutex
	used map[observe.Scope]bool
	// unserved maps each kind that is not served to the error that reported it.
	unserved map[schema.GroupVersionKind]error
}

func newObserver(gated *Gated, watcher *observe.Watcher, mapper *kinds.Mapper) *Observer {
	return &Observer{gated: gated, watcher: watcher, mapper: mapper, used: map[observe.Scope]bool{}, unserved: map[schema.GroupVersionKind]error{}}
}

// Object implements rollout.Observer.
func (o *Observer) Object(id manifest.ID) gate.Object { return o.gated.object(id) }

// Look implements rollout.Observer.
func (o *Observer) Look(ctx context.Context, m *manifest.Manifest, byName bool) observe.Look {
	mapping, err := o.mapper.Known(ctx, m.GVK())
	if other, ok := kinds.OtherVersion(err); ok && m.Tombstone() {
		mapping, err = other, nil
	} else if err != nil && m.Tombstone() {
		if mapping, err = o.find(ctx, m.GVK()); kinds.IsNoMatch(err) {
			return observe.Look{Synced: true} // the kind does not exist, so the object does not exist
		}
	}
	if err != nil {
		return observe.Look{Unserved: kinds.IsNoMatch(err)}
	}
	scope, namespace, name := observe.Scope{Resource: mapping.Resource}, "", m.Object.GetName()
	if mapping.Namespaced {
		namespace = m.Object.GetNamespace()
	}
	// The operator may read only the Secrets that it applies, so each has its own watch.
	if byName || mapping.Resource.GroupResource() == corev1.Resource("secrets") {
		scope.Namespace, scope.Name = namespace, name
	}
	o.use(scope)
	return o.watcher.Look(scope, namespace, name)
}

// find returns the mapping of a tombstone's kind in any served version. It reads discovery at most once per payload for a kind that is not
// served, and afterwards returns the same error. Look finds such a kind once another caller has refreshed discovery.
func (o *Observer) find(ctx context.Context, gvk schema.GroupVersionKind) (kinds.Mapping, error) {
	o.mu.Lock()
	err := o.unserved[gvk]
	o.mu.Unlock()
	if err != nil {
		return kinds.Mapping{}, err
	}
	mapping, err := o.mapper.AnyVersion(ctx, gvk)
	if kinds.IsNoMatch(err) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.unserved[gvk] = err
	}
	return mapping, err
}

func (o *Observer) use(scope observe.Scope) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.used[scope] = true
}

// uses reports whether the payload has used a scope.
func (o *Observer) uses(scope observe.Scope) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.used[scope]
}

// retain ends watches that neither the payload nor its failures need.
func (o *Observer) retain(failed *Causes) {
	wanted := failed.scopes()
	o.watcher.Retain(func(scope observe.Scope) bool { return o.uses(scope) || slices.Contains(wanted, scope) })
}
