// Package kinds finds the resource of a kind: in the CRDs of a release, without a request, or in the server's discovery, which it reads
// once and again when a kind is missing. It distinguishes a kind that is not served from an extension API server that is down.
package kinds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/internal/memo"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/manifest/definition"
)

var (
	// ErrNoMatch means that the server does not serve a kind.
	ErrNoMatch = errors.New("no match for kind")
	// ErrUnavailable means that the server has the API of a kind but cannot list the API's kinds, because an extension API server is down.
	ErrUnavailable = errors.New("the API is not available for kind")
)

// otherVersionError is an ErrNoMatch for a kind that the server serves in another version only.
type otherVersionError struct {
	kind   schema.GroupVersionKind
	served Mapping
}

func (e *otherVersionError) Error() string {
	return fmt.Sprintf("%v %q in %s, only in %s", ErrNoMatch, e.kind.Kind, e.kind.GroupVersion(), e.served.Resource.Version)
}

// Unwrap returns ErrNoMatch.
func (e *otherVersionError) Unwrap() error { return ErrNoMatch }

// Mapping is the resource of a kind.
type Mapping struct {
	Resource   schema.GroupVersionResource
	Namespaced bool
	// Replicas is the path of the field that the kind's scale subresource writes, such as ".spec.replicas"; empty if it has none.
	Replicas string
	// New means that the kind was not served before and was requested for the first time only recently, so other clients are unlikely to
	// have created objects of it.
	New bool
}

// IsNoMatch reports whether an error means that the server does not serve a kind.
func IsNoMatch(err error) bool { return meta.IsNoMatchError(err) || errors.Is(err, ErrNoMatch) }

// Discovery reads the kinds that a server serves. *discovery.DiscoveryClient implements it.
type Discovery interface {
	ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
}

// readTimeout limits one read of discovery.
const readTimeout = 30 * time.Second

// DefaultReplicas is the path in all built-in kinds with a scale subresource. Discovery does not contain the path, but most other kinds
// have the same.
const DefaultReplicas = ".spec.replicas"

// refreshInterval is the minimum time between two reads of discovery because of a missing kind.
const refreshInterval = 500 * time.Millisecond

// Mapper maps kinds to resources. It uses the CRDs of a release, without a request, and the server's discovery, which it reads once (two
// requests, aggregated) and again when a kind is missing.
type Mapper struct {
	clock     clock.PassiveClock
	discovery Discovery
	crds      map[schema.GroupVersionKind]Mapping
	last      memo.Last[snapshot]

	mu    sync.Mutex
	asked map[schema.GroupVersionKind]time.Time
}

// snapshot is the immutable result of one read of discovery.
type snapshot struct {
	at time.Time
	// served is nil until a read has succeeded.
	served map[schema.GroupVersionKind]Mapping
	// preferred contains each kind in the version that the server prefers.
	preferred map[schema.GroupKind]Mapping
	failed    map[schema.GroupVersion]error
	err       error // reading failed; the rest, except at, is from the previous snapshot
}

// NewMapper returns a mapper that takes the kinds of CRDs from manifests and asks the server for all other kinds.
func NewMapper(clk clock.PassiveClock, d Discovery, manifests []*manifest.Manifest) *Mapper {
	m := &Mapper{
		clock: clk, discovery: d, crds: map[schema.GroupVersionKind]Mapping{}, asked: map[schema.GroupVersionKind]time.Time{},
	}
	for _, man := range manifests {
		if kind, ok := man.Defines(); ok && !man.Tombstone() {
			m.addCRD(kind, man.Object)
		}
	}
	return m
}

func (m *Mapper) addCRD(kind schema.GroupKind, crd *unstructured.Unstructured) {
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	scope, _, _ := unstructured.NestedString(crd.Object, "spec", "scope")
	for _, v := range definition.Versions(crd.Object) {
		if !v.Served {
			continue
		}
		gv := schema.GroupVersion{Group: kind.Group, Version: v.Name}
		m.crds[gv.WithKind(kind.Kind)] = Mapping{
			Resource: gv.WithResource(plural), Namespaced: scope == "Namespaced", Replicas: v.ReplicasPath(),
		}
	}
}

// Mapping returns the mapping of a kind. The error is ErrNoMatch if the kind is not served in this version, ErrUnavailable if the server
// cannot know that, and another error if the server does not respond. Concurrent callers with missing kinds share one read, which continues
// for the others if ctx ends.
func (m *Mapper) Mapping(ctx context.Context, gvk schema.GroupVersionKind) (Mapping, error) {
	if mapping, ok := m.crds[gvk]; ok {
		mapping.New = m.isNew(gvk)
		return mapping, nil
	}
	last := m.last.Value()
	if _, ok := last.served[gvk]; ok {
		return last.mapping(gvk)
	}
	last, err := m.refresh(ctx)
	if err != nil {
		return Mapping{}, fmt.Errorf("reading discovery: %w", err)
	}
	return last.mapping(gvk)
}

