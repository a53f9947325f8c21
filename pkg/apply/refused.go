package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/overlay"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/apply/trial"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// refused handles an apply that the server rejects with 422. The text of the rejection is not a stable interface, so refused uses dry runs,
// which store nothing, to find the reason:
//
//   - The object has another controller. Then our owner reference is applied without a claim to be the controller. If that controller is an
//     earlier ClusterVersion, the reference to it is removed.
//   - The server also rejects the manifest as a new object. Then the manifest is invalid.
//   - The server accepts the object without certain values that the manifest lacks. They are removed if the manifest may do so.
//   - The server accepts only a new object, and rejects this one also without any value of other writers. Then the manifest changes an
//     immutable field, and the object can only be recreated. A denial by a webhook or a policy does not count.
func (s *submission) refused(ctx context.Context, refused error) (Change, answer, error) {
	live, err := s.readLive(ctx)
	switch {
	case apierrors.IsNotFound(err):
		change, got, err := s.recreateMissing(ctx, "it was deleted in the meantime")
		if apierrors.IsInvalid(err) {
			return Change{}, answer{}, refused // it never existed
		}
		return change, got, err
	case err != nil:
		return Change{}, answer{}, err
	case live.GetDeletionTimestamp() != nil:
		return s.unchangeable(ctx, live, refused, trial.Accepted)
	}
	if s.yieldToLive(live) {
		got, err := s.send(ctx)
		if err == nil {
			return s.sent(ctx, got)
		}
		if !apierrors.IsInvalid(err) {
			return Change{}, answer{}, err
		}
		refused = err
	}
	judgment, err := s.trial().NewObject(ctx, live)
	if err != nil || judgment == trial.Rejected {
		return Change{}, answer{}, cmp.Or(err, refused)
	}
	got, done, err := s.absorb(ctx, live)
	if err != nil {
		return Change{}, answer{}, err
	}
	if done {
		return s.takeBack(ctx, s.receipt(got), got)
	}
	got, err = s.takeOver(ctx, live, refused)
	switch {
	case err == nil:
		return s.takeBack(ctx, s.receipt(got), got)
	case !errors.Is(err, trial.ErrNothingBlocks):
		return Change{}, answer{}, err
	}
	without, _, err := s.withoutFormerOwner(ctx, live)
	switch {
	case err != nil:
		return Change{}, answer{}, err
	case without == nil:
		return s.unchangeable(ctx, live, refused, judgment)
	}
	if _, err := s.applier.client.Replace(ctx, s.target, without); err != nil {
		return Change{}, answer{}, fmt.Errorf("removing the reference to an earlier ClusterVersion: %w", err)
	}
	if got, err = s.send(ctx); err != nil {
		return Change{}, answer{}, err
	}
	return s.takeBack(ctx, s.receipt(got), got)
}

// withoutFormerOwner returns a live object without an earlier ClusterVersion as its controller, and the object as the server would store it
// after the next apply. It returns nil if that does not make the apply possible. No manager may own such a reference, for example if the
// object comes from a backup. There is only one ClusterVersion of a name, so the reference has no object.
func (s *submission) withoutFormerOwner(ctx context.Context, live *unstructured.Unstructured) (without, applied *unstructured.Unstructured, err error) {
	owner, before := s.applier.builder.Owner, live.GetOwnerReferences()
	after := slices.DeleteFunc(slices.Clone(before), func(r metav1.OwnerReference) bool {
		return r.Controller != nil && *r.Controller && ownership.IsClusterVersion(&r) && r.Name == owner.Name && r.UID != owner.UID
	})
	if len(after) == len(before) {
		return nil, nil, nil
	}
	without = live.DeepCopy()
	without.SetOwnerReferences(after)
	applied, err = s.applier.client.DryUpdate(ctx, s.target, overlay.Lay(s.m.GVK(), s.body, without).Object())
	if apierrors.IsInvalid(err) { // there is another reason
		return nil, nil, nil
	}
	return without, applied, err
}

