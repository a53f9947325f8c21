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
	"github.com/cluster-version/cvo/pkg/rollout"
)

func TestNotLess(t *testing.T) {
	saying := func(message string) configv1.ClusterVersionStatus {
		return configv1.ClusterVersionStatus{Conditions: []configv1.ClusterOperatorStatusCondition{{Type: configv1.OperatorProgressing, Message: message}}}
	}
	const counted = "Working towards 1.1.0: 139 of 859 done (16% complete), waiting on etcd"
	for _, tt := range []struct {
		name     string
		before   configv1.ClusterVersionStatus
		progress *rollout.Progress
		want     int
		resumed  bool
	}{
		{"keeps what the predecessor counted", saying(counted), progressOf("1.1.0", 0, 859), 139, true},
		{"until it is counted again", saying(counted), progressOf("1.1.0", 139, 859), 139, false},
		{"goes on from there", saying(counted), progressOf("1.1.0", 140, 859), 140, false},
		{"counts anew if there is more or less to do", saying(counted), progressOf("1.1.0", 3, 860), 3, false},
		{"counts anew for another release", saying(counted), progressOf("1.1.1", 3, 859), 3, false},
		{"believes no number beyond the total", saying("Working towards 1.1.0: 900 of 859 done (104% complete)"), progressOf("1.1.0", 3, 859), 3, false},
		{"believes no words", saying("Working towards 1.1.0: many of 859 done"), progressOf("1.1.0", 3, 859), 3, false},
		{"knows when all is done", saying(counted), &rollout.Progress{Done: 1, Total: 859, Complete: true}, 1, false},
		{"has nothing to keep", configv1.ClusterVersionStatus{}, progressOf("1.1.0", 3, 859), 3, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			done := tt.progress.Done
			got, resumed := notLess(tt.progress, tt.before)
			assert.Equal(t, tt.want, got.Done)
			assert.Equal(t, tt.resumed, resumed)
			assert.Equal(t, done, tt.progress.Done, "a progress is a value")
		})
	}
}

func invalidStatus(paths ...string) error {
	var list field.ErrorList
	for _, path := range paths {
		list = append(list, field.Invalid(field.NewPath(path), "x", "no"))
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: "config.openshift.io", Kind: "ClusterVersion"}, "version", list)
}

func TestRefusedFields(t *testing.T) {
	assert.Equal(t, []string{"capabilities", "conditions[3]", "history"},
		refusedFields(invalidStatus("status.history[0].state", "status.conditions[3].reason", "status.capabilities.knownCapabilities[17]", "status.history", "metadata.name")))
	assert.Empty(t, refusedFields(invalidStatus()))
	assert.Empty(t, refusedFields(errors.New("no")))
}

func TestReduced(t *testing.T) {
	condition := func(kind configv1.ClusterStatusConditionType, message string) configv1.ClusterOperatorStatusCondition {
		return configv1.ClusterOperatorStatusCondition{Type: kind, Message: message}
	}
	before := configv1.ClusterVersionStatus{VersionHash: "old", Conditions: []configv1.ClusterOperatorStatusCondition{condition("a", "old")}}
	status := configv1.ClusterVersionStatus{
		VersionHash: "new", History: longHistory(2), Desired: configv1.Release{Version: "1"}, ObservedGeneration: 2,
		Conditions: []configv1.ClusterOperatorStatusCondition{condition("a", "new"), condition("b", "new"), condition("c", "new")},
	}
	assert.Equal(t, status, reduced(before, status, nil))
	got := reduced(before, status, []string{"history", "conditions[0]", "conditions[1]", "conditions[9]"})
	assert.Empty(t, got.History)
	assert.Equal(t, "new", got.VersionHash)
	assert.Equal(t, []configv1.ClusterOperatorStatusCondition{condition("a", "old"), condition("c", "new")}, got.Conditions, "a condition keeps its place")

	fields := lasting([]string{"history", "conditions[1]", "conditions[9]"}, status)
	assert.Equal(t, []string{"history", "condition b", "conditions[9]"}, fields)
	status.Conditions = append([]configv1.ClusterOperatorStatusCondition{condition("z", "new")}, status.Conditions...)
	got = reduced(before, status, fields)
	assert.Equal(t, []configv1.ClusterOperatorStatusCondition{condition("z", "new"), condition("a", "new"), condition("c", "new")}, got.Conditions,
		"the same one, wherever it stands by now")
	status.Conditions = status.Conditions[1:]
	least := reduced(before, status, allButConditions())
	assert.Equal(t, configv1.ClusterVersionStatus{VersionHash: "old", ObservedGeneration: 2, Conditions: status.Conditions}, least)
	assert.Equal(t, before.Conditions, reduced(before, least, []string{"conditions"}).Conditions)
}

// idle is a Runner that does nothing.
type idle struct{}

func (idle) Start(string, string, func(context.Context) Next) {}
func (idle) Wake(string)                                      {}

// scribe is a reconciler without a background, whose status writes answer as told.
type scribe struct {
	*Reconciler
	clock    *clocktesting.FakePassiveClock
	client   client.Client
	recorder *record.FakeRecorder
	refuse   func(status configv1.ClusterVersionStatus, conditional bool) error
	writes   []time.Time
	attempts int
}

