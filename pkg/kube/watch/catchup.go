package watch

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/internal/backoff"
)

// catchUpRetry is the delay before the cache or the API server is read again.
var catchUpRetry = backoff.Doubling{First: 20 * time.Millisecond, Max: time.Second}

// CatchUp delays the controllers of a new leader until its cache has the writes of the leader before. It implements manager.Runnable.
type CatchUp struct {
	cache  client.Client
	server client.Reader
	kinds  []client.ObjectList
	done   chan struct{}
}

// NewCatchUp returns a CatchUp for a cache of these kinds. server reads from the API server, and needs only permission to list the kinds. A
// manager whose process leads must run it.
func NewCatchUp(cache client.Client, server client.Reader, kinds ...client.ObjectList) *CatchUp {
	return &CatchUp{cache: cache, server: server, kinds: kinds, done: make(chan struct{})}
}

// Delay returns a reconciler that passes its requests to r, once the cache has caught up.
func (c *CatchUp) Delay(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		select {
		case <-c.done:
			return r.Reconcile(ctx, request)
		case <-ctx.Done():
			return reconcile.Result{}, ctx.Err()
		}
	})
}

// Start lists each kind once from the API server, and ends the delay when the cache has this state or a later one. It returns nil if ctx ends
// before.
func (c *CatchUp) Start(ctx context.Context) error {
	for _, kind := range c.kinds {
		if !c.await(ctx, kind) {
			return nil
		}
	}
	close(c.done)
	return nil
}

// await returns true when the cache has the current state of a kind, and false if ctx ends before.
func (c *CatchUp) await(ctx context.Context, kind client.ObjectList) bool {
	log := logr.FromContextOrDiscard(ctx)
	var s *snapshot
	for attempt := 1; ctx.Err() == nil; attempt++ {
		var err error
		if s == nil {
			s, err = c.list(ctx, kind)
		}
		isLate := true
		if err == nil {
			isLate, err = c.isLate(ctx, s)
		}
		switch {
		case err == nil && !isLate:
			return true
		case ctx.Err() != nil: // the process ends
		case err != nil:
			log.Error(err, "comparing the cache with the API server failed", "retry", catchUpRetry.After(attempt).String())
		case !s.isLogged:
			s.isLogged = true
			log.Info("waiting for the cache: it is older than the state at the start", "kind", s.list.Kind)
		}
		_ = backoff.Sleep(ctx, catchUpRetry.After(attempt)) // the loop ends with ctx
	}
	return false
}

// snapshot is the state of a kind at the start.
type snapshot struct {
	// list has the kind and the resource version, and cached is an empty list for the cache.
	list   metav1.PartialObjectMetadataList
	cached client.ObjectList
	// versions has the resource versions of the objects that are not known to be deleted.
	versions map[client.ObjectKey]string
	isLogged bool
}

func (c *CatchUp) list(ctx context.Context, kind client.ObjectList) (*snapshot, error) {
	s := &snapshot{cached: kind, versions: map[client.ObjectKey]string{}}
	gvk, err := apiutil.GVKForObject(kind, c.cache.Scheme())
	if err != nil {
		return nil, err
	}
	s.list.SetGroupVersionKind(gvk)
	if err := c.server.List(ctx, &s.list); err != nil {
		return nil, fmt.Errorf("reading the %s from the API server: %w", gvk.Kind, err)
	}
	for i := range s.list.Items {
		s.versions[client.ObjectKeyFromObject(&s.list.Items[i])] = s.list.Items[i].ResourceVersion
	}
	s.list.Items = nil
	return s, nil
}

// isLate reports whether the cache may be older than a snapshot. It compares each object, because a watch that was interrupted stores a new list
// object by object.
func (c *CatchUp) isLate(ctx context.Context, s *snapshot) (bool, error) {
	list, ok := s.cached.DeepCopyObject().(client.ObjectList)
	if !ok {
		return false, fmt.Errorf("%T is no list", s.cached)
	}
	if err := c.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing the cached %s: %w", s.list.Kind, err)
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return false, err
	}
	isCached := make(map[client.ObjectKey]bool, len(objects))
	for _, o := range objects {
		object, err := meta.Accessor(o)
		if err != nil {
			return false, err
		}
		key := client.ObjectKey{Namespace: object.GetNamespace(), Name: object.GetName()}
		least, isListed := s.versions[key]
		if !isListed {
			least = s.list.ResourceVersion
		}
		order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), least)
		if err != nil {
			return false, fmt.Errorf("comparing versions of the %s: %w", s.list.Kind, err)
		}
		if order < 0 || order == 0 && !isListed {
			return true, nil // it was changed or deleted before the snapshot
		}
		isCached[key] = true
	}
	for key := range s.versions {
		if isCached[key] {
			continue
		}
		// A list of one object: the controllers may have no permission to get it, and those that have a cache may list.
		current := &metav1.PartialObjectMetadataList{TypeMeta: s.list.TypeMeta}
		only := client.MatchingFields{metav1.ObjectNameField: key.Name}
		if err := c.server.List(ctx, current, only, client.InNamespace(key.Namespace)); err != nil {
			return false, fmt.Errorf("reading %s %s from the API server: %w", s.list.Kind, key.Name, err)
		}
		if len(current.Items) > 0 {
			return true, nil // the cache lacks it
		}
		delete(s.versions, key) // it was deleted since
	}
	return false, nil
}