// absorb makes fields of former managers ours and applies again, which removes those that the manifest lacks. A creation by us leaves a
// separate entry next to our Apply entry, and with it the owner reference to an earlier ClusterVersion. done is false if there are no such
// fields or the server also rejects that apply.
func (s *submission) absorb(ctx context.Context, live *unstructured.Unstructured) (got answer, done bool, err error) {
	if !s.hasOtherOwner(live) {
		return answer{}, false, nil // takeOver also adopts these fields, but only if that helps
	}
	before := live.GetManagedFields()
	entries, err := s.adoptable(ctx, before)
	if err != nil {
		return answer{}, false, err
	}
	entries, found := ownership.Absorb(s.m.GVK(), entries)
	if !found {
		return answer{}, false, nil
	}
	stored, err := s.applier.client.SetManagers(ctx, s.target, live.GetResourceVersion(), entries)
	if apierrors.IsConflict(err) {
		return answer{}, false, nil // takeOver reads the object again
	}
	if err != nil {
		return answer{}, false, fmt.Errorf("taking over fields of an earlier write: %w", err)
	}
	got, err = s.send(ctx)
	if !apierrors.IsInvalid(err) {
		return got, err == nil, err
	}
	stored, err = s.applier.client.SetManagers(ctx, s.target, stored.ResourceVersion, before)
	if err != nil {
		return answer{}, false, fmt.Errorf("giving up fields of an earlier write: %w", err)
	}
	live.SetResourceVersion(stored.ResourceVersion)
	return answer{}, false, nil
}

// hasOtherOwner reports whether the object has an owner reference that the manifest does not have.
func (s *submission) hasOtherOwner(live *unstructured.Unstructured) bool {
	wanted := (&unstructured.Unstructured{Object: s.body}).GetOwnerReferences()
	return slices.ContainsFunc(live.GetOwnerReferences(), func(reference metav1.OwnerReference) bool {
		return !slices.ContainsFunc(wanted, func(w metav1.OwnerReference) bool { return w.UID == reference.UID })
	})
}

// unchangeable recreates an object if its manifest allows that. Otherwise, the error contains the remedy.
func (s *submission) unchangeable(ctx context.Context, live *unstructured.Unstructured, refused error, judgment trial.Judgment) (Change, answer, error) {
	why, err := s.immutable(ctx, live, refused, judgment)
	if err != nil {
		return Change{}, answer{}, err
	}
	return s.recreate(ctx, live, why)
}

// immutable returns the reason why an object must be recreated. If its manifest does not allow that, or if it could not be determined
// whether the server accepts a new object, the error says what to do.
func (s *submission) immutable(ctx context.Context, live *unstructured.Unstructured, refused error, judgment trial.Judgment) (why string, err error) {
	fields, detail, err := s.trial().Immutable(ctx, live, refused)
	if err != nil {
		return "", err
	}
	why = fmt.Sprintf("%s cannot be changed: %s", strings.Join(fields, ", "), detail)
	r := &failure.Diagnosis{Cause: "the existing object cannot be changed to this one", Fields: fields, Text: why, Err: refused}
	if judgment == trial.Undetermined {
		r.Cause = "the existing object cannot be changed to this one, unless the manifest is invalid"
	}
	switch {
	case s.m.GVK().GroupKind() == crdKind && strings.HasPrefix(fields[0], "status.storedVersions"):
		r.Remedy = failure.StoredVersionsRemedy(s.body, live)
		return "", r
	case s.m.NeverRecreated():
		r.Remedy = fmt.Sprintf("the operator never deletes objects of kind %s to change a field: revert the change, or give the object a new name", s.m.GVK().Kind)
		return "", r
	case judgment == trial.Undetermined && (s.m.Recreated() || isJob(s.m)):
		return "", refused // the deleted object might be lost
	case s.m.Recreated():
		return why, nil
	case isJob(s.m) && hasFailed(live):
		return "it failed and " + why, nil
	}
	r.Remedy = fmt.Sprintf("annotate the manifest with %s: %s to allow deleting and recreating the object, or give it a new name",
		api.OnImmutableAnnotation, manifest.RecreateValue)
	if isJob(s.m) {
		r.Remedy = fmt.Sprintf("give the Job a new name, or annotate the manifest with %s: %s to allow deleting and rerunning it",
			api.OnImmutableAnnotation, manifest.RecreateValue)
	}
	return "", r
}