func newScribe(t *testing.T) *scribe {
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
	s.Reconciler = New(s.clock, s.client, s.recorder, idle{}, newShelf().stages(), nil, nil, func() {}, Options{Name: "version", ReleaseImage: imageOf("1.0.0")})
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

func (s *scribe) accepts(a Acceptance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.memory.latest = a
}

// TestOneWriteASecond: whatever happens within a second of a write is told together when it has passed.
func TestOneWriteASecond(t *testing.T) {
	s := newScribe(t)
	s.reconcile(t)
	require.Len(t, s.writes, 1)
	for i := range 9 {
		s.clock.SetTime(s.clock.Now().Add(100 * time.Millisecond))
		s.accepts(Acceptance{Target: Target{Image: imageOf("1.0.0")}, Step: api.ReasonLoadPayload, Message: string(rune('a' + i))})
		result := s.reconcile(t)
		assert.Equal(t, time.Duration(9-i)*100*time.Millisecond, result.RequeueAfter.Round(100*time.Millisecond))
	}
	require.Len(t, s.writes, 1)
	s.accepts(acceptedRelease("1.0.0"))
	s.clock.SetTime(now.Add(time.Second))
	s.reconcile(t)
	require.Len(t, s.writes, 2)
	assert.Equal(t, "1.0.0", s.get(t).Status.History[0].Version, "the edge is told after a second at most")
}

// TestClusterThatWasSetBack: the versions of a cluster that was restored from a backup are lower than that of our last
// write, for ever.
func TestClusterThatWasSetBack(t *testing.T) {
	s := newScribe(t)
	s.reconcile(t)
	s.memory.written = "1000000"
	s.accepts(acceptedRelease("1.0.0"))
	s.clock.SetTime(now.Add(2 * time.Second))
	assert.Equal(t, stalePatience-2*time.Second, s.reconcile(t).RequeueAfter, "the cache may be behind")
	require.Len(t, s.writes, 1)
	s.clock.SetTime(now.Add(stalePatience))
	s.reconcile(t)
	require.Len(t, s.writes, 2)
}

// TestConflicts: who is always faster loses, because status is ours.
func TestConflicts(t *testing.T) {
	s := newScribe(t)
	s.refuse = func(_ configv1.ClusterVersionStatus, conditional bool) error {
		if conditional {
			return apierrors.NewConflict(schema.GroupResource{Resource: "clusterversions"}, "version", errors.New("changed"))
		}
		return nil
	}
	for s.attempts < maxConflicts {
		assert.Equal(t, 100*time.Millisecond, s.reconcile(t).RequeueAfter, "a conflict is no error")
	}
	require.Empty(t, s.writes)
	s.reconcile(t)
	require.Len(t, s.writes, 1)
	s.clock.SetTime(now.Add(time.Minute))
	s.accepts(acceptedRelease("1.0.0"))
	s.refuse = func(_ configv1.ClusterVersionStatus, conditional bool) error {
		assert.True(t, conditional, "a write that goes through ends it")
		return nil
	}
	s.reconcile(t)
	require.Len(t, s.writes, 2)
}

// TestRefusedStatus: what the API server does not take is left out, told once, and tried again later.
func TestRefusedStatus(t *testing.T) {
	for _, tt := range []struct {
		name   string
		refuse func(status configv1.ClusterVersionStatus) error
		hash   string
	}{
		{"a field that it names", func(status configv1.ClusterVersionStatus) error {
			if len(status.History) > 0 {
				return invalidStatus("status.history[0].image")
			}
			return nil
		}, "hash-1.0.0"},
		{"something that it does not name", func(status configv1.ClusterVersionStatus) error {
			if status.VersionHash != "" {
				return invalidStatus("status")
			}
			return nil
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScribe(t)
			s.reconcile(t)
			s.accepts(acceptedRelease("1.0.0"))
			s.refuse = func(status configv1.ClusterVersionStatus, _ bool) error { return tt.refuse(status) }
			for range 5 {
				s.clock.SetTime(s.clock.Now().Add(2 * time.Second))
				result := s.reconcile(t)
				assert.Positive(t, result.RequeueAfter, "no event tells when it is time to try again")
				assert.LessOrEqual(t, result.RequeueAfter, refusalInterval)
			}
			status := s.get(t).Status
			assert.Empty(t, status.History)
			assert.Equal(t, tt.hash, status.VersionHash)
			assert.Equal(t, `True|PayloadLoaded|Payload loaded version="1.0.0"`, said(status, api.ReleaseAccepted), "the rest is told")
			attempts := s.attempts
			assert.LessOrEqual(t, attempts, 6)
			s.clock.SetTime(s.clock.Now().Add(refusalInterval))
			s.reconcile(t)
			assert.Greater(t, s.attempts, attempts, "it is tried again")
			close(s.recorder.Events)
			var events []string
			for e := range s.recorder.Events {
				events = append(events, e)
			}
			told := slices.DeleteFunc(events, func(e string) bool { return len(e) < 22 || e[:21] != "Warning StatusRefused" })
			assert.Len(t, told, 1, "%v", events)
			s.refuse = nil
			s.clock.SetTime(s.clock.Now().Add(2 * refusalInterval))
			s.recorder.Events = make(chan string, 100)
			s.reconcile(t)
			assert.Equal(t, "1.0.0", s.get(t).Status.History[0].Version)
		})
	}
}
