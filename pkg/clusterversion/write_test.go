package clusterversion

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/clusterversion/ledger"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	updategraph "github.com/cluster-version/cvo/pkg/update/graph"
)

func invalidStatus(paths ...string) error {
	var list field.ErrorList
	for _, path := range paths {
		list = append(list, field.Invalid(field.NewPath(path), "x", "no"))
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: "config.openshift.io", Kind: "ClusterVersion"}, "version", list)
}

// idle is a Runner that does nothing.
type idle struct{}

func (idle) Start(string, string, func(context.Context) background.Next) {}
func (idle) Wake(string)                                                 {}
func (idle) Stop()                                                       {}

// scribe is a reconciler without background work, whose status writes return preset answers.
type scribe struct {
	*Reconciler
	clock    *clocktesting.FakePassiveClock
	client   client.Client
	recorder *record.FakeRecorder
	refuse   func(status configv1.ClusterVersionStatus, conditional bool) error
	writes   []time.Time
	attempts int
}

// parts are the parts of a scribe that a test may replace.
type parts struct {
	client  client.Client
	runner  background.Runner
	stages  accept.Stages
	store   ledger.Store
	engine  EngineFor
	options Options
}

func newScribe(t *testing.T, with ...func(*parts)) *scribe {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, configv1.Install(scheme))
	s := &scribe{clock: clocktesting.NewFakePassiveClock(now), recorder: record.NewFakeRecorder(100)}
	cv := clusterAt()
	s.client = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(cv).WithStatusSubresource(cv).Build(), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			s.attempts++
			data, err := patch.Data(obj)
			require.NoError(t, err)
			var operations []struct {
				Path  string
				Value json.RawMessage
			}
			require.NoError(t, json.Unmarshal(data, &operations))
			var status configv1.ClusterVersionStatus
			require.NoError(t, json.Unmarshal(operations[0].Value, &status))
			if s.refuse != nil {
				if err := s.refuse(status, len(operations) > 1); err != nil {
					return err
				}
			}
			s.writes = append(s.writes, s.clock.Now())
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	})
	p := parts{
		client: s.client, runner: idle{}, stages: accept.Stages{Settings: func() accept.Settings { return accept.Settings{} }},
		store:   blank{},
		options: Options{Name: "version", ReleaseImage: imageOf("1.0.0")},
	}
	for _, change := range with {
		change(&p)
	}
	s.Reconciler = New(s.clock, p.client, s.recorder, p.runner, p.stages, p.store, p.engine, func() {}, p.options)
	return s
}

func (s *scribe) reconcile(t *testing.T) reconcile.Result {
	t.Helper()
	result, err := s.Reconcile(logr.NewContext(t.Context(), logr.Discard()), reconcile.Request{NamespacedName: client.ObjectKey{Name: "version"}})
	require.NoError(t, err)
	return result
}

func (s *scribe) get(t *testing.T) *configv1.ClusterVersion {
	t.Helper()
	cv := &configv1.ClusterVersion{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: "version"}, cv))
	return cv
}

// accepts reports a result of the current question, as the background does.
func (s *scribe) accepts(a accept.Acceptance) {
	s.acceptanceChanged(clusterAt(), s.acceptance.snapshot().Key, a)
}

// TestStatusIsWrittenOnceASecond makes changes that are not edges within a second of a write. They are written together when the second has
// passed.
func TestStatusIsWrittenOnceASecond(t *testing.T) {
	s := newScribe(t)
	s.reconcile(t)
	require.Len(t, s.writes, 1)
	for i := range 9 {
		s.clock.SetTime(s.clock.Now().Add(100 * time.Millisecond))
		s.accepts(accept.Acceptance{Target: request.Target{Image: imageOf("1.0.0")}, Step: api.ReasonLoadPayload, Message: string(rune('a' + i))})
		result := s.reconcile(t)
		assert.Equal(t, time.Duration(9-i)*100*time.Millisecond, result.RequeueAfter.Round(100*time.Millisecond))
	}
	require.Len(t, s.writes, 1)
	s.clock.SetTime(now.Add(time.Second))
	s.reconcile(t)
	require.Len(t, s.writes, 2)
	assert.Equal(t, "Unknown|LoadPayload|i", said(s.get(t).Status, api.ReleaseAccepted))
}

// TestRestoredClusterIsWritten restores a cluster from a backup, so its resource versions stay below the one of our last write.
func TestRestoredClusterIsWritten(t *testing.T) {
	s := newScribe(t)
	s.reconcile(t)
	require.NoError(t, s.client.Delete(t.Context(), s.get(t)))
	require.NoError(t, s.client.Create(t.Context(), clusterAt())) // it starts at a low resource version
	s.accepts(acceptedRelease("1.0.0"))
	s.clock.SetTime(now.Add(2 * time.Second))
	const patience = 30 * time.Second
	assert.Equal(t, patience-2*time.Second, s.reconcile(t).RequeueAfter, "the cache may be behind")
	require.Len(t, s.writes, 1)
	s.clock.SetTime(now.Add(patience))
	s.reconcile(t)
	require.Len(t, s.writes, 2)
}

