// Package apply makes one object of a cluster match its manifest and says what that took. It takes a manifest and
// returns a Change; it keeps nothing between calls, waits for nothing, and leaves order, retries and the question
// whether the object works to its callers.
//
// Objects are written by server-side apply under one field manager with conflicts forced. Requests go through a
// schema-free REST client that asks for metadata alone as the answer: it carries all that callers need
// (uid, resourceVersion, generation, field ownership) and spares a copy of the object.
//
// One object takes one request in the normal case. Only an answer or a refusal that asks for it leads to more: fields that
// an earlier operator wrote by update are adopted, what does not go with the manifest is taken out of the way, whoever
// owns it, an object with a field that cannot be changed is deleted and created again if its manifest allows it, and
// what server-side apply does not take is left out and told.
package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/ownership"
	"github.com/cluster-version/cvo/pkg/release"
)

// Action says what happened to an object.
type Action string

const (
	// Created: it was not there.
	Created Action = "created"
	// Applied: the server accepted our fields; whether that changed anything shows in the resource version.
	Applied Action = "applied"
	// Kept: a create-only object that was there already.
	Kept Action = "kept"
	// Deleted: a tombstone whose object is gone, or was never there.
	Deleted Action = "deleted"
	// Deleting: on its way out; a tombstone's object, or one that has to be gone before it can be created again.
	Deleting Action = "deleting"
	// Recreated: it was deleted and created again, because a field that its manifest changed is immutable.
	Recreated Action = "recreated"
	// Skipped: nothing was done, deliberately.
	Skipped Action = "skipped"
)

// Change is the receipt for one manifest.
type Change struct {
	Action Action
	// UID is that of the object; of one that was deleted, what it was, empty if it was not there.
	UID             types.UID
	Generation      int64
	ResourceVersion string
	// Fields stands for what is ours of the object now; zero for an object that is not ours, or gone.
	Fields ownership.Hash
	// Deleting tells that the object has a deletion timestamp: it goes as soon as its finalizers let it, whatever was
	// applied. Unless it is a tombstone's it has to be applied again then.
	Deleting bool
	// Dropped lists what was left out of the manifest: fields that the server's schema does not know, and entries of a
	// list that a later entry with the same key replaces.
	Dropped []string
	// Message says why something was skipped or recreated, or what a deletion waits for; may be empty.
	Message string
}

// Owner is the ClusterVersion that all objects belong to; the zero value marks nothing, for what must be there before it.
type Owner struct {
	Name string
	UID  types.UID
	// ApplySet is the ID of the ApplySet that all objects are labelled as parts of (KEP-3659); empty: none.
	ApplySet string
}

// Applier applies the manifests of one release for one owner.
type Applier struct {
	client *client
	mapper Mapper
	owner  Owner

	injection Injection
}

// New returns an Applier that talks to the API server over client, finds resources by mapper and marks objects as
// belonging to owner. Client-side rate limits are off: API priority and fairness decides, and the client honours
// its Retry-After.
func New(conn *Connection, mapper Mapper, owner Owner) *Applier {
	return &Applier{client: conn.client, mapper: mapper, owner: owner}
}

// RequestTimeout bounds a single request.
const RequestTimeout = 30 * time.Second

// Apply makes the object match its manifest. Errors are *Error, which carry the reason that status reports.
func (a *Applier) Apply(ctx context.Context, m *manifest.Manifest, mode release.Mode) (Change, error) {
	target, err := a.target(ctx, m)
	if err != nil {
		if m.Tombstone() && IsNoMatch(err) {
			return Change{Action: Deleted, Message: "its kind is not served"}, nil
		}
		return Change{}, wrap(m, err)
	}
	var change Change
	switch {
	case m.Tombstone() && mode == release.Initializing:
		return Change{Action: Skipped, Message: "tombstones delete nothing during an install"}, nil
	case m.Tombstone():
		change, err = a.remove(ctx, target, m)
	case m.CreateOnly():
		change, err = a.createOnly(ctx, target, m)
	case isClusterOperator(m):
		change, err = a.clusterOperator(ctx, target, m)
	default:
		change, _, err = a.apply(ctx, target, m)
	}
	return change, wrap(m, err)
}

