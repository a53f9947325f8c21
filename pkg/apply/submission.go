package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/apply/body"
	"github.com/cluster-version/cvo/pkg/apply/drop"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// attempts is the maximum number of attempts for a request that fails because another writer is faster.
const attempts = 4

// submission is the state of sending one manifest. Parts that the server rejects are removed from the body.
type submission struct {
	applier *Applier
	target  request.Target
	m       *manifest.Manifest
	body    map[string]any
	force   bool
	dropped []string
	// taken lists the fields that other writers lost to the manifest.
	taken []string
	// controller is the object's other controller; empty if none. claimed are then the body's owner references with our claim to be the
	// controller.
	controller string
	claimed    []any
	// replicas is the field that the manifest leaves to the kind's scale subresource; nil for none. released is a note that
	// the field was given up.
	replicas []string
	released string
	// unadopted is the reason why fields were not adopted or taken back. takenBack is a note that fields were taken back; see takeBack.
	unadopted, takenBack string
	// rewrites is the number of writes of rewriteLive, and rewritten is the last one that succeeded.
	rewrites  int
	rewritten *rewrite
}

// answer is the server's response to an accepted apply.
type answer struct {
	meta    *metav1.PartialObjectMetadata
	created bool
}

// newSubmission prepares to apply a manifest. With force, the apply overrides values of other writers.
func (a *Applier) newSubmission(t request.Target, m *manifest.Manifest, force bool) (*submission, error) {
	content, dropped, err := a.builder.Build(m, t.Namespace != "")
	if err != nil {
		return nil, err
	}
	return &submission{applier: a, target: t, m: m, body: content, force: force, dropped: dropped}, nil
}

// send applies the body. It omits parts that server-side apply rejects but that an update would accept or silently drop: fields that the
// schema does not have, and all but the last of several list entries with the same key. With Options.Strict, it omits nothing.
func (s *submission) send(ctx context.Context) (answer, error) {
	for {
		meta, code, err := s.applier.client.Apply(ctx, s.target, s.body, s.force)
		if err == nil {
			return answer{meta: meta, created: code == http.StatusCreated}, nil
		}
		if done, err := s.rewriteLive(ctx, err); err != nil {
			return answer{}, err
		} else if done {
			continue
		}
		without, removed := drop.Refused(s.body, err)
		if len(removed) == 0 || len(s.dropped) >= drop.Max || s.applier.options.Strict {
			return answer{}, err
		}
		s.body, s.dropped = without, append(s.dropped, removed...)
	}
}

func (s *submission) receipt(got answer) Change {
	action := Applied
	if got.created {
		action = Created
	}
	change := receipt(action, got.meta)
	change.Dropped, change.TakenBack = s.dropped, s.takenBack
	change.Message = cmp.Or(change.Message, s.exceptions())
	return change
}

// exceptions describes the differences between the manifest and the applied object, and the values that other writers lost.
func (s *submission) exceptions() string {
	var removed, controller string
	if len(s.taken) > 0 {
		removed = "removed values that contradict the manifest: " + strings.Join(s.taken, "; ")
	}
	if s.controller != "" {
		controller = s.controller + " stays its controller"
	}
	return texts(removed, controller, s.released, s.unadopted, s.takenBack)
}

// texts joins the texts that are not empty.
func texts(all ...string) string {
	return strings.Join(slices.DeleteFunc(all, func(text string) bool { return text == "" }), "; ")
}

// yieldToLive is yieldController for the controller of the live object, if it has another one. It reports whether it removed the claim.
func (s *submission) yieldToLive(live *unstructured.Unstructured) bool {
	controller := ownership.OtherController(live.GetOwnerReferences())
	return controller != nil && s.yieldController(controller.Kind+" "+controller.Name)
}

// yieldController removes the claim to be the object's controller from the body, because the server accepts only one controller. It reports
// whether it removed the claim. The choice is not recorded: the live object shows it.
func (s *submission) yieldController(controller string) bool {
	metadata, _ := s.body["metadata"].(map[string]any)
	references, _ := metadata["ownerReferences"].([]any)
	if s.controller != "" || len(references) == 0 || body.NamesOwner(s.m) {
		return false
	}
	own := make([]any, len(references))
	for i, reference := range references {
		r, _ := reference.(map[string]any)
		r = maps.Clone(r)
		delete(r, "controller")
		own[i] = r
	}
	s.controller, s.claimed = controller, references
	s.body = with(s.body, []string{"metadata", "ownerReferences"}, own)
	return true
}

