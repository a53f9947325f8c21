package image

import (
	"slices"
	"sync"

	"github.com/cluster-version/cvo/pkg/oci/image/repository"
	"github.com/cluster-version/cvo/pkg/release"
)

// Repositories caches the repositories of images to share connections. Most releases have a single repository. It is for a single operation
// and safe for concurrent use.
type Repositories struct {
	reader *Reader
	mu     sync.Mutex
	opened map[string]*repository.Repository
}

// Repositories returns an empty cache of repositories.
func (r *Reader) Repositories() *Repositories {
	return &Repositories{reader: r, opened: map[string]*repository.Repository{}}
}

// Of returns the repository of an image. It sends no request.
func (r *Repositories) Of(img release.Image) (*repository.Repository, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.opened[img.Repository()]; known != nil {
		return known, nil
	}
	opened, err := r.reader.Repository(img)
	if err != nil {
		return nil, err
	}
	r.opened[img.Repository()] = opened
	return opened, nil
}

// Served lists the places that have served content so far, sorted. It omits the cache.
func (r *Repositories) Served() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var places []string
	for _, repository := range r.opened {
		places = append(places, repository.Served()...)
	}
	slices.Sort(places)
	return slices.Compact(places)
}
