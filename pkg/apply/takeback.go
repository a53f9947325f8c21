package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/overlay"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Former returns the manifests of an object in the releases that the cluster may have applied before this one. With ErrNoFormer, it returns
// those that are still available, and the apply continues with them. After other errors the apply fails, and the caller retries it.
type Former func(ctx context.Context, id manifest.ID) ([]*manifest.Manifest, error)

// ErrNoFormer means that an earlier release is no longer available.
var ErrNoFormer = errors.New("fields of the earlier release may remain")

// takeBack makes our fields ours alone again if the server has assigned all fields to the manager before-first-apply, so that nothing that a
// release drops would disappear. The server does so after another client has made it discard the object's managedFields, for example by
// writing a custom resource in another version than we did. takeBack also removes the fields that an earlier manifest sets and this one does
// not. Applied objects that another client created without managedFields are treated in the same way.
func (s *submission) takeBack(ctx context.Context, change Change, got answer) (Change, answer, error) {
	if !s.isDiscarded(got.meta.UID, got.meta.ManagedFields) {
		return change, got, nil
	}
	lost, note, err := s.lost(ctx)
	if err != nil {
		return Change{}, answer{}, err
	}
	before := got // the last answer to an apply
	var conflict, refused error
	for range attempts {
		entries, more, changed := ownership.TakeBack(s.m.GVK(), got.meta.ManagedFields, lost)
		switch {
		case !changed && refused == nil:
			return s.receipt(got), got, nil
		case !changed:
			s.takenBack = ""
			return s.release(ctx, before, got.meta, refused)
		}
		stored, err := s.applier.client.SetManagers(ctx, s.target, got.meta.ResourceVersion, entries)
		switch {
		case err == nil:
		case apierrors.IsConflict(err):
			conflict = err
			// The other write may have changed our fields. A receipt without them would hide that from the watch.
			if got, err = s.send(ctx); err != nil {
				return Change{}, answer{}, fmt.Errorf("taking back fields: %w", err)
			}
			if before = got; got.meta.UID != s.applier.options.UID { // another client has replaced the object
				return s.receipt(got), got, nil
			}
			continue
		case failure.IsDenied(err): // the apply itself has succeeded
			s.takenBack, s.unadopted = "", "cannot take back its fields, whose owners the server discarded: "+err.Error()
			return s.receipt(before), before, nil
		default:
			return Change{}, answer{}, fmt.Errorf("taking back fields: %w", err)
		}
		s.takenBack = "took back its fields, whose owners the server had discarded" + note
		got = answer{meta: stored, created: before.created}
		if !more {
			return s.receipt(got), got, nil
		}
		got, err = s.send(ctx)
		switch {
		case err == nil:
			return s.receipt(got), got, nil
		case !apierrors.IsInvalid(err):
			return Change{}, answer{}, fmt.Errorf("taking back fields: %w", err)
		case refused != nil:
			s.takenBack = ""
			return s.release(ctx, before, stored, refused)
		}
		// An object such as a probe is incomplete if only its defaults remain.
		refused, lost, got = err, ownership.WithChildren(lost), answer{meta: stored, created: before.created}
	}
	return Change{}, answer{}, fmt.Errorf("taking back fields: %w", conflict)
}

// isDiscarded reports whether an applied object of ours has the UID, and the server has discarded the owners of its fields.
func (s *submission) isDiscarded(uid types.UID, entries []metav1.ManagedFieldsEntry) bool {
	return uid != "" && uid == s.applier.options.UID && ownership.Discarded(s.m.GVK(), entries)
}

// lost returns a function that reports whether an earlier manifest sets a field and this one does not. It does not count the number of
// replicas and its parents, because the number stays; see releaseReplicas. If an earlier manifest is not available, note explains the
// effect.
func (s *submission) lost(ctx context.Context) (lost func(fieldpath.Path) bool, note string, err error) {
	var earlier []map[string]any
	if read := s.applier.options.Former; read != nil {
		manifests, err := read(ctx, s.m.ID())
		switch {
		case ctx.Err() != nil:
			return nil, "", ctx.Err()
		case errors.Is(err, ErrNoFormer):
			note = "; " + err.Error()
		case err != nil:
			return nil, "", &failure.Diagnosis{
				Cause: failure.ErrRetrieval.Error(), Text: "taking back fields: " + err.Error(), Err: fmt.Errorf("%w: %w", failure.ErrRetrieval, err),
				Remedy: "make its registry reachable; after some minutes the update continues without this release",
			}
		}
		for _, m := range manifests {
			content, err := s.earlier(ctx, m)
			if err != nil {
				note += fmt.Sprintf("; %v: %v", ErrNoFormer, err)
				continue
			}
			earlier = append(earlier, content)
		}
	}
	replicas := s.replicasPath()
	return func(path fieldpath.Path) bool {
		sets := func(object map[string]any) bool { return overlay.Has(object, path) }
		return slices.ContainsFunc(earlier, sets) && !sets(s.body) && !ownership.Contains(path, replicas)
	}, note, nil
}

// earlier returns the body of an earlier manifest. If a webhook converts between its API version and ours, only metadata can be compared.
func (s *submission) earlier(ctx context.Context, m *manifest.Manifest) (map[string]any, error) {
	content, _, err := s.applier.builder.Build(m, s.target.Namespace != "")
	if err != nil || m.GVK() == s.m.GVK() {
		return content, err
	}
	crd, err := s.definition(ctx)
	if err != nil || crd.OnlyRenames {
		return content, err
	}
	return map[string]any{"metadata": content["metadata"]}, nil
}
