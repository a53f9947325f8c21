// Package publish reads the ClusterVersion and writes its status. It takes the next status, decides when to write it, and returns the
// object as the API server has it after the write. It tracks its own writes, conflicts with other clients, and fields that the API server
// rejects. It does not decide the content of the status.
package publish

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/clusterversion/refused"
	"github.com/cluster-version/cvo/pkg/clusterversion/status"
	"github.com/cluster-version/cvo/pkg/update/reported"
)

// Publisher reads one ClusterVersion and writes its status. Only Publisher changes the record of its writes.
type Publisher struct {
	clock   clock.PassiveClock
	client  client.Client
	emitter event.Emitter
	name    string
	pacer   pacer

	mu sync.Mutex
	memory
}

// memory is a Publisher's knowledge of the object on the API server.
type memory struct {
	// written is our last status write, and read is the last read past the cache. Older objects in the cache are ignored.
	written, read sighting
	// status is the last written status. Before the first write, it is the status of the first read past the cache; nil for none.
	status *configv1.ClusterVersionStatus
	// conflicts counts consecutive status writes that failed because another client wrote first.
	conflicts int
	// refusal is the part of our status that the API server rejected last.
	refusal refusal
}

// sighting is a resource version of the ClusterVersion and the time when the API server had it; zero for none.
type sighting struct {
	version string
	at      time.Time
}

// refusal is a part of a status that the API server has rejected.
type refusal struct {
	message string
	// fields are the rejected fields of the status, or one condition's type if only that was rejected.
	fields []string
	// until is the time of the next attempt.
	until time.Time
}

const (
	// maxConflicts is the number of consecutive writes that may fail because another client wrote first. After that, the object is read
	// from the API server instead of the cache. The status belongs to this operator, so it is then overwritten without a check for changes
	// in between.
	maxConflicts = 3
	// refusalInterval is how long rejected fields are omitted.
	refusalInterval = time.Minute
	// patience is how long to wait for the event of our own write. If the cache stays behind for longer, the cluster was restored, for
	// example from a backup of etcd.
	patience = 30 * time.Second
)

// New returns a Publisher of the named ClusterVersion. interval is the least time between two writes without an edge, see status.IsEdge.
func New(clk clock.PassiveClock, c client.Client, emitter event.Emitter, name string, interval time.Duration) *Publisher {
	return &Publisher{clock: clk, client: c, emitter: emitter, name: name, pacer: newPacer(interval)}
}

// Reset drops all state, as a restart does.
func (p *Publisher) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memory = memory{}
}

// Read returns the ClusterVersion. contended means that it was read past the cache, because other clients write it too often.
func (p *Publisher) Read(ctx context.Context) (cv *configv1.ClusterVersion, contended bool, err error) {
	if p.known().conflicts >= maxConflicts {
		cv, err = p.live(ctx)
		return cv, true, err
	}
	cv = &configv1.ClusterVersion{}
	return cv, false, p.client.Get(ctx, types.NamespacedName{Name: p.name}, cv)
}

// ReadLive reads the ClusterVersion from the API server. The cache counts as stale until it contains that object.
func (p *Publisher) ReadLive(ctx context.Context) (*configv1.ClusterVersion, error) {
	cv, err := p.live(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read = sighting{cv.ResourceVersion, p.clock.Now()}
	if p.status == nil {
		p.status = cv.Status.DeepCopy()
	}
	return cv, nil
}

func (p *Publisher) live(ctx context.Context) (*configv1.ClusterVersion, error) {
	u := &unstructured.Unstructured{} // unstructured objects are not read from the cache
	u.SetGroupVersionKind(configv1.GroupVersion.WithKind("ClusterVersion"))
	if err := p.client.Get(ctx, types.NamespacedName{Name: p.name}, u); err != nil {
		return nil, err
	}
	cv := &configv1.ClusterVersion{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, cv); err != nil {
		return nil, fmt.Errorf("reading ClusterVersion %s: %w", p.name, err)
	}
	return cv, nil
}

func (p *Publisher) known() memory {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.memory
}

// Behind returns how long to wait for a cache that is older than our own last write or read; 0 if it is not.
func (p *Publisher) Behind(cv *configv1.ClusterVersion) time.Duration {
	m := p.known()
	return max(p.behind(cv, m.written), p.behind(cv, m.read))
}

// behind returns how long to wait for a cache that is older than a sighting. It is 0 if the cache is not older or the sighting is too long
// ago.
func (p *Publisher) behind(cv *configv1.ClusterVersion, seen sighting) time.Duration {
	if seen.version == "" {
		return 0
	}
	if order, err := resourceversion.CompareResourceVersion(cv.ResourceVersion, seen.version); err != nil || order >= 0 {
		return 0
	}
	return max(patience-p.clock.Since(seen.at), 0)
}

// Removed returns our last status if another client has since removed every completed release from the history. The cluster would
// otherwise count as one whose first install has not completed, and the operator would install its own release.
func (p *Publisher) Removed(cv *configv1.ClusterVersion) (last configv1.ClusterVersionStatus, removed bool) {
	m := p.known()
	if m.status == nil || !reported.HasCompleted(m.status.History) || reported.HasCompleted(cv.Status.History) {
		return configv1.ClusterVersionStatus{}, false
	}
	return *m.status.DeepCopy(), true
}

// Conflicted counts a write that failed because another client wrote first.
func (p *Publisher) Conflicted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conflicts++
}

