package apply

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/cluster-version/cvo/pkg/apply/drop"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/overlay"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/apply/trial"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Prediction is the predicted result of Apply for one object.
type Prediction struct {
	// Action is Created, Applied (the object exists, and Object shows whether anything would change), Recreated, Kept, Deleted (no object
	// exists), Deleting (an object exists) or Skipped.
	Action Action
	// Object is the whole object as the server would store it. For Kept and Deleting, it is the existing object if it was read; otherwise
	// nil.
	Object *unstructured.Unstructured
	// Dropped is the same as in Change.
	Dropped []string
	// Message is the same as in Change.
	Message string
}

// Predict predicts the result of Apply. It sends the same requests with dryRun=All, so that the server checks admission, schema and
// validation but stores nothing. It cannot fully predict an Apply of several steps, because each step needs the stored result of the
// previous one. For example, Object still contains fields of former managers that adoption would remove, and for a recreation it is only
// what the server would accept as a new object. Predict returns the same errors as Apply without Strict.
func (a *Applier) Predict(ctx context.Context, m *manifest.Manifest, mode release.Mode) (Prediction, error) {
	target, mapping, err := a.target(ctx, m)
	if err != nil {
		if m.Tombstone() && kinds.IsNoMatch(err) {
			return Prediction{Action: Deleted, Message: "its kind is not served"}, nil
		}
		return Prediction{}, failure.Wrap(m, err)
	}
	var f Prediction
	switch {
	case m.Tombstone() && mode == release.Initializing:
		return Prediction{Action: Skipped, Message: "tombstones have no effect during an install"}, nil
	case m.Tombstone():
		f, err = a.predictRemove(ctx, target, m)
	case m.CreateOnly():
		f, err = a.predictCreateOnly(ctx, target, m)
	default:
		replicas, _ := a.unsetReplicas(m, mapping) // without a watch, they may always be ours
		f, err = a.predictApply(ctx, target, m, replicas)
	}
	return f, failure.Wrap(m, err)
}

func (a *Applier) predictApply(ctx context.Context, t request.Target, m *manifest.Manifest, replicas []string) (Prediction, error) {
	s, err := a.newSubmission(t, m, true)
	if err != nil {
		return Prediction{}, err
	}
	if s.replicas = replicas; len(replicas) > 0 {
		if err := s.predictReplicas(ctx); err != nil {
			return Prediction{}, err
		}
	}
	f, err := s.predict(ctx)
	if apierrors.IsInvalid(err) {
		f, err = s.predictRefused(ctx, err)
	} else if err == nil && isJob(m) {
		f, err = s.predictRerun(ctx, f)
	}
	if err != nil || f.Action != Applied {
		return f, err
	}
	return s.predictTakeBack(ctx, f)
}

// predictTakeBack is takeBack as a dry run. The server cannot apply on top of the entries that takeBack would write, so the overlay removes
// the fields.
func (s *submission) predictTakeBack(ctx context.Context, f Prediction) (Prediction, error) {
	if !s.isDiscarded(f.Object.GetUID(), f.Object.GetManagedFields()) {
		return f, nil
	}
	lost, note, err := s.lost(ctx)
	if err != nil {
		return f, err
	}
	message := texts(f.Message, "takes back its fields, whose owners the server has discarded"+note)
	for _, removes := range []func(fieldpath.Path) bool{lost, ownership.WithChildren(lost)} {
		entries, more, _ := ownership.TakeBack(s.m.GVK(), f.Object.GetManagedFields(), removes)
		if !more {
			f.Message = message
			return f, nil
		}
		live := f.Object.DeepCopy()
		live.SetManagedFields(entries)
		object, err := s.applier.client.DryUpdate(ctx, s.target, overlay.Lay(s.m.GVK(), s.body, live).Object())
		if err == nil {
			f.Object, f.Message = object, message
			return f, nil
		}
		if !apierrors.IsInvalid(err) {
			return f, err
		}
	}
	return f, nil // takeBack would keep the fields too
}

