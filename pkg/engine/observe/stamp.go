package observe

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/apply/ownership"
)

// Stamp returns a text that identifies the current state of all objects in a scope with a name or a selector. The first call starts the
// scope's watch. The stamp changes when an object appears, disappears, or changes in more than its status. For a CRD or APIService by name
// it changes with every write, because the status shows whether the resource is served. It is empty if the scope is not synced.
func (w *Watcher) Stamp(s Scope) string { return w.scope(s).states.stamp() }

func (s *states) stamp() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.synced {
		return ""
	}
	objects := make([]*object, 0, len(s.objects))
	for _, o := range s.objects {
		objects = append(objects, o)
	}
	slices.SortFunc(objects, func(a, b *object) int {
		return cmp.Or(cmp.Compare(a.name.Namespace, b.name.Namespace), cmp.Compare(a.name.Name, b.name.Name))
	})
	sum := sha256.New()
	for _, o := range objects {
		_, _ = fmt.Fprintf(sum, "%s %s %s %t\n", o.name, o.UID, o.Edits, o.Deleting)
		if s.status {
			_, _ = fmt.Fprintln(sum, o.ResourceVersion)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// edits returns a hash of an object without its status. No single source is complete: managedFields may be stripped, generations ignore
// labels, and not every kind has a generation. All sources together miss little, and the caller's timer covers the rest.
func edits(m *metav1.PartialObjectMetadata) ownership.Hash {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%s %d %q %q %q", ownership.Edits(m.ManagedFields), m.Generation, m.Labels, m.Annotations, m.Finalizers)
	return ownership.Hash(sum.Sum(nil)[:len(ownership.Hash{})])
}
