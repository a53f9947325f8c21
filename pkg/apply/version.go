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
//
// If the server cannot read the object in the manifest's version either, moved entries would not help: the object is replaced.
func (s *submission) moveEntries(ctx context.Context, failed error) (moved bool, err error) {
	if s.moves == attempts || !failure.IsConversion(failed) {
		return false, nil
	}
	s.moves++
	live, err := s.applier.client.Get(ctx, s.target)
	if err != nil {
		return false, nil //nolint:nilerr // the error of the apply is more useful
	}
	entries, err := s.inVersion(ctx, live.ManagedFields, failed)
	if err != nil || entries == nil {
		return false, err
	}
	if failure.IsUnreadable(failed) {
		return s.replace(ctx)
	}
	_, err = s.applier.client.SetManagers(ctx, s.target, live, entries)
	if err != nil && !apierrors.IsConflict(err) {
		return false, fmt.Errorf("moving managedFields to %s: %w", s.m.GVK().GroupVersion(), err)
	}
	return true, nil // after a conflict, the apply fails in the same way again
}

// replace updates an object that has a value of another type than the manifest's API version requires. The server discards
// managedFields, so the next apply takes our fields back.
func (s *submission) replace(ctx context.Context) (done bool, err error) {
	live, err := s.applier.client.Object(ctx, s.target)
	if err == nil {
		err = s.applier.client.Replace(ctx, s.target, overlay.Lay(s.m.GVK(), s.body, live).Object())
	}
	return err == nil, err
}

// inVersion returns the entries in the manifest's API version, or nil if that would not help after a failed apply. failed may be nil. A
// conversion webhook may rename fields, so only the entries of a version that the definition no longer has are moved: no webhook can convert
// to it.
func (s *submission) inVersion(ctx context.Context, entries []metav1.ManagedFieldsEntry, failed error) ([]metav1.ManagedFieldsEntry, error) {
	version := s.m.GVK().GroupVersion().String()
	if builtin.Type(s.m.GVK()) != nil || ownership.OtherVersion(entries, version) == "" {
		return nil, nil
	}
	renames, err := s.applier.conversions.OnlyRenames(ctx, s.applier.client, s.target.Resource.GroupResource())
	if err != nil {
		return nil, err
	}
	if renames {
		return ownership.Move(entries, "", version), nil
	}
	if removed := failure.RemovedVersion(failed); removed != "" {
		return ownership.Move(entries, removed, version), nil
	}
	return nil, nil
}

// predictMoved predicts an apply that succeeds only after moveEntries, which a dry run cannot store. found is false if that would not help.
func (s *submission) predictMoved(ctx context.Context, failed error) (object *unstructured.Unstructured, found bool, err error) {
	if !failure.IsConversion(failed) {
		return nil, false, nil
	}
	live, err := s.applier.client.Object(ctx, s.target)
	if err != nil {
		return nil, false, nil //nolint:nilerr // the error of the apply is more useful
	}
	entries, err := s.inVersion(ctx, live.GetManagedFields(), failed)
	if err != nil || entries == nil {
		return nil, false, err
	}
	live.SetManagedFields(entries)
	object, err = s.applier.client.DryUpdate(ctx, s.target, overlay.Lay(s.m.GVK(), s.body, live).Object())
	return object, err == nil, err
}
