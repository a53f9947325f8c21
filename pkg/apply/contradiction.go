package apply

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/apply/overlay"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/apply/trial"
)

// takeOver takes sole ownership of the values that make the server reject an apply. Then it applies again, which removes them. It takes
// only union members that exclude the manifest's, and values without an owner. A value with another owner is an error. It also adopts
// fields of former managers. If the process crashes in between, the next apply removes the values.
func (s *submission) takeOver(ctx context.Context, live *unstructured.Unstructured, refused error) (answer, error) {
	var conflict error
	for range attempts {
		before := live.GetManagedFields()
		entries, err := s.adoptable(ctx, before)
		if err != nil {
			return answer{}, err
		}
		found, _, err := s.trial().Blocking(ctx, live, entries, refused)
		if err != nil {
			return answer{}, err
		}
		if err := trial.Contested(refused, found); err != nil {
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

// trial returns the trial of the body.
func (s *submission) trial() trial.Trial {
	return trial.Trial{Client: s.applier.client, Target: s.target, GVK: s.m.GVK(), Body: s.body}
}

// recordTaken adds to taken the values that other writers lose.
func (s *submission) recordTaken(values []overlay.Value) {
	for _, v := range values {
		if len(v.Owners) > 0 {
			s.taken = append(s.taken, v.String())
		}
	}
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
