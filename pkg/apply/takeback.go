package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/overlay"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Former returns the manifests of an object in the releases that the cluster may have applied before this one. After ErrNoFormer, the apply
// does without them; after other errors it fails, and the caller repeats it.
type Former func(ctx context.Context, id manifest.ID) ([]*manifest.Manifest, error)

// ErrNoFormer means that an earlier release is no longer available.
var ErrNoFormer = errors.New("fields of the release before may remain")

// takeBack makes our fields ours alone again after another client has made the server discard the object's managedFields, for example by
// writing a custom resource in another version than we did. The server has assigned all fields to the manager before-first-apply since, so
// nothing that a release drops would disappear. It also removes the fields that the former manifest sets and this one does not.
func (s *submission) takeBack(ctx context.Context, change Change, got answer) (Change, answer, error) {
	o := s.applier.options
	if o.UID == "" || got.meta == nil || o.UID != got.meta.UID || !ownership.DiscardedSince(got.meta.ManagedFields, o.Time) {
		return change, got, nil
	}
	lost, note, err := s.lost(ctx)
	if err != nil {
		return Change{}, answer{}, err
	}
	var conflict error
	for range attempts {
		entries, more, changed := ownership.TakeBack(s.m.GVK(), got.meta.ManagedFields, lost)
		if !changed {
			return s.receipt(got), got, nil
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
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err): // an admission policy; the apply itself has succeeded
			s.takenBack = "cannot take back its fields, whose owners the server discarded: " + err.Error()
			return s.receipt(before), before, nil
		case err != nil:
			return Change{}, answer{}, fmt.Errorf("taking back fields: %w", err)
		case !more:
			got = answer{meta: stored, created: before.created}
			return s.receipt(got), got, nil
		}
		got, err = s.send(ctx)
		switch {
		case failure.IsRefusal(err):
			s.takenBack = ""
			return s.release(ctx, before, stored, err)
		case err != nil:
			return Change{}, answer{}, fmt.Errorf("taking back fields: %w", err)
		}
		return s.receipt(got), got, nil
	}
	return Change{}, answer{}, fmt.Errorf("taking back fields: %w", conflict)
}

// lost returns a function that reports whether an earlier manifest sets a field and this one does not. It does not count the number of
// replicas and its parents, because the number stays; see releaseReplicas. If no earlier manifest is available, the function returns false,
// and note says so.
func (s *submission) lost(ctx context.Context) (lost func(fieldpath.Path) bool, note string, err error) {
	var earlier []map[string]any
	if read := s.applier.options.Former; read != nil {
		manifests, err := read(ctx, s.m.ID())
		if err != nil && !errors.Is(err, ErrNoFormer) {
			return nil, "", fmt.Errorf("taking back fields: %w", err)
		} else if err != nil {
			note = "; " + err.Error()
		}
		for _, m := range manifests {
			content, _, err := s.applier.builder.Build(m, s.target.Namespace != "")
			if err != nil {
				return nil, "", fmt.Errorf("taking back fields of an earlier manifest: %w", err)
			}
			earlier = append(earlier, content)
		}
	}
	replicas := s.replicasPath()
	return func(path fieldpath.Path) bool {
		sets := func(object map[string]any) bool { return overlay.Has(object, path) }
		return slices.ContainsFunc(earlier, sets) && !sets(s.body) && !contains(path, replicas)
	}, note, nil
}

// contains reports whether the field at path is or contains the one at inner.
func contains(path, inner fieldpath.Path) bool {
	return len(path) <= len(inner) && path.Equals(inner[:len(path)])
}