// predict is send as a dry run.
func (s *submission) predict(ctx context.Context) (Prediction, error) {
	for {
		object, code, err := s.applier.client.DryApply(ctx, s.target, s.body, s.force)
		if err == nil {
			f := Prediction{Action: Applied, Object: object, Dropped: s.dropped, Message: s.exceptions()}
			if code == http.StatusCreated {
				f.Action = Created
			}
			return f, nil
		}
		if w, err := s.findRewrite(ctx, err); err != nil {
			return Prediction{}, err
		} else if w != nil {
			object, err := s.applier.client.DryUpdate(ctx, s.target, s.dryRun(w))
			return Prediction{Action: Applied, Object: object, Dropped: s.dropped, Message: s.exceptions()}, err
		}
		without, removed := drop.Refused(s.body, err)
		if len(removed) == 0 || len(s.dropped) >= drop.Max {
			return Prediction{}, err
		}
		s.body, s.dropped = without, append(s.dropped, removed...)
	}
}

// predictRefused is refused as a dry run.
func (s *submission) predictRefused(ctx context.Context, refused error) (Prediction, error) {
	live, err := s.readLive(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return Prediction{}, refused
	case err != nil:
		return Prediction{}, err
	case live.GetDeletionTimestamp() != nil:
		return s.predictUnchangeable(ctx, live, refused, trial.Accepted)
	}
	if s.yieldToLive(live) {
		f, err := s.predict(ctx)
		if err == nil && isJob(s.m) {
			return s.predictRerun(ctx, f)
		}
		if !apierrors.IsInvalid(err) {
			return f, err
		}
		refused = err
	}
	judgment, err := s.trial().NewObject(ctx, live)
	if err != nil || judgment == trial.Rejected {
		return Prediction{}, cmp.Or(err, refused)
	}
	entries, err := s.adoptable(ctx, live.GetManagedFields())
	if err != nil {
		return Prediction{}, err
	}
	found, object, err := s.trial().Blocking(ctx, live, entries, refused)
	switch {
	case errors.Is(err, trial.ErrNothingBlocks):
		without, applied, err := s.withoutFormerOwner(ctx, live)
		if err == nil && without == nil {
			return s.predictUnchangeable(ctx, live, refused, judgment)
		}
		return Prediction{Action: Applied, Object: applied, Dropped: s.dropped, Message: s.exceptions()}, err
	case err != nil:
		return Prediction{}, err
	}
	if err := trial.Contested(refused, found); err != nil {
		return Prediction{}, err
	}
	f := Prediction{Action: Applied, Object: object, Dropped: s.dropped}
	if len(found) > 0 {
		names := make([]string, len(found))
		for i, v := range found {
			names[i] = v.String()
		}
		f.Message = "values that contradict the manifest are removed first: " + strings.Join(names, "; ")
	}
	f.Message = texts(f.Message, s.exceptions())
	return f, nil
}

// predictUnchangeable is unchangeable as a dry run.
func (s *submission) predictUnchangeable(ctx context.Context, live *unstructured.Unstructured, refused error, judgment trial.Judgment) (Prediction, error) {
	why, err := s.immutable(ctx, live, refused, judgment)
	if err != nil {
		return Prediction{}, err
	}
	return Prediction{Action: Recreated, Dropped: s.dropped, Message: why}, nil
}

// predictCreateOnly first reads the object. If it exists, no other request is needed.
func (a *Applier) predictCreateOnly(ctx context.Context, t request.Target, m *manifest.Manifest) (Prediction, error) {
	object, err := a.client.Object(ctx, t)
	if err == nil {
		return Prediction{Action: Kept, Object: object}, nil
	}
	if !apierrors.IsNotFound(err) {
		return Prediction{}, err
	}
	content, dropped, err := a.builder.Build(m, t.Namespace != "")
	if err != nil {
		return Prediction{}, err
	}
	object, unknown, err := a.client.DryCreate(ctx, t, content)
	if apierrors.IsAlreadyExists(err) {
		return Prediction{Action: Kept}, nil
	}
	if err != nil {
		return Prediction{}, err
	}
	return Prediction{Action: Created, Object: object, Dropped: append(dropped, unknown...)}, nil
}

func (a *Applier) predictRemove(ctx context.Context, t request.Target, m *manifest.Manifest) (Prediction, error) {
	object, err := a.client.Object(ctx, t)
	if err == nil && object.GetDeletionTimestamp() == nil {
		err = a.client.DryDelete(ctx, t, propagation(m.GVK().GroupKind()))
	}
	if apierrors.IsNotFound(err) {
		return Prediction{Action: Deleted}, nil
	}
	if err != nil {
		return Prediction{}, err
	}
	return Prediction{Action: Deleting, Object: object}, nil
}
