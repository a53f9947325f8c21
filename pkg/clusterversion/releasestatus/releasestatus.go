// Package releasestatus maintains the ReleaseStatus of a cluster. It reads the record of an earlier process and writes the identity, the
// skipped manifests and the result of saving the inventory. It reports whether the record could be written; the reconciler decides what
// follows from that.
package releasestatus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/clusterversion/identity"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/kube/watch"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// Object reads and writes the ReleaseStatus of a cluster. Get reads it from the API server and returns nil if there is none. Put replaces
// the object that Get returned and returns the object as stored. It fails with a conflict if another client has written the object in
// between. If the cluster does not serve the kind, the errors satisfy meta.IsNoMatchError.
type Object interface {
	Get(ctx context.Context, name string) (*api.ReleaseStatus, error)
	Put(ctx context.Context, status *api.ReleaseStatus) (*api.ReleaseStatus, error)
	// Accepted stores the data for a return to an accepted release, and drops data that neither this release nor those in the history need.
	// It is called in each process that accepts or continues the release, until it succeeds.
	Accepted(ctx context.Context, cv *configv1.ClusterVersion, verified release.Verified) error
}

// maxSkipped bounds the list of skipped manifests, so that the object stays far below the size limit of etcd.
const maxSkipped = 2000

const (
	// retry is the time between a failed write and the next attempt. definitionRetry applies if the definition of the kind prevents the
	// write.
	retry           = 10 * time.Second
	definitionRetry = 30 * time.Second
	// repairInterval is the least time between a write and the repair of a later change, because another client may keep changing the object.
	repairInterval = 2 * time.Second
)

// Record is the known state of the ReleaseStatus. Only Record changes that state.
type Record struct {
	clock           clock.PassiveClock
	object          Object
	name, namespace string
	// since is the start of this process.
	since metav1.Time

	mu sync.Mutex
	memory
}

// memory is the state of a Record.
type memory struct {
	// read reports that the record of an earlier process was read.
	read bool
	// found is the object on the API server.
	found watch.Latest[*api.ReleaseStatus]
	// written is the status of the last write if found is its result, nil otherwise. An older definition may have dropped fields of it.
	written *api.ReleaseStatusStatus
	// failure is the reason why the last write failed, nil if it succeeded or its content is no longer intended.
	failure error
	// delay is the wait before the next write.
	delay delay
	// attempted is the time of the last attempt to write.
	attempted time.Time
	// saved is the result of the last save of the inventory.
	saved saveResult
	// compared is the last comparison of the overrides with the payload.
	compared comparison
}

// delay is the wait before the next write, zero for none. It remains even if the content of a failed write is no longer intended.
type delay struct {
	// reason is the failure of the last write, or ErrChanged.
	reason error
	until  time.Time
	// refused is the content of the last write if another attempt is useless until the definition changes.
	refused *api.ReleaseStatusStatus
}

// New returns the record of the named ClusterVersion, whose operator runs in namespace. If object is nil, nothing is stored.
func New(clk clock.PassiveClock, object Object, name, namespace string) *Record {
	return &Record{clock: clk, object: object, name: name, namespace: namespace, since: metav1.NewTime(clk.Now()).Rfc3339Copy()}
}

// Stores reports whether there is an object to write.
func (r *Record) Stores() bool { return r.object != nil }

// Reset drops all state, as a restart does.
func (r *Record) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memory = memory{}
}

func (r *Record) known() memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.memory
}

// intended returns the last written status, also the fields that the API server dropped, because another write would have the same result. If
// another client wrote last, it is the object's status; nil if there is no object.
func (m memory) intended() *api.ReleaseStatusStatus {
	switch {
	case m.found.Object == nil:
		return nil
	case m.written != nil:
		return m.written
	}
	return &m.found.Object.Status
}

// Status returns the status that was found, nil for none.
func (r *Record) Status() *api.ReleaseStatusStatus {
	if found := r.known().found.Object; found != nil {
		return &found.Status
	}
	return nil
}

// HasInstall reports whether the record has the current state of an identity's first install.
func (r *Record) HasInstall(id identity.Identity) bool { return id.HasInstall(r.known().intended()) }

// LacksRequest reports whether the request of an identity is not written yet, and another attempt may succeed. target is the requested
// release.
func (r *Record) LacksRequest(id identity.Identity, target request.Target) bool {
	m := r.known()
	return r.object != nil && m.delay.refused == nil && !id.HasRequest(m.intended(), target)
}

