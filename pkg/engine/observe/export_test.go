package observe

import (
	"iter"

	"k8s.io/apimachinery/pkg/types"
)

// All returns the states of a scope by name, unsorted, as of the start of the loop. It returns nothing if the scope is not synced or was
// never requested.
func (w *Watcher) All(s Scope) iter.Seq2[types.NamespacedName, State] {
	return func(yield func(types.NamespacedName, State) bool) {
		w.mu.RLock()
		found := w.scopes[s]
		w.mu.RUnlock()
		if found == nil {
			return
		}
		for _, o := range found.states.all() {
			if !yield(o.name, o.State) {
				return
			}
		}
	}
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
