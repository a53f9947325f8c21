// Package apply makes one object in the cluster match its manifest and reports the change. It takes a manifest and returns a Change. It
// keeps no state between calls and does not wait. Callers decide on order and retries, and check whether the object works.
//
// It writes objects with server-side apply, one field manager and forced conflicts. Its REST client has no schemas and requests only
// metadata in the response. Metadata contains everything that callers need (uid, resourceVersion, generation, field ownership), and avoids
// a copy of the object.
//
// Normally, one request per object is enough. Only some responses and rejections require more:
//
//   - Fields that an earlier operator wrote by update are adopted.
//   - The number of replicas is given up before the apply of a manifest that no longer sets it.
//   - The entries of managedFields are moved to the manifest's API version if the server cannot convert them.
//   - Fields that lost their owner, because another client's write made the server discard managedFields, are taken back.
//   - Values that contradict the manifest are removed, also those of other owners.
//   - If the object has another controller, our owner reference does not claim to be the controller.
//   - An object with an immutable field that must change is deleted and recreated, if its manifest allows it.
//   - Parts that server-side apply does not accept are omitted and reported.
package apply

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/apply/body"
	"github.com/cluster-version/cvo/pkg/apply/conversion"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Action is the outcome of Apply for an object.
type Action string

const (
	// Created means that the object did not exist.
	Created Action = "created"
	// Applied means that the server accepted our fields. The resource version shows whether that changed anything.
	Applied Action = "applied"
	// Kept means that a create-only object already existed.
	Kept Action = "kept"
	// Deleted means that the object of a tombstone does not exist anymore, or never existed.
	Deleted Action = "deleted"
	// Deleting means that the object is being deleted, either for a tombstone or to be recreated.
	Deleting Action = "deleting"
	// Recreated means that the object was deleted and recreated, because its manifest changed an immutable field.
	Recreated Action = "recreated"
	// Skipped means that the applier deliberately did nothing.
	Skipped Action = "skipped"
)

// Change is the result for one manifest.
type Change struct {
	Action Action
	// UID is the UID of the object or of the deleted object; empty if there was none.
	UID             types.UID
	Generation      int64
	ResourceVersion string
	// Fields is the hash of our current fields; zero if the object is not ours or does not exist.
	Fields ownership.Hash
	// Time is the time of our managedFields entry, see ownership.Time.
	Time int64
	// Deleting reports whether the object has a deletion timestamp. The server removes it once its finalizers are done, even if it was just
	// applied. The caller must then apply it again, unless it belongs to a tombstone.
	Deleting bool
	// Temporary is true if Prune has skipped the object because another object is its controller, because objects of its kind exist, or
	// because its version is not served. That may end without an event.
	Temporary bool
	// Dropped lists the parts of the manifest that were omitted: fields that the server's schema does not have, and list entries that a
	// later entry with the same key replaces.
	Dropped []string
	// TakenBack describes fields that became ours again after the server had discarded their owners; empty if there are none.
	TakenBack string
	// Message explains why the object was skipped or recreated, or why a deletion is pending. It may be empty.
	Message string
}

// Mapper finds the mapping of a kind, see kinds.Mapper.
type Mapper interface {
	Mapping(ctx context.Context, gvk schema.GroupVersionKind) (kinds.Mapping, error)
	AnyVersion(ctx context.Context, gvk schema.GroupVersionKind) (kinds.Mapping, error)
	Refresh(ctx context.Context) error
}

// Applier applies the manifests of one release for one owner.
type Applier struct {
	client  *request.Client
	mapper  Mapper
	builder body.Builder
	options Options
	// conversions is shared with copies.
	conversions *conversion.Cache
}

// New returns an Applier that uses client for requests and mapper to find resources, and marks objects as belonging to owner. Client-side
// rate limits are off, because the API server limits requests by priority and fairness, and the client honors its Retry-After.
func New(client *request.Client, mapper Mapper, owner body.Owner) *Applier {
	return &Applier{
		client: client, mapper: mapper, builder: body.Builder{Owner: owner}, conversions: conversion.NewCache(clock.RealClock{}),
	}
}

// WithValues returns a copy of the Applier that injects a cluster's values.
func (a *Applier) WithValues(values inject.Values) *Applier {
	out := *a
	out.builder.Values = values
	return &out
}

// Options adjust an Applier.
type Options struct {
	// Strict makes fields that the server does not know an error. Otherwise they are omitted.
	Strict bool
	// Controller is the object's controller if a watch shows that it has another one than its owner; otherwise empty. It saves two requests.
	Controller string
	// ReplicasForeign is true if a watch shows that no entry of ours or of a former manager contains spec.replicas. If the manifest leaves
	// that field to the kind's scale subresource, it saves a read.
	ReplicasForeign bool
	// UID is the UID of the object in our last apply; empty if there was none.
	UID types.UID
	// Changed is true if there was such an apply, and its content differs from the manifest's. Then a failed Job runs again. A repair and the
	// first apply of an object of another operator do not change its manifest.
	Changed bool
	// Former reads the earlier manifests of an object whose ownership was discarded; nil if there is no earlier release.
	Former Former
}

// With returns a copy of the Applier with other options.
func (a *Applier) With(options Options) *Applier {
	out := *a
	out.options = options
	return &out
}

// Content returns a hash of the object that Apply sends, see body.Builder.Hash.
func (a *Applier) Content(m *manifest.Manifest) ([sha256.Size]byte, error) {
	sum, err := a.builder.Hash(m)
	return sum, failure.Wrap(m, err)
}

