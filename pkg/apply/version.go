package apply

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

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
// If the server cannot read the object in the manifest's version either, entries do not matter: the object is replaced.
func (s *submission) moveEntries(ctx context.Context, failed error) (moved bool, err error) {
	if s.moves == attempts || !failure.IsConversion(failed) {
		return false, nil
	}
	s.moves++
	if unreadable, err := s.isUnreadable(ctx, failed); err != nil {
		return false, err
	} else if unreadable {
		return s.replace(ctx)
	}
	live, err := s.applier.client.Get(ctx, s.target)
	if err != nil {
		return false, nil //nolint:nilerr // the error of the apply is more useful
	}
	entries, err := s.inVersion(ctx, live.ManagedFields, failed)
	if err != nil || entries == nil {
		return false, err
	}
	_, err = s.applier.client.SetManagers(ctx, s.target, live.ResourceVersion, entries)
	if err != nil && !apierrors.IsConflict(err) {
		return false, fmt.Errorf("moving managedFields to %s: %w", s.m.GVK().GroupVersion(), err)
	}
	return true, nil // after a conflict, the apply fails in the same way again
}

// isUnreadable reports whether an apply failed because the server cannot read the live object in the manifest's version. A webhook that
// converts it wrongly may be repaired, so such an object is not replaced.
func (s *submission) isUnreadable(ctx context.Context, failed error) (bool, error) {
	if !failure.IsUnreadable(failed) {
		return false, nil
	}
	return s.onlyRenames(ctx)
}

// onlyRenames reports whether the server converts the object between versions by changing only apiVersion.
func (s *submission) onlyRenames(ctx context.Context) (bool, error) {
	if builtin.Type(s.m.GVK()) != nil {
		return false, nil
	}
	return s.applier.conversions.OnlyRenames(ctx, s.applier.client, s.target.Resource.GroupResource())
}

// replace updates an object that has a value of another type than the manifest's API version requires. The server discards
// managedFields, so the next apply takes our fields back.
func (s *submission) replace(ctx context.Context) (done bool, err error) {
	live, err := s.applier.client.Object(ctx, s.target)
	if err != nil {
		return false, err
	}
	object, err := s.replacement(ctx, live)
	if err == nil {
		err = s.applier.client.Replace(ctx, s.target, object)
	}
	return err == nil, err
}

// replacement returns the object that replaces an unreadable one. If managedFields are empty, the fields that earlier manifests set and this
// one does not are ours.
func (s *submission) replacement(ctx context.Context, live *unstructured.Unstructured) (any, error) {
	object := overlay.Lay(s.m.GVK(), s.body, live).Object()
	if uid := s.applier.options.UID; uid == "" || uid != live.GetUID() || len(live.GetManagedFields()) > 0 {
		return object, nil
	}
	lost, _, err := s.lost(ctx)
	if err == nil {
		prune(object, nil, lost)
	}
	return object, err
}

// prune removes the fields for which lost returns true, except objects, from an object at path.
func prune(object any, path fieldpath.Path, lost func(fieldpath.Path) bool) {
	fields, _ := object.(map[string]any)
	for name, value := range fields {
		at := append(slices.Clone(path), fieldpath.PathElement{FieldName: &name})
		if _, inner := value.(map[string]any); inner {
			prune(value, at, lost)
		} else if lost(at) {
			delete(fields, name)
		}
	}
}

// inVersion returns the entries in the manifest's API version, or nil if that would not help after a failed apply. failed may be nil. A
// conversion webhook may rename fields, so only the entries of a version that the definition no longer has are moved: no webhook can convert
// to it.
func (s *submission) inVersion(ctx context.Context, entries []metav1.ManagedFieldsEntry, failed error) ([]metav1.ManagedFieldsEntry, error) {
	version := s.m.GVK().GroupVersion().String()
	if builtin.Type(s.m.GVK()) != nil || ownership.OtherVersion(entries, version) == "" {
		return nil, nil
	}
	renames, err := s.onlyRenames(ctx)
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
	if unreadable, err := s.isUnreadable(ctx, failed); err != nil {
		return nil, false, err
	} else if unreadable {
		next, err := s.replacement(ctx, live)
		if err == nil {
			object, err = s.applier.client.DryUpdate(ctx, s.target, next)
		}
		return object, err == nil, err
	}
	entries, err := s.inVersion(ctx, live.GetManagedFields(), failed)
	if err != nil || entries == nil {
		return nil, false, err
	}
	live.SetManagedFields(entries)
	object, err = s.applier.client.DryUpdate(ctx, s.target, overlay.Lay(s.m.GVK(), s.body, live).Object())
	return object, err == nil, err
}