// TestConflictsEndWithOurStatus competes with a writer that is always faster. The operator wins in the end, because it owns the status.
func TestConflictsEndWithOurStatus(t *testing.T) {
	s := newScribe(t)
	s.refuse = func(_ configv1.ClusterVersionStatus, conditional bool) error {
		if conditional {
			return apierrors.NewConflict(schema.GroupResource{Resource: "clusterversions"}, "version", errors.New("changed"))
		}
		return nil
	}
	for s.attempts < 3 {
		assert.Equal(t, 100*time.Millisecond, s.reconcile(t).RequeueAfter, "a conflict is not an error")
	}
	require.Empty(t, s.writes)
	s.reconcile(t)
	require.Len(t, s.writes, 1)
	s.clock.SetTime(now.Add(time.Minute))
	s.accepts(acceptedRelease("1.0.0"))
	s.refuse = func(_ configv1.ClusterVersionStatus, conditional bool) error {
		assert.True(t, conditional, "a successful write ends the unconditional writes")
		return nil
	}
	s.reconcile(t)
	require.Len(t, s.writes, 2)
}

// TestStatusThatIsTooLargeIsWrittenWithoutUpdates has the API server reject the status because of its size, even with the updates of the
// last status. The history does not wait.
//
//threat:risks-too-many
func TestStatusThatIsTooLargeIsWrittenWithoutUpdates(t *testing.T) {
	updates, work := updategraph.Updates{Available: []configv1.Release{{Version: "1.0.1", Image: "a"}}}, slots{}
	s := newScribe(t, func(p *parts) {
		p.runner = work
		p.options.Updates.Ask = func(context.Context, updategraph.Query, updategraph.Answer) (updategraph.Answer, error) {
			return updategraph.Answer{Updates: updates}, nil
		}
	})
	s.edit(t, func(cv *configv1.ClusterVersion) { cv.Spec.Channel, cv.Spec.Upstream = "stable", "https://example.com" })
	cv := s.get(t)
	cv.Status = clusterAt(completed("1.0.0")).Status
	require.NoError(t, s.client.Status().Update(t.Context(), cv))
	s.reconcile(t)
	s.accepts(acceptedRelease("1.0.0"))
	find := func() {
		s.later(t)
		work[background.SlotUpdates].step(t.Context())
		work[background.SlotRisks].step(t.Context())
		s.later(t)
	}
	find()
	require.Len(t, s.get(t).Status.AvailableUpdates, 1)
	s.refuse = func(status configv1.ClusterVersionStatus, _ bool) error {
		if len(status.AvailableUpdates) > 0 {
			return apierrors.NewInternalError(errors.New("etcdserver: request is too large"))
		}
		return nil
	}
	s.edit(t, func(cv *configv1.ClusterVersion) {
		wants(cv, configv1.Update{Image: imageOf("1.1.0"), Version: "1.1.0"})
	})
	s.later(t)
	s.accepts(acceptedRelease("1.1.0"))
	s.later(t)
	status := s.get(t).Status
	assert.Equal(t, "1.1.0", status.History[0].Version)
	assert.Empty(t, status.AvailableUpdates)
	s.refuse = nil
	find()
	assert.Len(t, s.get(t).Status.AvailableUpdates, 1, "they are retried")
}

// TestRejectedFieldsAreRetriedLater has the API server reject fields. They are omitted, reported once and retried later.
func TestRejectedFieldsAreRetriedLater(t *testing.T) {
	for _, tt := range []struct {
		name   string
		refuse func(status configv1.ClusterVersionStatus) error
		hash   string
	}{
		{"omits a named field", func(status configv1.ClusterVersionStatus) error {
			if len(status.History) > 0 {
				return invalidStatus("status.history[0].image")
			}
			return nil
		}, "hash-1.0.0"},
		{"omits fields that the rejection does not name", func(status configv1.ClusterVersionStatus) error {
			if status.VersionHash != "" {
				return invalidStatus("status")
			}
			return nil
		}, ""},
		{"omits all but conditions if the status is too large", func(status configv1.ClusterVersionStatus) error {
			if status.VersionHash != "" {
				return apierrors.NewRequestEntityTooLargeError("limit is 3145728")
			}
			return nil
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const refusalInterval = time.Minute
			s := newScribe(t)
			s.reconcile(t)
			s.accepts(acceptedRelease("1.0.0"))
			s.refuse = func(status configv1.ClusterVersionStatus, _ bool) error { return tt.refuse(status) }
			for range 5 {
				s.clock.SetTime(s.clock.Now().Add(2 * time.Second))
				result := s.reconcile(t)
				assert.Positive(t, result.RequeueAfter, "no event announces the time of the retry")
				assert.LessOrEqual(t, result.RequeueAfter, refusalInterval)
			}
			status := s.get(t).Status
			assert.Empty(t, status.History)
			assert.Equal(t, tt.hash, status.VersionHash)
			assert.Equal(t, `True|PayloadLoaded|Payload loaded version="1.0.0"`, said(status, api.ReleaseAccepted), "the other fields are reported")
			attempts := s.attempts
			assert.LessOrEqual(t, attempts, 6)
			s.clock.SetTime(s.clock.Now().Add(refusalInterval))
			s.reconcile(t)
			assert.Greater(t, s.attempts, attempts, "the fields are retried")
			close(s.recorder.Events)
			var events []string
			for e := range s.recorder.Events {
				events = append(events, e)
			}
			refusals := slices.DeleteFunc(events, func(e string) bool { return len(e) < 22 || e[:21] != "Warning StatusRefused" })
			assert.Len(t, refusals, 1, "%v", events)
			s.refuse = nil
			s.clock.SetTime(s.clock.Now().Add(2 * refusalInterval))
			s.recorder.Events = make(chan string, 100)
			s.reconcile(t)
			assert.Equal(t, "1.0.0", s.get(t).Status.History[0].Version)
		})
	}
}
