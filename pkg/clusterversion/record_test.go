package clusterversion

import (
	"context"
	"errors"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/clusterversion/releasestatus"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	updategraph "github.com/cluster-version/cvo/pkg/update/graph"
)

// unwritable is a ReleaseStatus that cannot be written.
type unwritable struct{ releasestatus.Object }

func (unwritable) Get(context.Context, string) (*api.ReleaseStatus, error) { return nil, nil }

func (unwritable) Put(context.Context, *api.ReleaseStatus) (*api.ReleaseStatus, error) {
	return nil, apierrors.NewTimeoutError("etcd is slow", 0)
}

// TestFailedRecordIsRetriedWithoutAnEvent requests a release by tag, which is accepted only after it is recorded. When recording fails,
// nothing in the cluster changes, so only the clock triggers the next attempt.
func TestFailedRecordIsRetriedWithoutAnEvent(t *testing.T) {
	s := newScribe(t, func(p *parts) { p.options.Record = unwritable{} })
	s.reconcile(t)
	a := acceptedRelease("1.0.0")
	a.Target.Image = "registry.example/release:latest"
	s.accepts(a)
	for _, later := range []time.Duration{time.Second, 2 * time.Second, time.Minute, 2 * time.Minute} { // the second has no attempt
		s.at(later)
		result := s.reconcile(t)
		assert.Empty(t, s.get(t).Status.History, "the release is not accepted")
		assert.Positive(t, result.RequeueAfter)
		assert.LessOrEqual(t, result.RequeueAfter, pendingRetry)
	}
}

// fallible is a storedRecord that cannot be written while err is set. It calls during before each write.
type fallible struct {
	storedRecord
	err    error
	during func()
}

func (f *fallible) Put(ctx context.Context, s *api.ReleaseStatus) (*api.ReleaseStatus, error) {
	if f.during != nil {
		f.during()
	}
	if f.err != nil {
		return nil, f.err
	}
	return f.storedRecord.Put(ctx, s)
}

// TestFailedRecordKeepsAResolvedTag resolves the tag of a request while the record of the release that the cluster continues with is being
// written, which fails. With force, only that digest may be installed.
//
//threat:same-force-true
func TestFailedRecordKeepsAResolvedTag(t *testing.T) {
	const tag, digest = "registry.example/release:latest", "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	record := &fallible{}
	s := newScribe(t, func(p *parts) { p.options.Record = record })
	s.edit(t, func(cv *configv1.ClusterVersion) { wants(cv, configv1.Update{Image: tag, Force: true}) })
	s.reconcile(t)
	record.err = apierrors.NewTimeoutError("etcd is slow", 0)
	record.during = func() {
		s.acceptance.change(func(d accept.Decision) accept.Decision {
			d.Identity = d.Identity.Resolve(d.Identity.Serial(), digest, now)
			return d
		})
	}
	a := acceptedRelease("1.0.0")
	a.Target.Continued = true
	s.accepts(a)
	s.later(t)
	kept := s.acceptance.snapshot().Identity.Record(api.ReleaseStatusStatus{}).Request
	require.NotNil(t, kept)
	assert.Equal(t, digest, kept.Digest)
	assert.Equal(t, api.RequestResolved, kept.Phase, "the release is not accepted")
}