// WasRead reports whether nothing is left to read: the record of an earlier process was read, or nothing is stored.
func (r *Record) WasRead() bool { return r.object == nil || r.known().read }

// Predates reports whether an operator that did not record requests wrote the record. In that case only the history shows what was
// accepted. A missing record is different: it was deleted, and then force does not carry over.
func (r *Record) Predates() bool {
	found := r.Status()
	return found != nil && !identity.HasRecords(found)
}

// Found is the record of an earlier process on the API server. Object is nil if there is none.
type Found struct {
	Object *api.ReleaseStatus
	// seen is the state before the read.
	seen watch.Latest[*api.ReleaseStatus]
}

// Status returns the status of the object, nil for none.
func (f Found) Status() *api.ReleaseStatusStatus {
	if f.Object == nil {
		return nil
	}
	return &f.Object.Status
}

// Get reads the record of an earlier process from the API server. If the cluster does not serve the kind, there is none.
func (r *Record) Get(ctx context.Context) (Found, error) {
	seen := r.known().found
	found, err := r.object.Get(ctx, r.name)
	if err != nil && !meta.IsNoMatchError(err) {
		return Found{}, err
	}
	return Found{found, seen}, nil
}

// Read adopts the record of an earlier process, unless the watch has reported a later change since Get.
func (r *Record) Read(f Found) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.Object != nil || r.found.Events == f.seen.Events {
		r.found.Wrote(f.seen, f.Object)
	}
	r.read, r.written = true, nil
	if r.compared.payload == nil && f.Object != nil {
		r.compared = restored(f.Object.Status.Conditions)
	}
}

// Content is the intended content of the record.
type Content struct {
	Identity identity.Identity
	// Payload is the payload of the newest recorded release, nil before the first.
	Payload *payload.Payload
	// Overrides are the overrides in the ClusterVersion's spec.
	Overrides []configv1.ComponentOverride
	// Recorded returns the objects in the inventory: those of the release, and those that earlier releases left.
	Recorded func(ctx context.Context) ([]manifest.ID, error)
	// NamesService reports that the operator was started with an update service.
	NamesService bool
	// UpdatesDigest identifies the last answer of the update service, empty if unknown.
	UpdatesDigest string
	// Needed reports that a request waits for the record.
	Needed bool
}

// Kept is the result of Keep.
type Kept struct {
	// Again is the time until the next attempt, 0 for none.
	Again time.Duration
	// Recovered reports that the write succeeded after the previous one had failed.
	Recovered bool
}

// Keep writes the record if it differs from the one on the API server, and checks that the server stored all of it. A failed write is
// retried later. It affects only requests that must be recorded. Keep returns the reason why the record is not written.
func (r *Record) Keep(ctx context.Context, c Content) (Kept, error) {
	r.compare(ctx, c)
	if r.object == nil {
		return Kept{}, nil
	}
	now := r.clock.Now()
	found, next, current := r.plan(c)
	m := r.known()
	switch {
	case current:
		return Kept{}, nil
	case m.delay.refused != nil && !c.Needed && equality.Semantic.DeepEqual(*m.delay.refused, next):
		return Kept{}, m.delay.reason
	case m.delay.until.After(now):
		return Kept{Again: m.delay.until.Sub(now)}, m.delay.reason
	}
	r.attempt(now)
	w := r.put(ctx, c, found, next)
	if w.err != nil && (m.failure == nil || m.failure.Error() != w.err.Error()) {
		logr.FromContextOrDiscard(ctx).Info("cannot write the ReleaseStatus", "error", w.err.Error())
	}
	return r.wrote(m.found, w, c.Needed, now)
}

// plan returns the object to replace and its next status. current reports that there is nothing to write.
func (r *Record) plan(c Content) (found *api.ReleaseStatus, next api.ReleaseStatusStatus, current bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found = r.found.Object
	if found == nil {
		found = &api.ReleaseStatus{ObjectMeta: metav1.ObjectMeta{Name: r.name}}
	}
	before := cmp.Or(r.intended(), &found.Status)
	next = r.next(*before, c)
	current = equality.Semantic.DeepEqual(*before, next) || r.found.Object == nil && len(next.Releases) == 0 && next.Request == nil
	if current {
		r.failure = nil
	}
	return found, next, current
}

