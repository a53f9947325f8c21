package apply

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/manifest"
)

var (
	// ErrNoMatch says that the server does not serve a kind.
	ErrNoMatch = errors.New("no match for kind")
	// ErrUnavailable says that the server knows the API that a kind belongs to, but cannot tell its kinds: an
	// extension API server is down.
	ErrUnavailable = errors.New("the API is not available for kind")
)

// Mapping tells how objects of a kind are addressed.
type Mapping struct {
	Resource   schema.GroupVersionResource
	Namespaced bool
	// Custom: a CRD of the release defines the kind.
	Custom bool
	// New: the kind was not served before, and it is not long since somebody first asked for it, so hardly anybody else
	// can have made objects of it.
	New bool
}

// Mapper finds the mapping of a kind. It returns ErrNoMatch for kinds that are not served, ErrUnavailable for those of
// which that is not known, and other errors if the server does not answer.
type Mapper interface {
	Mapping(ctx context.Context, gvk schema.GroupVersionKind) (Mapping, error)
}

// Discovery reads what a server serves; *discovery.DiscoveryClient is one.
type Discovery interface {
	ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
}

// refreshInterval bounds how often a kind that is missing has the whole discovery read again.
const refreshInterval = 500 * time.Millisecond

// DiscoveryMapper maps kinds by the CRDs of a release, which need no request, and by the server's discovery, which
// is read once (two requests, aggregated) and again when a kind is missing from it.
type DiscoveryMapper struct {
	clock     clock.PassiveClock
	discovery Discovery
	crds      map[schema.GroupVersionKind]Mapping

	reads singleflight.Group
	mu    sync.Mutex
	last  snapshot
	asked map[schema.GroupVersionKind]time.Time
}

// snapshot is what one reading of discovery brought. It is not changed once made.
type snapshot struct {
	at     time.Time
	served map[schema.GroupVersionKind]Mapping
	failed map[schema.GroupVersion]error
	err    error // nothing could be read; served is that of the snapshot before
}

// NewDiscoveryMapper returns a mapper that knows the kinds that CRDs among manifests define, and asks the server
// about all others.
func NewDiscoveryMapper(clk clock.PassiveClock, d Discovery, manifests []*manifest.Manifest) *DiscoveryMapper {
	m := &DiscoveryMapper{
		clock: clk, discovery: d, crds: map[schema.GroupVersionKind]Mapping{}, asked: map[schema.GroupVersionKind]time.Time{},
	}
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
		m.crds[gv.WithKind(kind)] = Mapping{Resource: gv.WithResource(plural), Namespaced: scope == "Namespaced", Custom: true}
	}
}

// Mapping implements Mapper. Callers that miss a kind at the same time share one read, which goes on for the others if
// ctx ends.
func (m *DiscoveryMapper) Mapping(ctx context.Context, gvk schema.GroupVersionKind) (Mapping, error) {
	if mapping, ok := m.crds[gvk]; ok {
		mapping.New = m.isNew(gvk)
		return mapping, nil
	}
	last := m.snapshot()
	if _, ok := last.served[gvk]; ok || !m.stale(last) {
		return last.mapping(gvk)
	}
	if err := m.read(ctx); err != nil {
		return Mapping{}, err
	}
	return m.snapshot().mapping(gvk)
}

// read has discovery read, once for all who ask at the same time.
func (m *DiscoveryMapper) read(ctx context.Context) error {
	background := context.WithoutCancel(ctx)
	select {
	case <-m.reads.DoChan("", func() (any, error) { m.refresh(background); return nil, nil }):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("reading discovery: %w", ctx.Err())
	}
}

// newFor is how long a kind counts as new. The API server holds a POST of a kind that is younger than two seconds.
const newFor = 10 * time.Second

// isNew reports whether a kind of the release was not served when discovery was read, and is being asked for only now.
// Without discovery that is not known.
func (m *DiscoveryMapper) isNew(gvk schema.GroupVersionKind) bool {
	last := m.snapshot()
	if _, served := last.served[gvk]; served || last.at.IsZero() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	first, asked := m.asked[gvk]
	if !asked {
		first = m.clock.Now()
		m.asked[gvk] = first
	}
	return m.clock.Since(first) < newFor
}

// Known returns the mapping of a kind as far as it is known, and reads discovery only if that was never done.
func (m *DiscoveryMapper) Known(ctx context.Context, gvk schema.GroupVersionKind) (Mapping, bool) {
	if m.snapshot().at.IsZero() {
		mapping, err := m.Mapping(ctx, gvk)
		return mapping, err == nil
	}
	if mapping, ok := m.crds[gvk]; ok {
		return mapping, true
	}
	mapping, ok := m.snapshot().served[gvk]
	return mapping, ok
}

// Served reports whether discovery, as it was read last, has a kind; CRDs of the release count only once they are served.
func (m *DiscoveryMapper) Served(ctx context.Context, gvk schema.GroupVersionKind) bool {
	if m.snapshot().at.IsZero() {
		_ = m.read(ctx)
	}
	_, ok := m.snapshot().served[gvk]
	return ok
}

func (m *DiscoveryMapper) snapshot() snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

func (m *DiscoveryMapper) stale(s snapshot) bool { return m.clock.Since(s.at) >= refreshInterval }

func (s snapshot) mapping(gvk schema.GroupVersionKind) (Mapping, error) {
	if mapping, ok := s.served[gvk]; ok {
		return mapping, nil
	}
	if s.err != nil {
		return Mapping{}, fmt.Errorf("reading discovery: %w", s.err)
	}
	if err := s.failed[gvk.GroupVersion()]; err != nil {
		return Mapping{}, fmt.Errorf("%w %q in %s: %w", ErrUnavailable, gvk.Kind, gvk.GroupVersion(), err)
	}
	return Mapping{}, fmt.Errorf("%w %q in %s", ErrNoMatch, gvk.Kind, gvk.GroupVersion())
}

// refresh reads discovery, unless a read that ended since the caller looked has done so.
func (m *DiscoveryMapper) refresh(ctx context.Context) {
	last := m.snapshot()
	if !m.stale(last) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	next := read(ctx, m.discovery, last)
	next.at = m.clock.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = next
}

// read asks the server which kinds it serves. An API that fails (its extension API server is down) leaves the rest
// usable, and keeps the kinds that were known of it.
func read(ctx context.Context, d Discovery, last snapshot) snapshot {
	_, lists, err := d.ServerGroupsAndResourcesWithContext(ctx)
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return snapshot{served: last.served, failed: last.failed, err: err}
	}
	served := map[schema.GroupVersionKind]Mapping{}
	for gvk, mapping := range last.served {
		if failed[gvk.GroupVersion()] != nil {
			served[gvk] = mapping
		}
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") { // no subresource
				served[kindOf(gv, r)] = Mapping{Resource: gv.WithResource(r.Name), Namespaced: r.Namespaced}
			}
		}
	}
	return snapshot{served: served, failed: failed}
}

// kindOf is the kind of a resource, which may be of another group and version than the resource itself.
func kindOf(gv schema.GroupVersion, r metav1.APIResource) schema.GroupVersionKind {
	if r.Group != "" {
		gv.Group = r.Group
	}
	if r.Version != "" {
		gv.Version = r.Version
	}
	return gv.WithKind(r.Kind)
}
