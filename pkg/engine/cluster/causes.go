package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// maxCauses is the maximum number of failed objects for which watches are opened. For the others, only causes that they share with these
// count, such as the namespace or a webhook.
const maxCauses = 32

// Causes watches objects whose changes may repair failed applies. It implements rollout.Causes for one payload.
type Causes struct {
	watcher *observe.Watcher
	mapper  *kinds.Mapper
	// kept reports whether a scope is also watched for another reason.
	kept func(observe.Scope) bool

	mu      sync.Mutex
	watched map[manifest.ID][]observe.Scope
}

// Stamp implements rollout.Causes.
func (c *Causes) Stamp(ctx context.Context, m *manifest.Manifest, err error) rollout.Stamp {
	if err == nil {
		c.watch(m.ID(), nil)
		return rollout.Stamp{}
	}
	scopes := c.watch(m.ID(), c.of(ctx, m, err))
	stamp := rollout.Stamp{Objects: fmt.Sprint(scopes)}
	var all strings.Builder
	for _, scope := range scopes {
		state := c.watcher.Stamp(scope)
		if state == "" {
			return stamp
		}
		all.WriteString(state)
	}
	stamp.State = all.String()
	return stamp
}

// of returns the scopes of the objects whose changes may repair an error: the object itself, its namespace, the objects that serve its
// kind, and the webhooks and endpoints that the error names. It watches all webhook configurations, because errors name the webhook and not
// its configuration.
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
	if named {
		for _, resource := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
			scopes = append(scopes, observe.Scope{
				Resource: schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource},
				Selector: observe.Everything,
			})
		}
	}
	if service.Name != "" {
		scopes = append(scopes, observe.Scope{
			Resource: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), Namespace: service.Namespace,
			Selector: labels.Set{discoveryv1.LabelServiceName: service.Name}.String(),
		})
	}
	return scopes
}

// watch records the scopes that an object waits for, and ends watches that no object waits for. It returns the scopes. If too many other
// objects are waiting, it records nothing, and returns only the scopes that one of them waits for.
func (c *Causes) watch(id manifest.ID, scopes []observe.Scope) []observe.Scope {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.watched[id]
	if before == nil && len(c.watched) >= maxCauses {
		shared := c.all()
		return slices.DeleteFunc(scopes, func(s observe.Scope) bool { return !slices.Contains(shared, s) })
	}
	if slices.Equal(before, scopes) {
		return scopes
	}
	if scopes == nil {
		delete(c.watched, id)
	} else {
		c.watched[id] = scopes
	}
	c.end(before)
	return scopes
}

// end ends the watches on the given scopes that no object waits for. The caller holds the lock.
func (c *Causes) end(scopes []observe.Scope) {
	wanted := c.all()
	c.watcher.Retain(func(s observe.Scope) bool {
		return !slices.Contains(scopes, s) || slices.Contains(wanted, s) || c.kept(s)
	})
}

// all returns the scopes that objects wait for. The caller holds the lock.
func (c *Causes) all() []observe.Scope {
	return slices.Concat(slices.Collect(maps.Values(c.watched))...)
}

// scopes returns the scopes that objects wait for.
func (c *Causes) scopes() []observe.Scope {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all()
}

// close ends all watches.
func (c *Causes) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.all()
	clear(c.watched)
	c.end(before)
}
