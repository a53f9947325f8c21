package apply

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/apply/builtin"
	"github.com/cluster-version/cvo/pkg/apply/drop"
	"github.com/cluster-version/cvo/pkg/apply/overlay"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/apply/request"
)

// conversions caches for a moment which kinds have a CustomResourceDefinition without a conversion webhook, so that the objects of a kind
// need only one read.
type conversions struct {
	mu    sync.Mutex
	known map[schema.GroupResource]conversion
}

type conversion struct {
	renames bool
	readAt  time.Time
}

// conversionAge is the time after which a definition is read again.
const conversionAge = 10 * time.Second

func (c *conversions) get(kind schema.GroupResource) (renames, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, known := c.known[kind]
	return found.renames, known && time.Since(found.readAt) < conversionAge
}

func (c *conversions) put(kind schema.GroupResource, renames bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[schema.GroupResource]conversion{}
	}
	c.known[kind] = conversion{renames, time.Now()}
}

// moveEntries moves all entries of the object's managedFields to the manifest's API version. It reports whether the failed apply may succeed
// now.
//
// The server converts the live object to the version of each entry. Without a conversion webhook it changes only apiVersion, so it fails
// with status 500 if the object has a field that an older version does not declare. If only some entries were moved, the server would
// discard all of them. Fields that a later release drops would then have no owner.
func (s *submission) moveEntries(ctx context.Context, failed error) (moved bool, err error) {
	if s.moved || !s.isConversionFailure(failed) {
		return false, nil
	}
	s.moved = true
	version := s.m.GVK().GroupVersion().String()
	var conflict error
	for range attempts {
		live, err := s.applier.client.Get(ctx, s.target)
		if err != nil || ownership.OtherVersion(live.ManagedFields, version) == "" {
			return false, nil //nolint:nilerr // the error of the apply is more useful
		}
		if renames, err := s.convertsByName(ctx); err != nil || !renames {
			return false, err
		}
		stored, err := s.applier.client.SetManagers(ctx, s.target, live, ownership.Move(live.ManagedFields, version))
		switch {
		case apierrors.IsConflict(err):
			conflict = err
			continue
		case err != nil:
			return false, fmt.Errorf("moving managedFields to %s: %w", version, err)
		case len(stored.ManagedFields) == 0 || ownership.OtherVersion(stored.ManagedFields, version) != "":
			return false, fmt.Errorf("moving managedFields to %s: the server did not store the entries", version)
		}
		return true, nil
	}
	return false, fmt.Errorf("moving managedFields to %s: %w", version, conflict)
}

// predictMoved predicts an apply that succeeds only after moveEntries, which a dry run cannot store. found is false if that would not help.
func (s *submission) predictMoved(ctx context.Context, failed error) (object *unstructured.Unstructured, found bool, err error) {
	if !s.isConversionFailure(failed) {
		return nil, false, nil
	}
	live, err := s.applier.client.Object(ctx, s.target)
	version := s.m.GVK().GroupVersion().String()
	if err != nil || ownership.OtherVersion(live.GetManagedFields(), version) == "" {
		return nil, false, nil //nolint:nilerr // the error of the apply is more useful
	}
	if renames, err := s.convertsByName(ctx); err != nil || !renames {
		return nil, false, err
	}
	live.SetManagedFields(ownership.Move(live.GetManagedFields(), version))
	object, err = s.applier.client.DryUpdate(ctx, s.target, overlay.Lay(s.m.GVK(), s.body, live).Object())
	return object, err == nil, err
}

// isConversionFailure reports whether an apply of a custom resource may have failed because of the versions of managedFields. The server
// reports status 500, as for other errors, but another text for a body that does not match the schema.
func (s *submission) isConversionFailure(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError && !drop.IsTypeError(err) &&
		drop.IsSchemaError(status.Status().Message) && builtin.Type(s.m.GVK()) == nil
}

// convertsByName reports whether the server converts the kind's objects by changing only apiVersion.
func (s *submission) convertsByName(ctx context.Context) (bool, error) {
	kind := s.target.Resource.GroupResource()
	if renames, known := s.applier.conversions.get(kind); known {
		return renames, nil
	}
	definitions := schema.GroupVersionResource{Group: crdKind.Group, Version: "v1", Resource: "customresourcedefinitions"}
	var crd apiextensionsv1.CustomResourceDefinition
	err := s.applier.client.Decode(ctx, request.Target{Resource: definitions, Name: kind.String()}, &crd)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // another API server serves the kind, or it is unknown
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading the definition of %s: %w", kind, err)
	}
	renames := crd.Spec.Conversion == nil || crd.Spec.Conversion.Strategy == apiextensionsv1.NoneConverter
	s.applier.conversions.put(kind, renames)
	return renames, nil
}
