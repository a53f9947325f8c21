package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// ErrNoMatch says that the server does not serve a kind.
var ErrNoMatch = errors.New("no match for kind")

// Mapping tells how objects of a kind are addressed.
type Mapping struct {
	Resource   schema.GroupVersionResource
	Namespaced bool
}

// Mapper finds the mapping of a kind. It returns ErrNoMatch for kinds that are not served.
type Mapper interface {
	Mapping(ctx context.Context, gvk schema.GroupVersionKind) (Mapping, error)
}

// refreshInterval bounds how often a kind that is missing has the whole discovery read again.
const refreshInterval = 500 * time.Millisecond

// DiscoveryMapper maps kinds by the CRDs of a release, which need no request, and by the server's discovery, which
// is read once (two requests, aggregated) and again when a kind is missing from it.
type DiscoveryMapper struct {
	clock     clock.PassiveClock
	discovery discovery.DiscoveryInterface
	crds      map[schema.GroupVersionKind]Mapping

	reads   singleflight.Group
	mu      sync.Mutex
	served  map[schema.GroupVersionKind]Mapping
	readAt  time.Time
	readErr error
}

// NewDiscoveryMapper returns a mapper that knows the kinds that CRDs among manifests define, and asks the server
// about all others.
func NewDiscoveryMapper(clk clock.PassiveClock, d discovery.DiscoveryInterface, manifests []*manifest.Manifest) *DiscoveryMapper {
	m := &DiscoveryMapper{clock: clk, discovery: d, crds: map[schema.GroupVersionKind]Mapping{}}
	for _, man := range manifests {
		if man.Is("apiextensions.k8s.io", "CustomResourceDefinition") && !man.Tombstone() {
			m.addCRD(man.Object)
		}
	}
	return m
}

func (m *DiscoveryMapper) addCRD(crd *unstructured.Unstructured) {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	scope, _, _ := unstructured.NestedString(crd.Object, "spec", "scope")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		entry, _ := v.(map[string]any)
		name, _ := entry["name"].(string)
		if served, _ := entry["served"].(bool); !served {
			continue
		}
		gv := schema.GroupVersion{Group: group, Version: name}
		m.crds[gv.WithKind(kind)] = Mapping{Resource: gv.WithResource(plural), Namespaced: scope == "Namespaced"}
	}
}

// Mapping implements Mapper. Callers that miss a kind at the same time share one read.
func (m *DiscoveryMapper) Mapping(_ context.Context, gvk schema.GroupVersionKind) (Mapping, error) {
	if mapping, ok := m.crds[gvk]; ok {
		return mapping, nil
	}
	if mapping, ok, stale := m.lookup(gvk); ok || !stale {
		return found(mapping, ok, gvk, nil)
	}
	_, _, _ = m.reads.Do("", func() (any, error) { m.read(); return nil, nil })
	mapping, ok, _ := m.lookup(gvk)
	m.mu.Lock()
	err := m.readErr
	m.mu.Unlock()
	return found(mapping, ok, gvk, err)
}

func found(mapping Mapping, ok bool, gvk schema.GroupVersionKind, err error) (Mapping, error) {
	switch {
	case ok:
		return mapping, nil
	case err != nil:
		return Mapping{}, fmt.Errorf("%w %q in %s: reading discovery: %w", ErrNoMatch, gvk.Kind, gvk.GroupVersion(), err)
	}
	return Mapping{}, fmt.Errorf("%w %q in %s", ErrNoMatch, gvk.Kind, gvk.GroupVersion())
}

func (m *DiscoveryMapper) lookup(gvk schema.GroupVersionKind) (mapping Mapping, ok, stale bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mapping, ok = m.served[gvk]
	return mapping, ok, m.clock.Since(m.readAt) >= refreshInterval
}

// read asks the server which kinds it serves. A part of discovery that fails (an aggregated API that is down)
// leaves the rest usable.
func (m *DiscoveryMapper) read() {
	_, lists, err := m.discovery.ServerGroupsAndResources()
	served := map[schema.GroupVersionKind]Mapping{}
	for _, list := range lists {
		gv, parseErr := schema.ParseGroupVersion(list.GroupVersion)
		if parseErr != nil {
			continue
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue
			}
			target := gv
			if r.Group != "" || r.Version != "" {
				target = schema.GroupVersion{Group: r.Group, Version: r.Version}
			}
			served[target.WithKind(r.Kind)] = Mapping{Resource: target.WithResource(r.Name), Namespaced: r.Namespaced}
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil || len(served) > 0 {
		m.served = served
	}
	m.readErr, m.readAt = err, m.clock.Now()
}