// AnyVersion is Mapping, but it returns the mapping in another version if the server does not serve this one. The metadata of an object is
// the same in all versions.
func (m *Mapper) AnyVersion(ctx context.Context, gvk schema.GroupVersionKind) (Mapping, error) {
	mapping, err := m.Mapping(ctx, gvk)
	if other, ok := OtherVersion(err); ok {
		return other, nil
	}
	return mapping, err
}

// OtherVersion returns the mapping of a kind that the server serves in another version only, from the error of Mapping or Known.
func OtherVersion(err error) (Mapping, bool) {
	if other, ok := errors.AsType[*otherVersionError](err); ok {
		return other.served, true
	}
	return Mapping{}, false
}

// Refresh reads discovery again unless that happened just now. Callers use it if the server responds that it does not serve a mapping's
// resource.
func (m *Mapper) Refresh(ctx context.Context) error {
	last, err := m.refresh(ctx)
	return cmp.Or(err, last.err)
}

// refresh returns discovery. It reads it again unless that happened just now.
func (m *Mapper) refresh(ctx context.Context) (snapshot, error) {
	stale := func(last snapshot) bool { return m.clock.Since(last.at) >= refreshInterval }
	return m.last.Read(ctx, readTimeout, stale, func(ctx context.Context, last snapshot) snapshot {
		next := read(ctx, m.discovery, last)
		next.at = m.clock.Now()
		return next
	})
}

// newFor is how long a kind counts as new. The API server delays a POST for a kind that is younger than two seconds.
const newFor = 10 * time.Second

// isNew reports whether a kind of the release was not served at the last read of discovery and is now requested for the first time. It
// returns false before the first read that succeeds.
func (m *Mapper) isNew(gvk schema.GroupVersionKind) bool {
	last := m.last.Value()
	if _, served := last.served[gvk]; served || last.served == nil {
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

// Known is Mapping from memory. It reads discovery only if no read has succeeded yet.
func (m *Mapper) Known(ctx context.Context, gvk schema.GroupVersionKind) (Mapping, error) {
	last := m.last.Value()
	if last.served == nil {
		return m.Mapping(ctx, gvk)
	}
	if mapping, ok := m.crds[gvk]; ok {
		return mapping, nil
	}
	return last.mapping(gvk)
}

// Load reads discovery unless a read has succeeded already. It returns the error of the read; a failed extension API server is no error.
func (m *Mapper) Load(ctx context.Context) error {
	if m.last.Value().served != nil {
		return nil
	}
	if err := m.Refresh(ctx); err != nil {
		return fmt.Errorf("reading discovery: %w", err)
	}
	return nil
}

// Served reports whether the last successful read of discovery contains a kind; Load makes the first one. CRDs of the release count only
// once they are served.
func (m *Mapper) Served(gvk schema.GroupVersionKind) bool {
	_, ok := m.last.Value().served[gvk]
	return ok
}

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
	if mapping, ok := s.preferred[gvk.GroupKind()]; ok {
		return Mapping{}, &otherVersionError{kind: gvk, served: mapping}
	}
	return Mapping{}, fmt.Errorf("%w %q in %s", ErrNoMatch, gvk.Kind, gvk.GroupVersion())
}

// read asks the server which kinds it serves. If an API fails because its extension API server is down, the other APIs stay usable, and the
// last known kinds of the failed API are kept.
func read(ctx context.Context, d Discovery, last snapshot) snapshot {
	_, lists, err := d.ServerGroupsAndResourcesWithContext(ctx)
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		last.err = err
		return last
	}
	next := snapshot{
		served: map[schema.GroupVersionKind]Mapping{}, preferred: map[schema.GroupKind]Mapping{}, failed: failed,
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		scaled := map[string]bool{}
		for _, r := range list.APIResources {
			if name, subresource, _ := strings.Cut(r.Name, "/"); subresource == "scale" {
				scaled[name] = true
			}
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue // a subresource
			}
			mapping := Mapping{Resource: gv.WithResource(r.Name), Namespaced: r.Namespaced}
			if scaled[r.Name] {
				mapping.Replicas = DefaultReplicas
			}
			next.add(kindOf(gv, r), mapping)
		}
	}
	for gvk, mapping := range last.served {
		if failed[gvk.GroupVersion()] != nil {
			next.served[gvk] = mapping
		}
	}
	for kind, mapping := range last.preferred {
		if _, ok := next.preferred[kind]; !ok && failed[mapping.Resource.GroupVersion()] != nil {
			next.preferred[kind] = mapping
		}
	}
	return next
}

// add adds a kind. The server lists the version that it prefers first.
func (s snapshot) add(gvk schema.GroupVersionKind, mapping Mapping) {
	s.served[gvk] = mapping
	if _, ok := s.preferred[gvk.GroupKind()]; !ok {
		s.preferred[gvk.GroupKind()] = mapping
	}
}

// kindOf returns the kind of a resource. Its group and version may differ from the resource's.
func kindOf(gv schema.GroupVersion, r metav1.APIResource) schema.GroupVersionKind {
	if r.Group != "" {
		gv.Group = r.Group
	}
	if r.Version != "" {
		gv.Version = r.Version
	}
	return gv.WithKind(r.Kind)
}
