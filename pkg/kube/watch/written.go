package watch

import "sync"

// Written has objects of one kind in the versions that this process has written, by name, until its cache shows them. Without it, the process
// would decide by a state that it has changed already, and its next write would conflict with its own. The zero value has none. It is safe for
// concurrent use.
type Written[T Object] struct {
	mutex  sync.Mutex
	byName map[string]T
}

// Add records a written object.
func (w *Written[T]) Add(object T) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.byName == nil {
		w.byName = map[string]T{}
	}
	w.byName[object.GetName()] = object
}

// Newest returns the newest version of a cached object. It forgets the written one if the cache shows it.
func (w *Written[T]) Newest(cached T) T {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	newest := Newest(w.byName[cached.GetName()], cached)
	if newest == cached {
		delete(w.byName, cached.GetName())
	}
	return newest
}

// Forget drops an object that does not exist anymore.
func (w *Written[T]) Forget(name string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.byName, name)
}

// All returns the newest versions of all objects in the cache, in the same order. It forgets what the cache shows, and objects that it lacks.
func (w *Written[T]) All(cached []T) []T {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	late := map[string]T{}
	all := make([]T, len(cached))
	for i, o := range cached {
		if all[i] = Newest(w.byName[o.GetName()], o); all[i] != o {
			late[o.GetName()] = all[i]
		}
	}
	w.byName = late
	return all
}
