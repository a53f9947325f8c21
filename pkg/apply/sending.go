package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/ownership"
)

// attempts bounds how often a request is repeated for another writer that was faster.
const attempts = 4

// sending is one manifest on its way to the server. What the server does not take is left out of the body from then on.
type sending struct {
	applier *Applier
	target  target
	m       *manifest.Manifest
	body    map[string]any
	force   bool
	dropped []string
	// taken is what others lost for the manifest's sake.
	taken []string
}

// answer is the server's to an apply that it accepted.
type answer struct {
	meta    *metav1.PartialObjectMetadata
	created bool
}

// sending prepares to apply a manifest. With force it takes over what others have set to other values.
func (a *Applier) sending(t target, m *manifest.Manifest, force bool) (*sending, error) {
	body, dropped, err := a.prepared(m, t.namespace != "")
	if err != nil {
		return nil, err
	}
	return &sending{applier: a, target: t, m: m, body: body, force: force, dropped: dropped}, nil
}

// prepared returns the body of a manifest, and what was left out of it because no server would take it.
func (a *Applier) prepared(m *manifest.Manifest, namespaced bool) (body map[string]any, dropped []string, err error) {
	if body, err = a.body(m, namespaced); err != nil {
		return nil, nil, err
	}
	if spec, ok := body["spec"].(map[string]any); ok && isJob(m) && spec["manualSelector"] != true && spec["selector"] != nil {
		// The server makes the selector of a Job, unless it is told not to, and refuses any that is given.
		spec = maps.Clone(spec)
		delete(spec, "selector")
		body["spec"] = spec
		dropped = []string{".spec.selector"}
	}
	return body, dropped, nil
}

// send applies the body, leaving out what server-side apply refuses where an update would take it or drop it in silence:
// fields that the schema does not know, and all but the last of several list entries with one key.
func (s *sending) send(ctx context.Context) (answer, error) {
	for {
		data, err := json.Marshal(s.body)
		if err != nil {
			return answer{}, fmt.Errorf("%w: %w", errManifest, err)
		}
		meta, code, err := s.applier.client.apply(ctx, s.target, data, s.force)
		if err == nil {
			return answer{meta: meta, created: code == http.StatusCreated}, nil
		}
		without, removed := withoutRefused(s.body, err)
		if len(removed) == 0 || len(s.dropped) >= maxDropped {
			return answer{}, err
		}
		s.body, s.dropped = without, append(s.dropped, removed...)
	}
}

func (s *sending) receipt(got answer) Change {
	action := Applied
	if got.created {
		action = Created
	}
	change := receipt(action, got.meta)
	change.Dropped = s.dropped
	if len(s.taken) > 0 && change.Message == "" {
		change.Message = "removed what does not go with the manifest: " + strings.Join(s.taken, "; ")
	}
	return change
}

// adopt makes fields ours that update-style managers of an earlier operator wrote, if the answer shows any that the
// manifest does not have, and applies once more to remove them: two more requests, once in an object's life. Killed in
// between, the next apply removes them.
func (s *sending) adopt(ctx context.Context, got answer) (Change, answer, error) {
	var conflict error = apierrors.NewConflict(s.target.resource.GroupResource(), s.target.name,
		errors.New("an earlier operator, or one by our name, still writes them"))
	for range attempts {
		entries, needed := ownership.Adopt(s.m.GVK(), got.meta.ManagedFields)
		if !needed {
			return s.receipt(got), got, nil
		}
		before := got
		adopted, err := s.applier.client.setManagers(ctx, s.target, got.meta, entries)
		if err == nil {
			if got, err = s.send(ctx); apierrors.IsInvalid(err) {
				return s.release(ctx, before, adopted, err)
			}
		} else if apierrors.IsConflict(err) {
			conflict = err
			got, err = s.send(ctx)
		}
		if err != nil {
			return Change{}, answer{}, fmt.Errorf("taking over fields of an earlier operator: %w", err)
		}
	}
	return Change{}, answer{}, fmt.Errorf("taking over fields of an earlier operator: %w", conflict)
}

// release gives fields up that were adopted but cannot be removed. They belong to nobody then, which is how the server
// has what it set itself.
func (s *sending) release(ctx context.Context, before answer, adopted *metav1.PartialObjectMetadata, refusal error,
) (Change, answer, error) {
	entries := ownership.Restore(adopted.ManagedFields, before.meta.ManagedFields)
	meta, err := s.applier.client.setManagers(ctx, s.target, adopted, entries)
	if err != nil {
		return Change{}, answer{}, fmt.Errorf("giving up fields of an earlier operator: %w", err)
	}
	got := answer{meta: meta}
	change := s.receipt(got)
	if change.Message == "" {
		change.Message = "fields that an earlier operator set cannot be removed: " + summary(refusal)
	}
	return change, got, nil
}