func (a *Applier) target(ctx context.Context, m *manifest.Manifest) (target, error) {
	mapping, err := a.mapper.Mapping(ctx, m.GVK())
	if err != nil {
		return target{}, err
	}
	t := target{resource: mapping.Resource, name: m.Object.GetName(), custom: mapping.Custom, isNew: mapping.New}
	if t.name == "" {
		return target{}, fmt.Errorf("%w: metadata.name is missing", errManifest)
	}
	if mapping.Namespaced {
		if t.namespace = m.Object.GetNamespace(); t.namespace == "" {
			return target{}, fmt.Errorf("%w: metadata.namespace is missing, and the kind is namespaced", errManifest)
		}
	}
	return t, nil
}

// apply writes the object, forcing its values upon whoever set others. In the normal case that is one request. The
// answer, or the refusal, tells whether more is needed.
func (a *Applier) apply(ctx context.Context, t target, m *manifest.Manifest) (Change, answer, error) {
	s, err := a.sending(t, m, true)
	if err != nil {
		return Change{}, answer{}, err
	}
	got, err := s.send(ctx)
	switch {
	case err == nil:
		change, got, err := s.adopt(ctx, got)
		if err != nil || !isJob(m) {
			return change, got, err
		}
		return s.runAgain(ctx, change, got)
	case isRefusal(err):
		return s.refused(ctx, err)
	}
	return Change{}, answer{}, err
}

// createOnly creates an object unless it is there, by a POST.
//
// The API server holds a POST of a custom resource for two seconds if the CRD was established less than that ago, and
// the pass with it; an apply it does not hold. So an object of a kind that is new is applied. An apply would make one that
// is there ours, so we look first: when discovery was read the kind was not served, but that may be long ago. If
// somebody makes it at this moment, their values stand, because the apply is not forced.
func (a *Applier) createOnly(ctx context.Context, t target, m *manifest.Manifest) (Change, error) {
	if !t.isNew {
		return a.create(ctx, t, m)
	}
	switch _, err := a.client.get(ctx, t); {
	case err == nil:
		return Change{Action: Kept}, nil
	case !apierrors.IsNotFound(err):
		return Change{}, err
	}
	s, err := a.sending(t, m, false)
	if err != nil {
		return Change{}, err
	}
	got, err := s.send(ctx)
	if apierrors.IsConflict(err) {
		return Change{Action: Kept}, nil
	}
	if err != nil {
		return Change{}, err
	}
	return s.receipt(got), nil
}

// create posts an object; one that exists is settled, whatever it looks like: also the one that an earlier POST of ours
// created whose answer was lost.
func (a *Applier) create(ctx context.Context, t target, m *manifest.Manifest) (Change, error) {
	body, dropped, err := a.prepared(m, t.namespace != "")
	if err != nil {
		return Change{}, err
	}
	data, err := json.Marshal(body)
	if err != nil {
		return Change{}, fmt.Errorf("%w: %w", errManifest, err)
	}
	meta, unknown, err := a.client.create(ctx, t, data)
	if apierrors.IsAlreadyExists(err) {
		return Change{Action: Kept}, nil
	}
	if err != nil {
		return Change{}, err
	}
	change := receipt(Created, meta)
	change.Dropped = slices.Concat(dropped, unknown)
	return change, nil
}

func receipt(action Action, meta *metav1.PartialObjectMetadata) Change {
	change := Change{
		Action: action, UID: meta.UID, Generation: meta.Generation, ResourceVersion: meta.ResourceVersion,
		Fields: ownership.Ours(meta.ManagedFields),
	}
	if meta.DeletionTimestamp != nil {
		change.Deleting = true
		change.Message = waiting(meta)
	}
	return change
}
