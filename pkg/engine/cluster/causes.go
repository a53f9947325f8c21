package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Limits of the number of watches that only failed objects need. Watches of what objects have in common, such as their namespace or a
// webhook, come on top of those of single objects, so that many failed objects do not prevent the watch of another cause.
const (
	maxObjects = 32
	maxWatches = 2 * maxObjects
)

// Causes watches objects whose changes may repair failed applies. It implements rollout.Causes for one payload.
type Causes struct {
	watcher *observe.Watcher
	mapper  *kinds.Mapper
	// kept reports whether a scope is also watched for another reason.
	kept func(observe.Scope) bool

	mu sync.Mutex
	// watched has the scopes that each failed object waits for, and waiting the number of objects that wait for each scope.
	watched map[manifest.ID][]observe.Scope
	waiting map[observe.Scope]int
}

func newCauses(watcher *observe.Watcher, mapper *kinds.Mapper, kept func(observe.Scope) bool) *Causes {
	return &Causes{watcher: watcher, mapper: mapper, kept: kept, watched: map[manifest.ID][]observe.Scope{}, waiting: map[observe.Scope]int{}}
}

// Stamp implements rollout.Causes.
func (c *Causes) Stamp(ctx context.Context, m *manifest.Manifest, err error) rollout.Stamp {
	if err == nil {
		c.watch(m.ID(), nil)
		return nil
	}
	stamp := rollout.Stamp{}
	for _, scope := range c.watch(m.ID(), c.of(ctx, m, err)) {
		if state := c.watcher.Stamp(scope); state != "" {
			stamp[fmt.Sprint(scope)] = state
		}
	}
	return stamp
}

// of returns the scopes of the objects whose changes may repair an error: the object itself, its namespace, the objects that serve its
// kind, and the webhooks, policies and endpoints that the error names. It watches all webhook configurations, because errors name the
// webhook and not its configuration, and all policies with their bindings, because a binding may have any name.
func (c *Causes) of(ctx context.Context, m *manifest.Manifest, err error) []observe.Scope {
	gvk, namespace := m.GVK(), m.Object.GetNamespace()
	mapping, missing := c.mapper.Known(ctx, gvk)
	known := missing == nil
	if known && !mapping.Namespaced {
		namespace = ""
	}
	var scopes []observe.Scope
	if known {
		scopes = append(scopes, observe.Scope{Resource: mapping.Resource, Namespace: namespace, Name: m.Object.GetName()})
	}
	if namespace != "" {
		scopes = append(scopes, observe.Scope{Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Name: namespace})
	}
	if !clientgoscheme.Scheme.IsGroupRegistered(gvk.Group) {
		resource := mapping.Resource
		if !known {
			resource, _ = meta.UnsafeGuessKindToResource(gvk)
		}
		scopes = append(scopes, observe.Servers(resource)...)
	}
	named, service := failure.Webhook(err)
	var admission []string
	switch {
	case named:
		admission = []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"}
	case failure.IsDeniedByPolicy(err):
		admission = []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}
	}
	for _, resource := range admission {
		scopes = append(scopes, observe.Scope{
			Resource: schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource},
			Selector: observe.Everything,
		})
	}
	if service.Name != "" {
		scopes = append(scopes, observe.Scope{
			Resource: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), Namespace: service.Namespace,
			Selector: labels.Set{discoveryv1.LabelServiceName: service.Name}.String(),
		})
	}
	return scopes
}

// watch records the scopes that an object waits for, and ends watches that no object waits for. It returns the scopes without those that
// would exceed a limit.
func (c *Causes) watch(id manifest.ID, scopes []observe.Scope) []observe.Scope {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.watched[id]
	c.forget(id)
	var kept []observe.Scope
	for _, s := range scopes {
		limit := maxWatches
		if s.Namespace == id.Namespace && s.Name == id.Name {
			limit = maxObjects
		}
		if c.waiting[s] > 0 || len(c.waiting) < limit {
			kept = append(kept, s)
			c.waiting[s]++
		}
	}
	if kept != nil {
		c.watched[id] = kept
	}
	if !slices.Equal(before, kept) {
		c.end(before)
	}
	return kept
}

// forget removes an object. The caller holds the lock, and ends the watches.
func (c *Causes) forget(id manifest.ID) {
	for _, s := range c.watched[id] {
		if c.waiting[s]--; c.waiting[s] == 0 {
			delete(c.waiting, s)
		}
	}
	delete(c.watched, id)
}

// end ends the watches on the given scopes that no object waits for. The caller holds the lock.
func (c *Causes) end(scopes []observe.Scope) {
	c.watcher.Retain(func(s observe.Scope) bool {
		return !slices.Contains(scopes, s) || c.waiting[s] > 0 || c.kept(s)
	})
}

// scopes returns the scopes that objects wait for.
func (c *Causes) scopes() []observe.Scope {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.waiting))
}

// close ends all watches.
func (c *Causes) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := slices.Collect(maps.Keys(c.waiting))
	clear(c.watched)
	clear(c.waiting)
	c.end(before)
}