// TestUnrecordedRequestIsNotObserved has a record that cannot be written for a while. Otherwise a process that starts in the meantime would
// take the request for one that the history answers, and never carry it out.
func TestUnrecordedRequestIsNotObserved(t *testing.T) {
	record := &fallible{}
	s := newScribe(t, func(p *parts) { p.options.Record = record })
	cv := s.get(t)
	cv.Status = clusterAt(completed("1.0.0")).Status
	require.NoError(t, s.client.Status().Update(t.Context(), cv))
	s.reconcile(t)
	s.accepts(acceptedRelease("1.0.0"))
	s.later(t)
	before := s.get(t).Status.ObservedGeneration

	record.err = apierrors.NewTimeoutError("etcd is slow", 0)
	s.edit(t, func(cv *configv1.ClusterVersion) {
		wants(cv, configv1.Update{Image: "example.com/r:stable"})
		cv.Generation = before + 1
	})
	s.later(t)
	assert.Equal(t, before, s.get(t).Status.ObservedGeneration)
	record.err = nil
	s.at(time.Hour)
	s.reconcile(t)
	assert.Equal(t, before+1, s.get(t).Status.ObservedGeneration)

	t.Run("if another client's change delays the record, the request is observed later", func(t *testing.T) {
		s.RecordChanged(&api.ReleaseStatus{ObjectMeta: metav1.ObjectMeta{UID: "another", ResourceVersion: "2"}})
		s.edit(t, func(cv *configv1.ClusterVersion) {
			wants(cv, configv1.Update{Image: "example.com/r:delayed"})
			cv.Generation = before + 2
		})
		s.clock.SetTime(s.clock.Now().Add(time.Second))
		result := s.reconcile(t)
		assert.Equal(t, before+1, s.get(t).Status.ObservedGeneration)
		s.clock.SetTime(s.clock.Now().Add(result.RequeueAfter))
		s.reconcile(t)
		assert.Equal(t, before+2, s.get(t).Status.ObservedGeneration)
	})
	t.Run("if the record cannot be written at all, the rejection counts as an observation", func(t *testing.T) {
		record.err = apierrors.NewForbidden(schema.GroupResource{}, "version", nil)
		s.edit(t, func(cv *configv1.ClusterVersion) {
			wants(cv, configv1.Update{Image: "example.com/r:other"})
			cv.Generation = before + 3
		})
		s.at(2 * time.Hour)
		s.reconcile(t)
		assert.Equal(t, before+3, s.get(t).Status.ObservedGeneration)
	})
}

// TestRepairDelaysAnAcceptance has another client change the ReleaseStatus shortly after a write. A release by tag waits for the repair and is
// not rejected.
func TestRepairDelaysAnAcceptance(t *testing.T) {
	const tag = "example.com/r:stable"
	record := &storedRecord{}
	s := newScribe(t, func(p *parts) { p.options.Record = record })
	cv := s.get(t)
	cv.Status = clusterAt(completed("1.0.0")).Status
	require.NoError(t, s.client.Status().Update(t.Context(), cv))
	s.reconcile(t)
	s.accepts(acceptedRelease("1.0.0"))
	s.later(t)
	s.edit(t, func(cv *configv1.ClusterVersion) { wants(cv, configv1.Update{Image: tag}) })
	s.later(t)
	require.NotNil(t, record.object.Status.Request)
	s.RecordChanged(&api.ReleaseStatus{ObjectMeta: metav1.ObjectMeta{UID: "another", ResourceVersion: "2"}})
	a := acceptedRelease("1.1.0")
	a.Target = request.Target{Image: tag, Requested: true}
	s.accepts(a)
	s.clock.SetTime(s.clock.Now().Add(time.Second))
	result := s.reconcile(t)
	status := s.get(t).Status
	assert.Equal(t, "1.0.0", status.History[0].Version, "the release is not accepted yet")
	assert.Equal(t, `Unknown|RetrievePayload|Waiting to record payload version="" image="`+tag+`": another client has just changed the ReleaseStatus`,
		said(status, api.ReleaseAccepted))
	assert.Equal(t, time.Second, result.RequeueAfter, "the repair is due")

	s.clock.SetTime(s.clock.Now().Add(result.RequeueAfter))
	s.reconcile(t)
	status = s.get(t).Status
	assert.Equal(t, "1.1.0", status.History[0].Version)
	assert.Equal(t, `True|PayloadLoaded|Payload loaded version="1.1.0"`, said(status, api.ReleaseAccepted))
}

// storedRecord is a ReleaseStatus that outlives a process.
type storedRecord struct {
	releasestatus.Object
	object *api.ReleaseStatus
}

func (r *storedRecord) Get(context.Context, string) (*api.ReleaseStatus, error) { return r.object, nil }

func (r *storedRecord) Put(_ context.Context, s *api.ReleaseStatus) (*api.ReleaseStatus, error) {
	r.object = s
	return s, nil
}