// attempt records the time of a write before it begins, because another client may change the object before the response arrives.
func (r *Record) attempt(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempted = now
}

// write is one attempt to write the record.
type write struct {
	status api.ReleaseStatusStatus
	// kept is the object as the API server has it after the write, nil if unknown.
	kept *api.ReleaseStatus
	// err is the reason why the API server does not have all of status, otherwise nil.
	err error
}

// wrote records the result of a write and returns that of Keep. seen is the object before the write.
func (r *Record) wrote(seen watch.Latest[*api.ReleaseStatus], w write, needed bool, now time.Time) (Kept, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	overwritten := false
	if w.kept != nil {
		r.found.Wrote(seen, w.kept)
		if overwritten = r.found.Object != w.kept; !overwritten {
			r.written = nil
		}
	}
	if w.err == nil {
		recovered := r.failure != nil
		r.failure, r.delay = nil, delay{}
		if overwritten { // the next Keep compares with the other client's content
			r.delay = delay{reason: ErrChanged, until: now.Add(repairInterval)}
			return Kept{Again: repairInterval, Recovered: recovered}, ErrChanged
		}
		r.written = &w.status
		return Kept{Recovered: recovered}, nil
	}
	wait := retry
	r.failure, r.delay = w.err, delay{reason: w.err}
	if meta.IsNoMatchError(w.err) || errors.Is(w.err, errNotKept) || apierrors.IsForbidden(w.err) || apierrors.IsInvalid(w.err) {
		wait, r.delay.refused = definitionRetry, &w.status
	}
	r.delay.until = now.Add(wait)
	if needed || r.delay.refused == nil {
		return Kept{Again: wait}, w.err
	}
	return Kept{}, w.err
}

// put replaces the identity's part of the record. Only the operator owns that part, so put also overwrites another client's changes. It
// writes next, or after another client's change the status that replaces it.
func (r *Record) put(ctx context.Context, c Content, found *api.ReleaseStatus, next api.ReleaseStatusStatus) write {
	object := *found
	object.Status = next
	kept, err := r.object.Put(ctx, &object)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		now, again := r.object.Get(ctx, r.name)
		if again != nil {
			return write{status: next, err: again}
		}
		object = api.ReleaseStatus{ObjectMeta: metav1.ObjectMeta{Name: r.name}}
		if now != nil {
			object = *now
		}
		next = r.nextOf(object.Status, c)
		object.Status = next
		kept, err = r.object.Put(ctx, &object)
	}
	if err == nil && !keepsAll(kept.Status, next) {
		err = errNotKept
	}
	return write{status: next, kept: kept, err: err}
}

// keepsAll reports whether the API server has stored the fields that determine which release a request stands for. An older definition
// drops the decision to replace a failing install. Without it, a new process only has to decide again.
func keepsAll(kept, want api.ReleaseStatusStatus) bool {
	install := kept.Install
	if install != nil && want.Install != nil && install.Replaces == nil {
		install = new(*install)
		install.Replaces = want.Install.Replaces
	}
	return equality.Semantic.DeepEqual(kept.Request, want.Request) && equality.Semantic.DeepEqual(kept.Own, want.Own) &&
		equality.Semantic.DeepEqual(install, want.Install) &&
		equality.Semantic.DeepEqual(kept.Releases, want.Releases) && equality.Semantic.DeepEqual(kept.Forced, want.Forced)
}

// next returns the next status of the ReleaseStatus.
func (r *Record) next(s api.ReleaseStatusStatus, c Content) api.ReleaseStatusStatus {
	s = c.Identity.Record(s)
	if p := c.Payload; p != nil {
		s.Skipped, s.SkippedCount = skippedManifests(p.Excluded), len(p.Excluded)
	}
	s.UpdatesDigest = cmp.Or(c.UpdatesDigest, s.UpdatesDigest)
	s.Conditions = r.overrideConditions(r.serviceConditions(r.saved.conditions(s.Conditions), c.NamesService), c)
	s.Inventory = api.InventoryReference{Namespace: r.namespace, Selector: api.InventoryLabel + "=" + r.name}
	return withPrintableTexts(s)
}

