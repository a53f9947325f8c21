package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var crdKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// propagation is how what belongs to an object goes with it: first for workloads, so that their pods are gone when they
// are, and in the background for everything else.
func propagation(gk schema.GroupKind) metav1.DeletionPropagation {
	workloads := map[string][]string{
		"apps":  {"Deployment", "DaemonSet", "StatefulSet", "ReplicaSet"},
		"batch": {"Job", "CronJob"},
		"":      {"ReplicationController"},
	}
	if slices.Contains(workloads[gk.Group], gk.Kind) {
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// recreate deletes the object and creates it again. What takes time to go is reported as Deleting; an apply of a later
// pass is refused again while it is there, comes here again and sees it going, and creates it when it is gone.
// Nothing is deleted that the server would not let us create.
func (s *sending) recreate(ctx context.Context, refused error, why string) (Change, answer, error) {
	var seen types.UID
	for range attempts {
		meta, err := s.applier.client.get(ctx, s.target)
		switch {
		case apierrors.IsNotFound(err):
			return s.createAgain(ctx, why)
		case err != nil:
			return Change{}, answer{}, err
		case meta.DeletionTimestamp != nil:
			return going(meta, why), answer{}, nil
		case seen == "":
			if err := s.creatable(ctx, refused); err != nil {
				return Change{}, answer{}, err
			}
		case seen != meta.UID:
			return Change{}, answer{}, fmt.Errorf("deleting it to create it again, since %s: somebody else has created it meanwhile", why)
		}
		seen = meta.UID
		left, err := s.applier.client.delete(ctx, s.target, meta, true, propagation(s.m.GVK().GroupKind()))
		switch {
		case apierrors.IsConflict(err):
			continue
		case apierrors.IsNotFound(err), err == nil && left == nil:
			return s.createAgain(ctx, why)
		case err != nil:
			return Change{}, answer{}, fmt.Errorf("deleting it to create it again, since %s: %w", why, err)
		}
		return going(left, why), answer{}, nil
	}
	return Change{}, answer{}, fmt.Errorf("deleting it to create it again: %w",
		apierrors.NewConflict(s.target.resource.GroupResource(), s.target.name, fmt.Errorf("it changed each time")))
}

// going is the change of an object that has to be gone first.
func going(meta *metav1.PartialObjectMetadata, why string) Change {
	change := receipt(Deleting, meta)
	change.Deleting = true
	change.Message = waiting(meta) + "; it is created again then, since " + why
	return change
}

func (s *sending) createAgain(ctx context.Context, why string) (Change, answer, error) {
	got, err := s.send(ctx)
	if err != nil {
		return Change{}, answer{}, fmt.Errorf("creating it again: %w", err)
	}
	change := s.receipt(got)
	if got.created {
		change.Action = Recreated
		change.Message = why
	}
	return change, got, nil
}

// creatable has the server say whether it would take the object as a new one, before the one that is there is deleted
// for it. What only the latter is in the way of (an address, a port) does not count, and neither does a webhook that
// cannot be asked without consequences.
func (s *sending) creatable(ctx context.Context, refused error) error {
	data, err := json.Marshal(s.body)
	if err != nil {
		return fmt.Errorf("%w: %w", errManifest, err)
	}
	err = s.applier.client.check(ctx, s.target, data)
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "dry run"):
		return nil
	case apierrors.IsInvalid(err):
		list := slices.DeleteFunc(causes(err), func(c cause) bool { return strings.Contains(c.detail, "already allocated") })
		if len(list) == 0 {
			return nil
		}
		fields, _ := immutable(causes(refused))
		if len(fields) == 0 {
			return refused // it is simply invalid
		}
		return &refusal{
			cause: "the object that is there cannot become this one", fields: fields, err: err,
			text:   "a new one would be refused as well: " + summary(err),
			remedy: "correct the manifest; nothing was deleted",
		}
	}
	return fmt.Errorf("asking whether it could be created again: %w", err)
}
