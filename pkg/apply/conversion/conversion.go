// Package conversion reads from the CustomResourceDefinition of a kind how the API server converts objects between its versions.
package conversion

import (
	"context"
	"fmt"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/apply/request"
)

// Cache holds for a moment what it has read, so that the objects of a kind need only one read. The zero value is ready for use. A Cache is
// safe for concurrent use.
type Cache struct {
	mu    sync.Mutex
	known map[schema.GroupResource]entry
}

type entry struct {
	onlyRenames bool
	readAt      time.Time
}

// maxAge is the time after which a definition is read again.
const maxAge = 10 * time.Second

// OnlyRenames reports whether the server converts the resource's objects by changing only apiVersion. It returns false for a resource
// without a readable CustomResourceDefinition.
func (c *Cache) OnlyRenames(ctx context.Context, client *request.Client, resource schema.GroupResource) (bool, error) {
	c.mu.Lock()
	found, known := c.known[resource]
	c.mu.Unlock()
	if known && time.Since(found.readAt) < maxAge {
		return found.onlyRenames, nil
	}
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
	if c.known == nil {
		c.known = map[schema.GroupResource]entry{}
	}
	c.known[resource] = entry{renames, time.Now()}
	return renames, nil
}