// claimController undoes yieldController for a new object.
func (s *submission) claimController() {
	if s.controller != "" {
		s.body = with(s.body, []string{"metadata", "ownerReferences"}, s.claimed)
		s.controller, s.claimed = "", nil
	}
}

// with returns a copy of an object with another value for a field. It shares all other parts with the object.
func with(object map[string]any, path []string, value any) map[string]any {
	if object = maps.Clone(object); object == nil {
		object = map[string]any{}
	}
	if len(path) > 1 {
		inner, _ := object[path[0]].(map[string]any)
		value = with(inner, path[1:], value)
	}
	object[path[0]] = value
	return object
}

// adopt takes ownership of fields that an earlier operator wrote by update if the response shows some that the manifest lacks. Then it
// applies again, which removes them. This takes two more requests, once in an object's life. If the process crashes in between, the next
// apply removes them. If the server denies it, the fields stay.
func (s *submission) adopt(ctx context.Context, got answer) (Change, answer, error) {
	var conflict error = apierrors.NewConflict(s.target.Resource.GroupResource(), s.target.Name,
		errors.New("an earlier operator, or another client with the operator's name, keeps writing them"))
	for range attempts {
		entries, err := s.adoptable(ctx, got.meta.ManagedFields)
		if err != nil {
			return Change{}, answer{}, fmt.Errorf("taking over fields of an earlier operator: %w", err)
		}
		entries, needed := ownership.Adopt(s.m.GVK(), entries)
		if !needed {
			return s.receipt(got), got, nil
		}
		before := got
		adopted, err := s.applier.client.SetManagers(ctx, s.target, got.meta.ResourceVersion, entries)
		switch {
		case err == nil:
			if got, err = s.send(ctx); apierrors.IsInvalid(err) {
				return s.release(ctx, before, adopted, err)
			}
		case apierrors.IsConflict(err):
			conflict = err
			got, err = s.send(ctx)
		case failure.IsDenied(err): // the apply itself has succeeded
			s.unadopted = "cannot take over fields of an earlier operator: " + err.Error()
			return s.receipt(got), got, nil
		}
		if err != nil {
			return Change{}, answer{}, fmt.Errorf("taking over fields of an earlier operator: %w", err)
		}
	}
	return Change{}, answer{}, fmt.Errorf("taking over fields of an earlier operator: %w", conflict)
}

// adoptable returns the entries from which fields of former managers are adopted. If a former manager wrote another version, they are those
// of inVersion, so that the fields of that version are adopted too.
func (s *submission) adoptable(ctx context.Context, entries []metav1.ManagedFieldsEntry) ([]metav1.ManagedFieldsEntry, error) {
	version := s.m.GVK().GroupVersion().String()
	if !slices.ContainsFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
		return e.APIVersion != version && ownership.IsFormerManager(&e)
	}) {
		return entries, nil
	}
	moved, err := s.inVersion(ctx, entries, nil)
	if err != nil || moved == nil {
		return entries, err
	}
	return moved, nil
}

// release gives up the ownership of adopted fields that cannot be removed. They then have no owner, like fields that the server sets
// itself.
func (s *submission) release(ctx context.Context, before answer, adopted *metav1.PartialObjectMetadata, refused error,
) (Change, answer, error) {
	entries := ownership.Restore(adopted.ManagedFields, before.meta.ManagedFields)
	meta, err := s.applier.client.SetManagers(ctx, s.target, adopted.ResourceVersion, entries)
	if err != nil {
		return Change{}, answer{}, fmt.Errorf("giving up fields of an earlier operator or release: %w", err)
	}
	got := answer{meta: meta}
	change := s.receipt(got)
	if change.Message == "" {
		change.Message = "fields set by an earlier operator or release cannot be removed: " + failure.Summary(refused)
	}
	return change, got, nil
}
