// Package conversion reads from the CustomResourceDefinition of a kind how the API server converts objects between its versions.
package conversion

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/apply/request"
)

// Cache holds for a moment what it has read, so that the objects of a kind need only one read. A Cache is safe for concurrent use.
type Cache struct {
	clock clock.PassiveClock

	reads singleflight.Group
	mu    sync.Mutex
	known map[schema.GroupResource]entry
}

type entry struct {
	onlyRenames bool
	readAt      time.Time
}

const (
	// maxAge is the time after which a definition is read again.
	maxAge = 10 * time.Second
	// readTimeout limits one read.
	readTimeout = 30 * time.Second
)

// NewCache returns an empty cache.
func NewCache(clk clock.PassiveClock) *Cache {
	return &Cache{clock: clk, known: map[schema.GroupResource]entry{}}
}

// OnlyRenames reports whether the server converts the resource's objects by changing only apiVersion. It returns false for a resource
// without a readable CustomResourceDefinition. Concurrent callers share one read, which continues for the others if ctx ends.
func (c *Cache) OnlyRenames(ctx context.Context, client *request.Client, resource schema.GroupResource) (bool, error) {
	if onlyRenames, ok := c.fresh(resource); ok {
		return onlyRenames, nil
	}
	background := context.WithoutCancel(ctx)
	select {
	case read := <-c.reads.DoChan(resource.String(), func() (any, error) { return c.read(background, client, resource) }):
		onlyRenames, _ := read.Val.(bool)
		return onlyRenames, read.Err
	case <-ctx.Done():
		return false, fmt.Errorf("reading the definition of %s: %w", resource, ctx.Err())
	}
}

// fresh returns the result of the last read, unless it is too old.
func (c *Cache) fresh(resource schema.GroupResource) (onlyRenames, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ok := c.known[resource]
	return last.onlyRenames, ok && c.clock.Since(last.readAt) < maxAge
}

// read reads a definition unless another read has finished since the caller last looked.
func (c *Cache) read(ctx context.Context, client *request.Client, resource schema.GroupResource) (bool, error) {
	if onlyRenames, ok := c.fresh(resource); ok {
		return onlyRenames, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	definitions := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	var crd apiextensionsv1.CustomResourceDefinition
	err := client.Decode(ctx, request.Target{Resource: definitions, Name: resource.String()}, &crd)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // another API server serves the kind, or it is unknown
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading the definition of %s: %w", resource, err)
	}
	renames := crd.Spec.Conversion == nil || crd.Spec.Conversion.Strategy == apiextensionsv1.NoneConverter
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[resource] = entry{renames, c.clock.Now()}
	return renames, nil
}