// withPrintableTexts returns a copy in which characters that a terminal interprets are replaced, in all texts that may quote a release, a
// signature or a server.
func withPrintableTexts(s api.ReleaseStatusStatus) api.ReleaseStatusStatus {
	clean := func(texts ...*string) {
		for _, text := range texts {
			*text = printable.Lines(*text)
		}
	}
	s.Releases, s.Forced, s.Skipped, s.Conditions = slices.Clone(s.Releases), slices.Clone(s.Forced), slices.Clone(s.Skipped), slices.Clone(s.Conditions)
	for i := range s.Releases {
		r := &s.Releases[i]
		clean(&r.Forced)
		r.ForcedPast, r.Evidence = slices.Clone(r.ForcedPast), slices.Clone(r.Evidence)
		for i := range r.ForcedPast {
			clean(&r.ForcedPast[i].Why)
		}
		for i := range r.Evidence {
			e := &r.Evidence[i]
			clean(&e.Root, &e.Threshold, &e.Identity, &e.Issuer, &e.KeyID, &e.Store)
		}
	}
	for i := range s.Forced {
		clean(&s.Forced[i].Reason)
	}
	for i := range s.Skipped {
		clean(&s.Skipped[i].File, &s.Skipped[i].Object, &s.Skipped[i].Reason)
	}
	for i := range s.Conditions {
		clean(&s.Conditions[i].Message)
	}
	return s
}

func (r *Record) nextOf(s api.ReleaseStatusStatus, c Content) api.ReleaseStatusStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next(s, c)
}

// Changed records the object as a watch reports it, nil after a deletion. It reports whether another client deleted or changed the object,
// so that the record must be written again. It ignores versions that are older than the writes of this process, unless etcd was restored
// from a backup.
func (r *Record) Changed(live *api.ReleaseStatus) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.found.Object
	r.found.Observe(live)
	newest := r.found.Object
	if !r.read || newest == known || newest != nil && known != nil && equality.Semantic.DeepEqual(newest.Status, known.Status) {
		return false
	}
	// The interval starts at our last write, not at this change. Otherwise another client that keeps changing the object would postpone the
	// repair forever. A failed write keeps its longer wait and its reason.
	r.written, r.delay.refused = nil, nil
	if repair := r.attempted.Add(repairInterval); repair.After(r.delay.until) {
		r.delay = delay{reason: ErrChanged, until: repair}
	}
	return true
}

// Unrecorded returns the reason why a request by tag cannot be accepted; nil if it can.
func (r *Record) Unrecorded() error {
	if failure := r.known().failure; failure != nil {
		return &UnrecordedError{failure}
	}
	return nil
}

// Preserve stores the data for a return to an accepted release. It runs in its own slot, so that the rollout does not wait for it.
func (r *Record) Preserve(log logr.Logger, cv *configv1.ClusterVersion, verified release.Verified) func(context.Context) background.Next {
	return func(ctx context.Context) background.Next {
		if err := r.object.Accepted(ctx, cv, verified); err != nil && ctx.Err() == nil {
			log.Info("cannot store the data for a return to the release", "error", err.Error())
			return background.Next{After: retry}
		}
		return background.Next{Done: true}
	}
}

// errNotKept reports that the API server dropped fields of a ReleaseStatus.
var errNotKept = errors.New("the CustomResourceDefinition " + api.ReleaseStatusDefinition + " lacks fields of this operator's version")

// ErrChanged reports that the next write has to wait, because another client has changed the ReleaseStatus shortly after the last one. The
// write is due soon, so it is no reason to reject a release.
var ErrChanged = errors.New("another client has just changed the ReleaseStatus")

// UnrecordedError is the reason why a request by tag is rejected.
type UnrecordedError struct{ Err error }

func (e *UnrecordedError) Error() string {
	return fmt.Sprintf(api.CannotRecord+": %v; request the release by digest (name@sha256:…), or apply the CustomResourceDefinition %s of this operator's release",
		e.Err, api.ReleaseStatusDefinition)
}

func (e *UnrecordedError) Unwrap() error { return e.Err }

// skippedManifests lists the manifests that the cluster does not get, in release order. It omits overridden manifests, because the spec
// lists those.
func skippedManifests(excluded []payload.Exclusion) []api.SkippedManifest {
	var out []api.SkippedManifest
	for _, e := range excluded[:min(len(excluded), maxSkipped)] {
		out = append(out, api.SkippedManifest{File: e.Manifest.File, Object: e.Manifest.ID().String(), Reason: e.Reason})
	}
	return out
}