// TestInvalidRequestKeepsTheRecordAfterARestart has a release that was requested by tag and forced. An edit makes the request invalid, the
// process ends, and then the edit is undone. Without the record, the tag would be resolved again, and force would cover another image.
//
//threat:tag-moved-release
func TestInvalidRequestKeepsTheRecordAfterARestart(t *testing.T) {
	const tag = "example.com/r:stable"
	at := completed("1.1.0").StartedTime
	record := &storedRecord{object: &api.ReleaseStatus{Status: api.ReleaseStatusStatus{Request: &api.ReleaseRequest{
		Image: tag, Force: true, Phase: api.RequestAccepted, Digest: string(digestOf("1.1.0")), SeenAt: at, ResolvedAt: &at, AcceptedAt: &at,
	}}}}
	s := newScribe(t, func(p *parts) { p.options.Record, p.options.ReleaseImage = record, imageOf("1.1.0") })
	cv := s.get(t)
	cv.Status = clusterAt(completed("1.1.0"), completed("1.0.0")).Status
	require.NoError(t, s.client.Status().Update(t.Context(), cv))
	s.edit(t, func(cv *configv1.ClusterVersion) {
		wants(cv, configv1.Update{Image: tag, Force: true})
		cv.Spec.DesiredUpdate.Architecture = configv1.ClusterVersionArchitectureMulti
	})
	s.reconcile(t)
	require.NotNil(t, record.object.Status.Request)

	s.edit(t, func(cv *configv1.ClusterVersion) { wants(cv, configv1.Update{Image: tag, Force: true}) })
	s.at(time.Minute)
	s.reconcile(t)
	require.NotNil(t, record.object.Status.Request)
	assert.Equal(t, api.RequestAccepted, record.object.Status.Request.Phase, "it is the same request")
	assert.Equal(t, string(digestOf("1.1.0")), record.object.Status.Request.Digest, "the tag is not resolved again")
}

// searching is a Runner that searches for updates at each reconcile, and does nothing else.
type searching struct{ idle }

func (searching) Start(slot, _ string, step func(context.Context) background.Next) {
	if slot == background.SlotUpdates || slot == background.SlotRisks {
		step(context.Background())
	}
}

// TestUpdatesOutliveAProcessWithTheirQuery restarts the operator while the update service is away: once with the same channel, and once with
// another.
//
//threat:answer-one-request
func TestUpdatesOutliveAProcessWithTheirQuery(t *testing.T) {
	var away error
	record := &storedRecord{object: &api.ReleaseStatus{}}
	s := newScribe(t, func(p *parts) {
		p.runner, p.options.Record = searching{}, record
		p.options.Updates.Ask = func(context.Context, updategraph.Query, updategraph.Answer) (updategraph.Answer, error) {
			return updategraph.Answer{Updates: updategraph.Updates{Available: []configv1.Release{{Version: "1.0.1", Image: imageOf("1.0.1")}}}}, away
		}
	})
	cv := s.get(t)
	cv.Status = clusterAt(completed("1.0.0")).Status
	require.NoError(t, s.client.Status().Update(t.Context(), cv))
	s.edit(t, func(cv *configv1.ClusterVersion) {
		cv.Spec.Upstream, cv.Spec.Channel = "https://example.com/graph", "stable"
	})
	reconcile := func() []configv1.Release {
		for range 3 {
			s.later(t)
			s.accepts(acceptedRelease("1.0.0"))
		}
		return s.get(t).Status.AvailableUpdates
	}
	restart := func() {
		s.Reconciler = New(s.clock, s.client, s.recorder, s.runner, s.stages, blank{}, s.engine, func() {}, s.options)
	}
	require.Len(t, reconcile(), 1)
	require.NotEmpty(t, record.object.Status.UpdatesDigest)

	away = errors.New("away")
	for range 2 {
		restart()
		assert.Len(t, reconcile(), 1)
	}
	s.edit(t, func(cv *configv1.ClusterVersion) { cv.Spec.Channel = "fast" })
	restart()
	assert.Empty(t, reconcile())
}

// recordedStore has the inventory of an earlier process.
type recordedStore struct{ blank }

func (recordedStore) Load(context.Context) (inventory.Inventory, error) {
	return inventory.Inventory{Release: "1.1.0", Digest: string(digestOf("1.1.0"))}, nil
}

// TestNewClusterVersionContinuesWhateverItRequests has a ClusterVersion that was deleted and created again. A request by version alone is
// invalid as long as the status offers no updates.
func TestNewClusterVersionContinuesWhateverItRequests(t *testing.T) {
	for name, update := range map[string]*configv1.Update{"nothing": nil, "a version": {Version: "1.1.0"}, "an image": {Version: "1.1.0", Image: imageOf("1.1.0")}} {
		t.Run(name, func(t *testing.T) {
			s := newScribe(t, func(p *parts) { p.options.Record, p.store = &storedRecord{}, recordedStore{} })
			s.edit(t, func(cv *configv1.ClusterVersion) { cv.Spec.DesiredUpdate = update })
			s.reconcile(t)
			assert.Equal(t, imageOf("1.1.0"), s.get(t).Status.Desired.Image)
		})
	}
}
