package observe

import (
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/cluster-version/cvo/pkg/ownership"
)

// object is a State with its name. It is never modified.
type object struct {
	name types.NamespacedName
	State
}

// reduce keeps of an object what we want to know.
func reduce(m *metav1.PartialObjectMetadata, n *names) *object {
	o := &object{
		name: types.NamespacedName{Namespace: n.one(m.Namespace), Name: m.Name},
		State: State{
			UID:             m.UID,
			ResourceVersion: m.ResourceVersion,
			Generation:      m.Generation,
			Fields:          ownership.Ours(m.ManagedFields),
			Writer:          n.one(ownership.Writer(m.ManagedFields)),
			Deleting:        m.DeletionTimestamp != nil,
		},
	}
	if o.Deleting {
		o.Finalizers = slices.Clone(m.Finalizers)
	}
	for _, l := range ownership.Loosened(m.ManagedFields) {
		o.Loosened = append(o.Loosened, l.Manager+": "+l.Path)
	}
	return o
}

// differs reports whether two states of an object differ in a way that somebody wants to be woken for.
func differs(a, b *object) bool {
	return a.UID != b.UID || a.Fields != b.Fields || a.Generation != b.Generation || a.Deleting != b.Deleting ||
		a.Generation == 0 && a.ResourceVersion != b.ResourceVersion ||
		!slices.Equal(a.Finalizers, b.Finalizers) || !slices.Equal(a.Loosened, b.Loosened)
}

// states is what a scope's watch has told. The Reflector writes it, through the methods of cache.TransformingStore.
type states struct {
	names   *names
	changed func()
	// complete, if set, is called when the initial state is complete.
	complete func()

	mu      sync.RWMutex
	synced  bool
	at      string
	objects map[types.NamespacedName]*object
}

var (
	_ cache.TransformingStore      = (*states)(nil)
	_ cache.ReflectorBookmarkStore = (*states)(nil)
)

func (s *states) look(name types.NamespacedName) Look {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.synced {
		return Look{}
	}
	look := Look{Synced: true, At: s.at}
	if o := s.objects[name]; o != nil {
		look.State = &o.State
	}
	return look
}

func (s *states) all() []*object {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.synced {
		return nil
	}
	all := make([]*object, 0, len(s.objects))
	for _, o := range s.objects {
		all = append(all, o)
	}
	return all
}

// forget drops everything: nothing is known any more.
func (s *states) forget() {
	s.mu.Lock()
	was := s.synced
	s.synced, s.at, s.objects = false, "", nil
	s.mu.Unlock()
	if was {
		s.changed()
	}
}

// Transformer has the Reflector keep reduced objects too while it collects the initial state.
func (s *states) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return s.reduce(obj) }
}

func (s *states) reduce(obj any) (*object, error) {
	switch obj := obj.(type) {
	case *object:
		return obj, nil
	case *metav1.PartialObjectMetadata:
		return reduce(obj, s.names), nil
	}
	return nil, fmt.Errorf("unexpected %T from a metadata watch", obj)
}

// Add implements cache.ReflectorStore.
func (s *states) Add(obj any) error { return s.Update(obj) }

// Update implements cache.ReflectorStore.
func (s *states) Update(obj any) error {
	o, err := s.reduce(obj)
	if err != nil {
		return err
	}
	if s.put(o) {
		s.changed()
	}
	return nil
}

func (s *states) put(o *object) (different bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.objects[o.name]
	if s.objects == nil {
		s.objects = map[types.NamespacedName]*object{}
	}
	s.objects[o.name] = o
	s.at = o.ResourceVersion
	return before == nil || differs(before, o)
}

// Delete implements cache.ReflectorStore. An object that loses the label that its scope selects on is deleted too, as
// far as the watch is concerned.
func (s *states) Delete(obj any) error {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("unexpected %T from a metadata watch", obj)
	}
	if s.drop(types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, m.ResourceVersion) {
		s.changed()
	}
	return nil
}

func (s *states) drop(name types.NamespacedName, at string) (there bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there = s.objects[name]
	delete(s.objects, name)
	s.at = at
	return there
}

// Replace implements cache.ReflectorStore: the initial state is complete, at first or again.
func (s *states) Replace(list []any, at string) error {
	objects := make(map[types.NamespacedName]*object, len(list))
	for _, obj := range list {
		o, err := s.reduce(obj)
		if err != nil {
			return err
		}
		objects[o.name] = o
	}
	different := s.replace(objects, at)
	if s.complete != nil {
		s.complete()
	}
	if different {
		s.changed()
	}
	return nil
}

func (s *states) replace(objects map[types.NamespacedName]*object, at string) (different bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	different = !s.synced || len(objects) != len(s.objects)
	for name, o := range objects {
		if different {
			break
		}
		before := s.objects[name]
		different = before == nil || differs(before, o)
	}
	s.synced, s.at, s.objects = true, at, objects
	return different
}

// Bookmark implements cache.ReflectorBookmarkStore.
func (s *states) Bookmark(at string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = at
	return nil
}

// Resync implements cache.ReflectorStore; it is not used.
func (s *states) Resync() error { return nil }

// names keeps one copy of each string that many objects have in common: namespaces and managers. The zero value works.
type names struct {
	mu    sync.Mutex
	known map[string]string
}

// maxNames bounds what strangers can make us remember. Beyond it everything is forgotten, which costs only a second
// copy of those still in use.
const maxNames = 4096

func (n *names) one(name string) string {
	if name == "" {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if known, ok := n.known[name]; ok {
		return known
	}
	if n.known == nil || len(n.known) >= maxNames {
		n.known = map[string]string{}
	}
	n.known[name] = name
	return name
}
