package apply

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/cluster-version/cvo/pkg/apply/builtin"
	"github.com/cluster-version/cvo/pkg/apply/conversion"
	"github.com/cluster-version/cvo/pkg/apply/drop"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/overlay"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
)

// rewrite is a write after which the server may be able to convert the live object to the versions in its managedFields.
type rewrite struct {
	live *unstructured.Unstructured
	// entries are the managedFields of the live object in the manifest's API version, and from has the API versions that they had instead. If
	// entries are nil, replacement replaces the live object.
	entries     []metav1.ManagedFieldsEntry
	from        []string
	replacement map[string]any
	// moved is the overlay of the body on the live object with the entries.
	moved *overlay.Overlay
}

// dryRun returns the object that shows the result of the write and of the apply after it, because a dry run cannot store the write.
func (s *submission) dryRun(w *rewrite) any {
	if w.entries == nil {
		return w.replacement
	}
	return w.moved.Object()
}

// lay returns the overlay of the body on a live custom resource.
func (s *submission) lay(ctx context.Context, live *unstructured.Unstructured) (*overlay.Overlay, error) {
	crd, err := s.definition(ctx)
	return overlay.Lay(s.m.GVK(), s.body, live).With(crd.Lists[s.target.Resource.Version]), err
}

// findRewrite returns the write after which a failed apply may succeed, or nil if no write would help.
//
// The server converts the live object to the version of each entry in its managedFields. Without a conversion webhook it changes only
// apiVersion, so it fails with status 500 if the object has a field that an older version does not declare. If only some entries were moved,
// the server would discard all of them. Fields that a later release drops would then have no owner. So the write moves all entries.
//
// If the server cannot read the object in the manifest's version either, entries do not matter: the object is replaced. The server then
// discards managedFields, so the next apply takes our fields back. A value of the wrong type that the manifest does not set, and that is not
// known to be ours, would stay. Then the object keeps its managedFields, and the error of the apply names the value.
func (s *submission) findRewrite(ctx context.Context, failed error) (*rewrite, error) {
	if !failure.IsConversion(failed) {
		return nil, nil
	}
	live, err := s.applier.client.Object(ctx, s.target)
	if err != nil {
		return nil, nil //nolint:nilerr // the error of the apply is more useful
	}
	unreadable := failure.IsUnreadable(failed)
	if unreadable { // a webhook that converts the object wrongly may be repaired
		crd, err := s.definition(ctx)
		if err != nil {
			return nil, err
		}
		unreadable = crd.OnlyRenames
	}
	if unreadable {
		replacement, err := s.replacement(ctx, live)
		if err != nil || s.staysUnreadable(replacement, failed) {
			return nil, err
		}
		return &rewrite{live: live, replacement: replacement}, nil
	}
	entries, err := s.inVersion(ctx, live.GetManagedFields(), failed)
	if err != nil || entries == nil {
		return nil, err
	}
	w := &rewrite{live: live, entries: entries}
	for _, e := range live.GetManagedFields() {
		isVersion := func(moved metav1.ManagedFieldsEntry) bool { return moved.APIVersion == e.APIVersion }
		if !slices.ContainsFunc(entries, isVersion) {
			w.from = append(w.from, e.APIVersion)
		}
	}
	live.SetManagedFields(entries)
	w.moved, err = s.lay(ctx, live)
	return w, err
}

// rewriteLive makes the write that findRewrite returns. It reports whether the failed apply may succeed now. It does not repeat a write that
// succeeded: if the apply fails again, the write had no effect.
func (s *submission) rewriteLive(ctx context.Context, failed error) (done bool, err error) {
	if s.rewrites == attempts {
		return false, nil
	}
	w, err := s.findRewrite(ctx, failed)
	if err != nil || w == nil || s.rewritten != nil && slices.Equal(w.from, s.rewritten.from) {
		return false, err
	}
	s.rewrites++
	if w.entries == nil {
		if _, err = s.applier.client.Replace(ctx, s.target, w.replacement); err != nil {
			return false, err
		}
		s.rewritten = w
		return true, nil
	}
	switch err = s.move(ctx, w); {
	case apierrors.IsConflict(err):
		return true, nil // the next apply decides again
	case err != nil:
		return false, fmt.Errorf("moving managedFields to %s: %w", s.m.GVK().GroupVersion(), err)
	}
	s.rewritten = w
	return true, nil
}

