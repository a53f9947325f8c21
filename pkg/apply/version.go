package apply

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/apply/builtin"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/overlay"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
)

// moveEntries moves all entries of the object's managedFields to the manifest's API version. It reports whether the failed apply may succeed
// now.
//
// The server converts the live object to the version of each entry. Without a conversion webhook it changes only apiVersion, so it fails
// with status 500 if the object has a field that an older version does not declare. If only some entries were moved, the server would
// discard all of them. Fields that a later release drops would then have no owner.
func (s *submission) moveEntries(ctx context.Context, failed error) (moved bool, err error) {
	if s.moved || builtin.Type(s.m.GVK()) != nil || !failure.IsConversion(failed) {
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
		if renames, err := s.applier.conversions.OnlyRenames(ctx, s.applier.client, s.target.Resource.GroupResource()); err != nil || !renames {
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

// withVersion returns the entries in the manifest's API version, if the server converts only by name. A patch of managedFields that keeps
// entries of another version can make the server discard all of them.
func (s *submission) withVersion(ctx context.Context, entries []metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, error) {
	version := s.m.GVK().GroupVersion().String()
	if builtin.Type(s.m.GVK()) != nil || ownership.OtherVersion(entries, version) == "" {
		return entries, nil
	}
	renames, err := s.applier.conversions.OnlyRenames(ctx, s.applier.client, s.target.Resource.GroupResource())
	if err != nil || !renames {
		return entries, err
	}
	return ownership.Move(entries, version), nil
}

// predictMoved predicts an apply that succeeds only after moveEntries, which a dry run cannot store. found is false if that would not help.
func (s *submission) predictMoved(ctx context.Context, failed error) (object *unstructured.Unstructured, found bool, err error) {
	if builtin.Type(s.m.GVK()) != nil || !failure.IsConversion(failed) {
		return nil, false, nil
	}
	live, err := s.applier.client.Object(ctx, s.target)
	version := s.m.GVK().GroupVersion().String()
	if err != nil || ownership.OtherVersion(live.GetManagedFields(), version) == "" {
		return nil, false, nil //nolint:nilerr // the error of the apply is more useful
	}
	if renames, err := s.applier.conversions.OnlyRenames(ctx, s.applier.client, s.target.Resource.GroupResource()); err != nil || !renames {
		return nil, false, err
	}
	live.SetManagedFields(ownership.Move(live.GetManagedFields(), version))
	object, err = s.applier.client.DryUpdate(ctx, s.target, overlay.Lay(s.m.GVK(), s.body, live).Object())
	return object, err == nil, err
}