// Apply makes the object match its manifest. Its errors are of type *failure.Error, with the reason for the status.
func (a *Applier) Apply(ctx context.Context, m *manifest.Manifest, mode release.Mode) (Change, error) {
	change, err := a.remapped(ctx, func() (Change, error) { return a.once(ctx, m, mode) })
	return change, failure.Wrap(m, err)
}

// remapped runs do. If the server does not serve the resource of a mapping, discovery was outdated, so remapped reads it and runs do again.
func (a *Applier) remapped(ctx context.Context, do func() (Change, error)) (Change, error) {
	change, err := do()
	if errors.Is(err, request.ErrUnserved) && a.mapper.Refresh(ctx) == nil {
		return do()
	}
	return change, err
}

func (a *Applier) once(ctx context.Context, m *manifest.Manifest, mode release.Mode) (change Change, err error) {
	target, mapping, err := a.target(ctx, m)
	if err != nil {
		if m.Tombstone() && kinds.IsNoMatch(err) {
			return Change{Action: Deleted, Message: "its kind is not served"}, nil
		}
		return Change{}, err
	}
	switch {
	case m.Tombstone() && mode == release.Initializing:
		return Change{Action: Skipped, Message: "tombstones have no effect during an install"}, nil
	case m.Tombstone():
		change, err = a.remove(ctx, target, m)
	case m.CreateOnly():
		change, err = a.createOnly(ctx, target, m, mapping.New)
	case body.IsClusterOperator(m):
		change, err = a.clusterOperator(ctx, target, m)
	default:
		replicas, mayBeOurs := a.unsetReplicas(m, mapping)
		change, _, err = a.apply(ctx, target, m, replicas, mayBeOurs)
	}
	return change, err
}

// target returns the address of a manifest's object and the mapping of its kind, for a tombstone in any served version.
func (a *Applier) target(ctx context.Context, m *manifest.Manifest) (request.Target, kinds.Mapping, error) {
	lookup := a.mapper.Mapping
	if m.Tombstone() {
		lookup = a.mapper.AnyVersion
	}
	mapping, err := lookup(ctx, m.GVK())
	if err != nil {
		return request.Target{}, mapping, err
	}
	t, err := address(mapping, m.Object.GetNamespace(), m.Object.GetName())
	return t, mapping, err
}

// address returns the address of an object. It ignores the namespace of a cluster-scoped kind.
func address(mapping kinds.Mapping, namespace, name string) (request.Target, error) {
	t := request.Target{Resource: mapping.Resource, Name: name}
	if t.Name == "" {
		return t, fmt.Errorf("%w: metadata.name is missing", body.ErrManifest)
	}
	if mapping.Namespaced {
		if t.Namespace = namespace; namespace == "" {
			return t, fmt.Errorf("%w: metadata.namespace is missing, and the kind is namespaced", body.ErrManifest)
		}
	}
	return t, nil
}

// apply writes the object and overrides values of other writers. Normally, it needs one request. The response or the rejection decides
// whether it needs more. replicas is the field that the manifest leaves to the kind's scale subresource; nil for none. If it may be ours,
// it is given up first.
func (a *Applier) apply(
	ctx context.Context, t request.Target, m *manifest.Manifest, replicas []string, mayBeOurs bool,
) (Change, answer, error) {
	s, err := a.newSubmission(t, m, true)
	if err != nil {
		return Change{}, answer{}, err
	}
	if s.replicas = replicas; mayBeOurs {
		if err := s.releaseReplicas(ctx); err != nil {
			return Change{}, answer{}, err
		}
	}
	if a.options.Controller != "" {
		s.yieldController(a.options.Controller)
	}
	got, err := s.send(ctx)
	switch {
	case err == nil:
		return s.sent(ctx, got)
	case apierrors.IsInvalid(err):
		return s.refused(ctx, err)
	}
	return Change{}, answer{}, err
}

// sent completes an accepted apply: it adopts fields of former managers, and reruns a failed Job that has changed.
func (s *submission) sent(ctx context.Context, got answer) (Change, answer, error) {
	change, got, err := s.adopt(ctx, got)
	if err == nil {
		change, got, err = s.takeBack(ctx, change, got)
	}
	if err != nil || !isJob(s.m) {
		return change, got, err
	}
	return s.rerun(ctx, change, got)
}

// createOnly creates an object with a POST unless it exists.
//
// For two seconds after a CRD is established, the API server delays every POST of its custom resources by two seconds, and so delays the
// pass. It does not delay an apply, so createOnly applies objects of a new kind. But an apply would take ownership of an existing object.
// So createOnly first reads the object: the last discovery did not have the kind, but may be outdated. If another client creates the object
// in between, its values win, because the apply is not forced.
func (a *Applier) createOnly(ctx context.Context, t request.Target, m *manifest.Manifest, isNew bool) (Change, error) {
	if !isNew {
		return a.create(ctx, t, m)
	}
	switch _, err := a.client.Get(ctx, t); {
	case err == nil:
		return Change{Action: Kept}, nil
	case !apierrors.IsNotFound(err):
		return Change{}, err
	}
	s, err := a.newSubmission(t, m, false)
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

// create posts an object. It keeps an existing object, whatever its content. This is not an error: another client may own the object, or an
// earlier POST of ours may have succeeded without a response.
func (a *Applier) create(ctx context.Context, t request.Target, m *manifest.Manifest) (Change, error) {
	content, dropped, err := a.builder.Build(m, t.Namespace != "")
	if err != nil {
		return Change{}, err
	}
	meta, unknown, err := a.client.Create(ctx, t, content)
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
		Fields: ownership.Ours(meta.ManagedFields), Time: ownership.Time(meta.ManagedFields),
	}
	if meta.DeletionTimestamp != nil {
		change.Deleting = true
		change.Message = waiting(meta)
	}
	return change
}