// move writes the entries of a rewrite. Before, it removes entries of lists and maps that the next apply would not remove.
func (s *submission) move(ctx context.Context, w *rewrite) error {
	resourceVersion := w.live.GetResourceVersion()
	if w.moved.ChangesWhole() {
		stored, err := s.applier.client.Replace(ctx, s.target, w.moved.Object())
		if err != nil {
			return err
		}
		resourceVersion = stored.ResourceVersion // the next write drops the entry of this one; after a conflict, an apply adopts it
	}
	stored, err := s.applier.client.SetManagers(ctx, s.target, resourceVersion, w.entries)
	if err == nil && len(stored.ManagedFields) == 0 { // the server cannot convert the object to the version of another entry, so it discarded all
		entries := slices.DeleteFunc(w.entries, func(e metav1.ManagedFieldsEntry) bool { return e.APIVersion != s.m.GVK().GroupVersion().String() })
		_, err = s.applier.client.SetManagers(ctx, s.target, stored.ResourceVersion, entries)
	}
	return err
}

// definition returns the CustomResourceDefinition of the object's kind, or an empty one for a built-in kind.
func (s *submission) definition(ctx context.Context) (conversion.Definition, error) {
	if builtin.Type(s.m.GVK()) != nil {
		return conversion.Definition{}, nil
	}
	return s.applier.conversions.Definition(ctx, s.applier.client, s.target.Resource.GroupResource())
}

// replacement returns the object that replaces an unreadable one. If managedFields are empty, the fields that earlier manifests set and this
// one does not are ours.
func (s *submission) replacement(ctx context.Context, live *unstructured.Unstructured) (map[string]any, error) {
	laid, err := s.lay(ctx, live)
	if uid := s.applier.options.UID; err == nil && uid != "" && uid == live.GetUID() && len(live.GetManagedFields()) == 0 {
		var lost func(fieldpath.Path) bool
		lost, _, err = s.lost(ctx)
		laid.Drop(lost)
	}
	object, _ := laid.Object().(map[string]any)
	return object, err
}

// staysUnreadable reports whether the replacement of an unreadable object contains a value that makes the live object unreadable.
func (s *submission) staysUnreadable(replacement map[string]any, failed error) bool {
	return slices.ContainsFunc(failure.Mistyped(failed), func(path string) bool {
		return drop.Has(replacement, path) && !drop.Has(s.body, path)
	})
}

// inVersion returns the entries in the manifest's API version, or nil if no entry has to be moved. A conversion webhook may rename fields, so
// only the entries of a version that the definition no longer has are moved: no webhook can convert to it. The error of a failed apply, if
// any, may name a version that was removed since the definition was read.
func (s *submission) inVersion(ctx context.Context, entries []metav1.ManagedFieldsEntry, failed error) ([]metav1.ManagedFieldsEntry, error) {
	version := s.m.GVK().GroupVersion().String()
	if builtin.Type(s.m.GVK()) != nil || ownership.OtherVersion(entries, version) == "" {
		return nil, nil
	}
	crd, err := s.definition(ctx)
	if err != nil {
		return nil, err
	}
	if crd.OnlyRenames {
		return ownership.Move(entries, "", version), nil
	}
	removed := failure.RemovedVersion(failed)
	isRemoved := func(apiVersion string) bool {
		if apiVersion == version {
			return false
		}
		gv, err := schema.ParseGroupVersion(apiVersion)
		known := err == nil && slices.Contains(crd.Versions, s.m.GVK().Version) // an earlier definition may lack other versions, too
		return removed != "" && apiVersion == removed || known && !slices.Contains(crd.Versions, gv.Version)
	}
	moved, found := entries, false
	for _, e := range entries {
		if isRemoved(e.APIVersion) {
			moved, found = ownership.Move(moved, e.APIVersion, version), true
		}
	}
	if !found {
		return nil, nil
	}
	return moved, nil
}
