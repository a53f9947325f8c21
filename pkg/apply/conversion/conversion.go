// Package conversion reads from the CustomResourceDefinition of a kind how the API server converts objects between its versions, and which of
// their lists have keys.
package conversion

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/internal/memo"
	"github.com/cluster-version/cvo/pkg/apply/overlay"
	"github.com/cluster-version/cvo/pkg/apply/request"
)

// Cache holds recent reads for a moment, so that the objects of a kind need only one read. A Cache is safe for concurrent use.
type Cache struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	known map[schema.GroupResource]*memo.Last[entry]
}

// Definition contains what a CustomResourceDefinition says about the versions of its kind. It is empty for a kind without one.
type Definition struct {
	// OnlyRenames reports whether the server converts objects by changing only apiVersion.
	OnlyRenames bool
	// Versions contains the names of all versions, also of those that the server does not serve.
	Versions []string
	// Lists contains the lists with keys and the sets in the schema of each version.
	Lists map[string]*overlay.Lists
}

type entry struct {
	Definition
	err    error
	readAt time.Time // zero if the definition could not be read
}

const (
	// maxAge is the time after which a definition is read again.
	maxAge = 10 * time.Second
	// readTimeout limits one read.
	readTimeout = 30 * time.Second
)

// NewCache returns an empty cache.
func NewCache(clk clock.PassiveClock) *Cache {
	return &Cache{clock: clk, known: map[schema.GroupResource]*memo.Last[entry]{}}
}

// Definition returns the definition of a resource, which is empty if the operator may not read it. Concurrent callers share one read, which
// continues for the others if ctx ends.
func (c *Cache) Definition(ctx context.Context, client *request.Client, resource schema.GroupResource) (Definition, error) {
	due := func(last entry) bool { return c.clock.Since(last.readAt) >= maxAge }
	last, err := c.last(resource).Read(ctx, readTimeout, due, func(ctx context.Context, _ entry) entry {
		return c.read(ctx, client, resource)
	})
	if err = cmp.Or(err, last.err); err != nil {
		return Definition{}, fmt.Errorf("reading the definition of %s: %w", resource, err)
	}
	return last.Definition, nil
}

func (c *Cache) last(resource schema.GroupResource) *memo.Last[entry] {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, ok := c.known[resource]
	if !ok {
		last = &memo.Last[entry]{}
		c.known[resource] = last
	}
	return last
}

// read lists the definition by its name, because the operator may list all definitions, but get only those of the release.
func (c *Cache) read(ctx context.Context, client *request.Client, resource schema.GroupResource) entry {
	definitions := apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	var crds apiextensionsv1.CustomResourceDefinitionList
	if err := client.DecodeList(ctx, request.Target{Resource: definitions, Name: resource.String()}, &crds); err != nil {
		if apierrors.IsForbidden(err) {
			return entry{readAt: c.clock.Now()} // the object is applied as it is; managedFields entries of another version are not moved
		}
		return entry{err: err}
	}
	next := entry{readAt: c.clock.Now(), Definition: Definition{Lists: map[string]*overlay.Lists{}}}
	for _, crd := range crds.Items { // none if another API server serves the kind
		next.OnlyRenames = crd.Spec.Conversion == nil || crd.Spec.Conversion.Strategy == apiextensionsv1.NoneConverter
		for _, version := range crd.Spec.Versions {
			next.Versions = append(next.Versions, version.Name)
			if version.Schema != nil {
				next.Lists[version.Name] = overlay.NewLists(version.Schema.OpenAPIV3Schema)
			}
		}
	}
	return next
}
