package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/overlay"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/apply/trial"
)

// errNothingBlocks means that no value outside the manifest makes the server reject the object.
var errNothingBlocks = errors.New("no value blocks the apply")

// takeOver takes sole ownership of the values that make the server reject an apply. Then it applies again, which removes them. It takes
// only union members that exclude the manifest's, and values without an owner. A value with another owner is an error. It also adopts
// fields of former managers. If the process crashes in between, the next apply removes the values.
func (s *submission) takeOver(ctx context.Context, live *unstructured.Unstructured, refused error) (answer, error) {
	var conflict error
	for range attempts {
		found, _, err := s.findBlocking(ctx, live, refused)
		if err != nil {
			return answer{}, err
		}
		if err := failure.Contested(refused, found); err != nil {
			return answer{}, err
		}
		before := live.GetManagedFields()
		entries, err := s.adoptable(ctx, before)
		if err != nil {
			return answer{}, err
		}
		entries, _ = ownership.Adopt(s.m.GVK(), entries)
		entries, _ = ownership.Take(s.m.GVK(), entries, overlay.Paths(found))
		stored, err := s.applier.client.SetManagers(ctx, s.target, live.GetResourceVersion(), entries)
		switch {
		case apierrors.IsConflict(err):
			conflict = err
			if live, err = s.readLive(ctx); apierrors.IsNotFound(err) {
				return answer{}, refused
			} else if err != nil {
				return answer{}, err
			}
			continue
		case err != nil:
			return answer{}, fmt.Errorf("taking over conflicting fields: %w", err)
		}
		got, err := s.send(ctx)
		if apierrors.IsInvalid(err) { // another writer was faster: later applies must not remove its values
			if _, restoring := s.applier.client.SetManagers(ctx, s.target, stored.ResourceVersion, before); restoring != nil {
				err = fmt.Errorf("giving up fields that cannot be removed: %w", restoring)
			}
			return answer{}, err
		}
		if err == nil {
			s.recordTaken(found)
		}
		return got, err
	}
	return answer{}, fmt.Errorf("taking over conflicting fields: %w", conflict)
}

// recordTaken adds to taken the values that other writers lose.
func (s *submission) recordTaken(values []overlay.Value) {
	for _, v := range values {
		if len(v.Owners) > 0 {
			s.taken = append(s.taken, v.String())
		}
	}
}

// maxNear limits the number of values around a rejected field that are examined one by one.
const maxNear = 16

// findBlocking uses dry runs to find the values that the server does not accept together with the manifest. It returns these values and the
// object that the server accepts without them. If there are none, the error is errNothingBlocks.
func (s *submission) findBlocking(ctx context.Context, live *unstructured.Unstructured, refused error,
) ([]overlay.Value, *unstructured.Unstructured, error) {
	entries, err := s.adoptable(ctx, live.GetManagedFields())
	if err != nil {
		return nil, nil, err
	}
	entries, adopted := ownership.Adopt(s.m.GVK(), entries)
	live = live.DeepCopy()
	live.SetManagedFields(entries)
	var found []overlay.Value
	last := refused
	for range attempts {
		values := s.overlaid(live, found).Named(failure.Rejections(last))
		if len(values) == 0 && !adopted {
			break
		}
		adopted = false
		object, err := s.without(ctx, live, append(slices.Clone(found), values...))
		if err == nil || !apierrors.IsInvalid(err) {
			return append(found, values...), object, err
		}
		if len(values) > 0 && failure.IsSameRefusal(err, last) {
			break
		}
		found, last = append(found, values...), err
	}
	near := s.overlaid(live, found).Near(failure.Rejections(last))
	near = near[:min(len(near), maxNear)]
	if len(near) == 0 {
		return nil, nil, errNothingBlocks
	}
	object, err := s.without(ctx, live, append(slices.Clone(found), near...))
	if apierrors.IsInvalid(err) {
		return nil, nil, errNothingBlocks
	}
	for i := len(near) - 1; i >= 0 && err == nil; i-- { // keep values that the server accepts
		fewer := slices.Delete(slices.Clone(near), i, i+1)
		less, trial := s.without(ctx, live, append(slices.Clone(found), fewer...))
		if trial == nil {
			near, object = fewer, less
		} else if !apierrors.IsInvalid(trial) {
			err = trial
		}
	}
	return append(found, near...), object, err
}

// overlaid returns the overlay of the body on the live object without some of the object's values.
func (s *submission) overlaid(live *unstructured.Unstructured, values []overlay.Value) *overlay.Overlay {
	rest := &unstructured.Unstructured{Object: live.Object}
	for _, v := range values {
		rest.Object, _ = overlay.Without(rest.Object, v.Path).(map[string]any)
	}
	return overlay.Lay(s.m.GVK(), s.body, rest)
}

// without checks in a dry run whether the server accepts the object without some of the live object's values.
func (s *submission) without(ctx context.Context, live *unstructured.Unstructured, values []overlay.Value) (*unstructured.Unstructured, error) {
	return s.applier.client.DryUpdate(ctx, s.target, s.overlaid(live, values).Object())
}

// ownFault returns an error unless the server rejects the object also without the values of other writers. Only then does the manifest change an
// immutable field. Otherwise such a value contradicts the manifest, or the server has changed its mind: it serves a changed definition a
// moment late.
func (s *submission) ownFault(ctx context.Context, live *unstructured.Unstructured, refused error) error {
	object, _ := s.overlaid(live, nil).Object().(map[string]any)
	_, err := s.applier.client.DryUpdate(ctx, s.target, trial.Alone(s.body, object))
	switch {
	case failure.Persists(refused, err):
		return nil
	case err == nil || apierrors.IsInvalid(err):
		if _, err := s.without(ctx, live, nil); err == nil {
			return refused // the server has changed its mind
		}
		return cmp.Or(failure.Contested(refused, failure.Others(refused, s.body, live)), refused)
	}
	return fmt.Errorf("checking whether it cannot be changed: %w", err)
}

// readLive reads the whole object. If its managedFields were stripped, it adds the entries with which the server would start, because only
// managedFields show which lists have keys.
func (s *submission) readLive(ctx context.Context) (*unstructured.Unstructured, error) {
	live, err := s.applier.client.Object(ctx, s.target)
	if err != nil || len(live.GetManagedFields()) > 0 {
		return live, err
	}
	nothing := map[string]any{
		"apiVersion": s.body["apiVersion"], "kind": s.body["kind"], "metadata": map[string]any{"name": s.target.Name},
	}
	with, _, err := s.applier.client.DryApply(ctx, s.target, nothing, true)
	if err != nil {
		return nil, err
	}
	live.SetManagedFields(with.GetManagedFields())
	return live, nil
}