// Draft is a status to be written.
type Draft struct {
	// Original is the object as read. Contended reports that it was read past the cache, see Publisher.Read.
	Original  *configv1.ClusterVersion
	Contended bool
	Status    configv1.ClusterVersionStatus
	// NewRunlevel reports that the rollout has reached another runlevel, which the status does not show.
	NewRunlevel bool
}

// Result is the result of writing a Draft.
type Result struct {
	// Object is the object as the API server has it after the write; nil if nothing was written.
	Object *configv1.ClusterVersion
	// Status is the written status without rejected fields.
	Status configv1.ClusterVersionStatus
	// Again is the time until the next attempt, 0 for none.
	Again time.Duration
}

// within limits the time until the next attempt to d.
func (r *Result) within(d time.Duration) {
	if r.Again == 0 || d < r.Again {
		r.Again = d
	}
}

// Write writes a status if it differs from the original. It writes an edge at once, within a budget. Other changes wait until the interval
// since the last write has passed. Only a change of our own status is an edge, so restoring a status that another client has overwritten
// waits for the interval.
func (p *Publisher) Write(ctx context.Context, d Draft) (Result, error) {
	var out Result
	now, m, before := p.clock.Now(), p.known(), d.Original.Status
	if left := m.refusal.until.Sub(now); left > 0 {
		less := refused.Reduce(before, d.Status, m.refusal.fields)
		if !equality.Semantic.DeepEqual(less, d.Status) {
			out.within(left)
		}
		d.Status = less
	}
	if equality.Semantic.DeepEqual(before, d.Status) {
		return out, nil
	}
	last := before
	if m.status != nil {
		last = *m.status
	}
	if wait := p.pacer.wait(status.IsEdge(last, d.Status), d.NewRunlevel, m.written.at, now); wait > 0 {
		out.within(wait)
		return out, nil
	}
	next, err := p.patch(ctx, d)
	if refused.Is(err) {
		next, d.Status, err = p.writeReduced(ctx, d, err)
		out.within(refusalInterval) // if the rejected fields are the only change, no event follows
	}
	if err != nil {
		return out, err
	}
	p.wrote(sighting{next.ResourceVersion, now}, d.Status)
	out.Object, out.Status = next, d.Status
	return out, nil
}

// wrote records a successful write.
func (p *Publisher) wrote(written sighting, status configv1.ClusterVersionStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written, p.status, p.conflicts = written, status.DeepCopy(), 0
}

func (p *Publisher) patch(ctx context.Context, d Draft) (*configv1.ClusterVersion, error) {
	next := d.Original.DeepCopy()
	patch, err := d.patch()
	if err != nil {
		return nil, err
	}
	return next, p.client.Status().Patch(ctx, next, patch)
}

// patch replaces the whole status if the object has not changed since it was read. An update would also send the spec, with fields that the
// installed CRD may lack. A merge patch would omit required fields that are empty.
func (d Draft) patch() (client.Patch, error) {
	operations := []map[string]any{{"op": "add", "path": "/status", "value": d.Status}}
	if !d.Contended {
		operations = append(operations, map[string]any{"op": "replace", "path": "/metadata/resourceVersion", "value": d.Original.ResourceVersion})
	}
	data, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encoding status: %w", err)
	}
	return client.RawPatch(types.JSONPatchType, data), nil
}

// writeReduced writes the part of a status that the API server accepts. It omits the fields that the rejection names; if it names none, it
// keeps only the conditions and the generation. It reports each rejection message once.
func (p *Publisher) writeReduced(ctx context.Context, d Draft, rejection error) (*configv1.ClusterVersion, configv1.ClusterVersionStatus, error) {
	now := p.clock.Now()
	if p.known().refusal.message != rejection.Error() {
		logr.FromContextOrDiscard(ctx).Error(rejection, "status rejected")
		p.emitter.Emit(d.Original, statusRefused(rejection))
	}
	err, whole, before := rejection, d.Status, d.Original.Status
	if refused.IsTooLarge(rejection) { // their previous values may be too large beside the other fields
		before.AvailableUpdates, before.ConditionalUpdates, before.ConditionalUpdateRisks = nil, nil, nil
	}
	for _, fields := range [][]string{refused.Fields(rejection), refused.AllButConditions()} {
		d.Status = refused.Reduce(before, whole, fields)
		var next *configv1.ClusterVersion
		if next, err = p.patch(ctx, d); refused.Is(err) {
			continue
		}
		if err == nil {
			p.refused(refusal{rejection.Error(), refused.Lasting(fields, whole), now.Add(refusalInterval)})
		}
		return next, d.Status, err
	}
	return nil, whole, err
}

// refused records a part of a status that the API server has rejected.
func (p *Publisher) refused(r refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusal = r
}

func statusRefused(err error) event.Event {
	return event.Warning(api.EventStatusRefused, "The API server rejects part of the status; writing the rest: %v", err)
}
