package observe

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/cluster-version/cvo/pkg/apply/ownership"
)

// object is a State with its name. It is never modified.
type object struct {
	name types.NamespacedName
	State
}

// reduce returns the stored state of an object.
func reduce(m *metav1.PartialObjectMetadata, n *names) *object {
	o := &object{
		name: types.NamespacedName{Namespace: n.intern(m.Namespace), Name: m.Name},
		State: State{
			UID:             m.UID,
			ResourceVersion: m.ResourceVersion,
			Generation:      m.Generation,
			Fields:          ownership.Ours(m.ManagedFields),
			Time:            ownership.Time(m.ManagedFields),
			Writer:          n.intern(ownership.Writer(m.ManagedFields)),
			Deleting:        m.DeletionTimestamp != nil,
			Replicas:        ownership.MayOwnReplicas(m.ManagedFields),
		},
	}
	if scaler, field := ownership.Scaler(m.ManagedFields); len(strings.Join(field, ".")) <= maxText {
		o.Scaler, o.ScaledField = n.intern(scaler), field
	}
	if o.Deleting {
		o.Finalizers = bounded(m.Finalizers, maxFinalizers)
	}
	var loosened []string
	for _, l := range ownership.Loosened(m.ManagedFields) {
		loosened = append(loosened, l.Manager+": "+l.Path)
	}
	o.Loosened = bounded(loosened, maxLoosened)
	if c := ownership.OtherController(m.OwnerReferences); c != nil {
		o.Controller = n.intern(c.Kind + " " + c.Name)
	}
	return o
}

// unwantedObject stands for unwanted objects while the Reflector collects the initial state.
var unwantedObject = &object{}

// differs reports whether callers need to know the difference between two states of an object.
func differs(a, b *object) bool {
	return a.UID != b.UID || a.Fields != b.Fields || a.Time != b.Time || a.Edits != b.Edits || a.Generation != b.Generation || a.Deleting != b.Deleting ||
		a.Generation == 0 && a.ResourceVersion != b.ResourceVersion ||
		!slices.Equal(a.Finalizers, b.Finalizers) || !slices.Equal(a.Loosened, b.Loosened) ||
		a.Controller != b.Controller
}

// states contains the objects that a scope's watch has delivered. The Reflector writes it through the methods of cache.TransformingStore.
type states struct {
	names   *names
	changed func()
	// wanted returns the objects to store; nil stores all.
	wanted func() Names
	// edits is true if State.Edits is set.
	edits bool
	// status is true if a write of the status also counts as a change.
	status bool
	// complete, if set, is called once the initial state is complete.
	complete func()

	mu      sync.RWMutex
	synced  bool
	version string
	objects map[types.NamespacedName]*object
	// dropped is true once the watch has delivered an unwanted object.
	dropped bool
}

var (
	_ cache.TransformingStore      = (*states)(nil)
	_ cache.ReflectorBookmarkStore = (*states)(nil)
)

func (s *states) look(name types.NamespacedName) Look {
	if !s.wants(name.Namespace, name.Name) {
		return Look{} // a dropped object may still exist
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.synced {
		return Look{}
	}
	look := Look{Synced: true, At: s.version}
	if o := s.objects[name]; o != nil {
		look.State = &o.State
	}
	return look
}

func (s *states) wants(namespace, name string) bool {
	return s.wanted == nil || s.wanted().Has(namespace, name)
}

// retain drops the objects outside names, and reports whether any object has been dropped so far.
func (s *states) retain(names Names) (dropped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wanted == nil {
		return false
	}
	for name := range s.objects {
		if !names.Has(name.Namespace, name.Name) {
			delete(s.objects, name)
			s.dropped = true
		}
	}
	return s.dropped
}

// forget drops everything. Afterwards no state is known.
func (s *states) forget() {
	s.mu.Lock()
	wasSynced := s.synced
	s.synced, s.version, s.objects = false, "", nil
	s.mu.Unlock()
	if wasSynced {
		s.changed()
	}
}

// Transformer also reduces objects while the Reflector collects the initial state.
func (s *states) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return s.reduce(obj) }
}

func (s *states) reduce(obj any) (*object, error) {
	switch obj := obj.(type) {
	case *object:
		return obj, nil
	case *metav1.PartialObjectMetadata:
		if s.drops(obj.Namespace, obj.Name) {
			return unwantedObject, nil
		}
		o := reduce(obj, s.names)
		if s.edits {
			o.Edits = edits(obj)
		}
		return o, nil
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
	if o == unwantedObject {
		if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
			return s.Bookmark(m.ResourceVersion)
		}
		return nil
	}
	if s.store(o) {
		s.changed()
	}
	return nil
}

// drops reports whether an object is unwanted, and records that it was dropped. It checks twice because Want changes the names first and
// reads the record afterwards.
func (s *states) drops(namespace, name string) bool {
	if s.wants(namespace, name) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wants(namespace, name) {
		return false
	}
	s.dropped = true
	return true
}

func (s *states) store(o *object) (different bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.wants(o.name.Namespace, o.name.Name) {
		s.dropped = true
		return false
	}
	before := s.objects[o.name]
	if s.objects == nil {
		s.objects = map[types.NamespacedName]*object{}
	}
	s.objects[o.name] = o
	s.version = o.ResourceVersion
	return s.isNews(before, o)
}

// isNews reports whether callers need to know about the new state of an object. A nil before means that the object is new.
func (s *states) isNews(before, after *object) bool {
	return before == nil || differs(before, after) || s.status && before.ResourceVersion != after.ResourceVersion
}

// Delete implements cache.ReflectorStore. The watch also reports a deletion when an object loses the label that its scope selects.
func (s *states) Delete(obj any) error {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return fmt.Errorf("unexpected %T from a metadata watch", obj)
	}
	if s.remove(types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, m.ResourceVersion) {
		s.changed()
	}
	return nil
}

func (s *states) remove(name types.NamespacedName, version string) (existed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, existed = s.objects[name]
	delete(s.objects, name)
	s.version = version
	return existed
}

// Replace implements cache.ReflectorStore. It receives a complete initial state, possibly more than once.
func (s *states) Replace(list []any, version string) error {
	objects := make(map[types.NamespacedName]*object, len(list))
	for _, obj := range list {
		o, err := s.reduce(obj)
		if err != nil {
			return err
		}
		if o == unwantedObject {
			continue
		}
		objects[o.name] = o
	}
	different := s.replace(objects, version)
	if s.complete != nil {
		s.complete()
	}
	if different {
		s.changed()
	}
	return nil
}

func (s *states) replace(objects map[types.NamespacedName]*object, version string) (different bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	different = !s.synced || len(objects) != len(s.objects)
	for name, o := range objects {
		if different {
			break
		}
		different = s.isNews(s.objects[name], o)
	}
	s.synced, s.version, s.objects = true, version, objects
	return different
}

// Bookmark implements cache.ReflectorBookmarkStore.
func (s *states) Bookmark(version string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
	return nil
}

// Resync implements cache.ReflectorStore. It is not used.
func (s *states) Resync() error { return nil }

// names stores one copy of each string that many objects share, namespaces and managers. The zero value is ready for use.
type names struct {
	mu       sync.Mutex
	interned map[string]string
}

// maxNames limits the memory for names of foreign objects. When it is reached, all names are dropped. This only costs a second copy of the
// names still in use.
const maxNames = 4096

func (n *names) intern(name string) string {
	if name == "" {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if known, ok := n.interned[name]; ok {
		return known
	}
	if n.interned == nil || len(n.interned) >= maxNames {
		n.interned = map[string]string{}
	}
	n.interned[name] = name
	return name
}
