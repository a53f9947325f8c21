package apply

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/overlay"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Former returns the manifest of an object in the release before this one; nil if it has none.
type Former func(ctx context.Context, id manifest.ID) (*manifest.Manifest, error)

// takeBack makes our fields ours alone again after another client has made the server discard the object's managedFields, for example by
// writing a custom resource in another version than we did. The server has assigned all fields to the manager before-first-apply since, so
// nothing that a release drops would disappear. It also removes the fields that the former manifest sets and this one does not.
func (s *submission) takeBack(ctx context.Context, change Change, got answer) (Change, answer, error) {
	o := s.applier.options
	if o.UID == "" || got.meta == nil || o.UID != got.meta.UID || !ownership.DiscardedSince(got.meta.ManagedFields, o.Time) {
		return change, got, nil
	}
	lost, note := s.lost(ctx)
	var conflict error
	for range attempts {
		entries, more, changed := ownership.TakeBack(s.m.GVK(), got.meta.ManagedFields, lost)
		if !changed {
			return change, got, nil
		}
		s.takenBack = "took back its fields, because another client's write made the server discard their owners" + note
		before := got
		stored, err := s.applier.client.SetManagers(ctx, s.target, got.meta, entries)
		switch {
		case apierrors.IsConflict(err):
			conflict = err
			if got, err = s.send(ctx); err != nil {
				return Change{}, answer{}, err
			}
			continue
		case err != nil:
			return Change{}, answer{}, fmt.Errorf("taking back fields: %w", err)
		case !more:
			got = answer{meta: stored, created: before.created}
			return s.receipt(got), got, nil
		}
		got, err = s.send(ctx)
		switch {
		case failure.IsRefusal(err):
			return s.release(ctx, before, stored, err)
		case err != nil:
			return Change{}, answer{}, fmt.Errorf("taking back fields: %w", err)
		}
		return s.receipt(got), got, nil
	}
	return Change{}, answer{}, fmt.Errorf("taking back fields: %w", conflict)
}

// lost returns a function that reports whether the former manifest sets a field and this one does not. If the former manifest is
// unavailable, the function returns false, and note says so.
func (s *submission) lost(ctx context.Context) (lost func(fieldpath.Path) bool, note string) {
	var former map[string]any
	if read := s.applier.options.Former; read != nil {
		m, err := read(ctx, s.m.ID())
		if err == nil && m != nil {
			former, _, err = s.applier.builder.Build(m, s.target.Namespace != "")
		}
		if err != nil {
			note = "; fields that the release before dropped may remain: " + err.Error()
		}
	}
	return func(path fieldpath.Path) bool {
		return former != nil && overlay.Has(former, path) && !overlay.Has(s.body, path)
	}, note
}
