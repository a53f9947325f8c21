package observe

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// Names contains the objects that have a manifest. Anyone who can write an object can put our label on it, so the label alone must not make
// us store an object. A nil Names contains every object.
type Names map[types.NamespacedName]bool

// Has reports whether n contains the object.
func (n Names) Has(namespace, name string) bool {
	return n == nil || n[types.NamespacedName{Namespace: namespace, Name: name}]
}

// Exceeds reports whether n has a name that before lacks.
func (n Names) Exceeds(before Names) bool {
	if before == nil {
		return false
	}
	for name := range n {
		if !before[name] {
			return true
		}
	}
	return false
}

// Want makes scopes without a name store only the given objects from now on. The caller must not modify names. Other objects are dropped
// when they arrive, and Look knows nothing about them. Before the first call, all objects are stored.
//
// If names are added and a scope has dropped an object, Want restarts the scope's watch, because the object may be one of them.
func (w *Watcher) Want(names Names) {
	before := w.wanted.Swap(&names)
	grown := before != nil && names.Exceeds(*before)
	w.mu.Lock()
	defer w.mu.Unlock()
	for s, watched := range w.scopes {
		if dropped := watched.states.retain(names); !dropped || !grown {
			continue
		}
		if watched.stop != nil {
			watched.stop()
		}
		w.scopes[s] = w.newScope(s)
	}
	w.triggerStart()
}

func (w *Watcher) names() Names {
	if names := w.wanted.Load(); names != nil {
		return *names
	}
	return nil
}

// The API server limits neither the number of finalizers nor of managed fields. These limits are far above the needs of any controller, and
// our messages do not list more.
const (
	maxFinalizers = 8
	maxLoosened   = 32
	// maxText is a limit in bytes. The longest valid finalizer has 317. A longer path to the number of replicas is not kept, and no message names
	// its writer.
	maxText = 512
)

// bounded returns a copy of at most limit entries of list. If entries are missing, an additional last entry contains their number.
func bounded(list []string, limit int) []string {
	if len(list) == 0 {
		return nil
	}
	kept := make([]string, 0, min(len(list), limit+1))
	for _, entry := range list[:min(len(list), limit)] {
		if len(entry) > maxText {
			entry = entry[:maxText] + "…"
		}
		kept = append(kept, entry)
	}
	if more := len(list) - limit; more > 0 {
		kept = append(kept, fmt.Sprintf("%d more", more))
	}
	return kept
}
