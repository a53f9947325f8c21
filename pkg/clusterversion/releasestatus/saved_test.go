package releasestatus

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/identity"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/test/fixture/cluster"
)

var now = cluster.Now()

// heldRecord is an in-memory ReleaseStatus that counts its reads and writes.
type heldRecord struct {
	Object

	status     *api.ReleaseStatus
	failure    error
	gets, puts int
	// drops reports that the definition lacks conditions.
	drops bool
}

func (r *heldRecord) Get(context.Context, string) (*api.ReleaseStatus, error) {
	r.gets++
	return r.status, r.failure
}

func (r *heldRecord) Put(_ context.Context, status *api.ReleaseStatus) (*api.ReleaseStatus, error) {
	r.puts++
	if r.failure != nil {
		return nil, r.failure
	}
	kept := *status
	if r.drops {
		kept.Status.Conditions = nil
	}
	r.status = &kept
	return &kept, nil
}

// saving is the record of a cluster in which the operator saves the inventory.
type saving struct {
	*Record
	*heldRecord

	t        *testing.T
	identity identity.Identity
}

// newSaving returns a process that has read the record found; nil for no record.
func newSaving(t *testing.T, found *api.ReleaseStatus) *saving {
	s := &saving{t: t, heldRecord: &heldRecord{status: found}, identity: oneRelease()}
	s.Record = New(clocktesting.NewFakePassiveClock(now), s.heldRecord, "version", "ns")
	s.Read(Found{Object: found})
	require.NoError(t, s.keep())
	s.puts = 0
	return s
}

func (s *saving) keep() error {
	_, err := s.Keep(s.t.Context(), Content{Identity: s.identity, NamesService: true})
	return err
}

// save reports the result of a save, and keeps the record if Record requires it.
func (s *saving) save(err error) {
	s.t.Helper()
	if s.InventorySaved(err) {
		_ = s.keep()
	}
}

func (s *saving) condition() *metav1.Condition {
	return meta.FindStatusCondition(s.status.Status.Conditions, api.ConditionInventorySaved)
}

//threat:inventory-record-makes
func TestFailedSavesAreReportedOnce(t *testing.T) {
	empty := func() *api.ReleaseStatus { return &api.ReleaseStatus{ObjectMeta: metav1.ObjectMeta{Name: "version"}} }
	t.Run("writes nothing while every save succeeds", func(t *testing.T) {
		s := newSaving(t, empty())
		s.save(nil)
		s.save(nil)
		assert.Nil(t, s.condition())
		assert.Zero(t, s.gets+s.puts)
	})
	t.Run("reports the start and the end of a failure once", func(t *testing.T) {
		s := newSaving(t, empty())
		s.save(errors.New("no room"))
		s.save(errors.New("no room"))
		require.Equal(t, 1, s.puts)
		c := s.condition()
		require.NotNil(t, c)
		assert.Equal(t, metav1.ConditionFalse, c.Status)
		assert.Equal(t, api.ReasonSaveFailed, c.Reason)
		assert.Contains(t, c.Message, "no room")
		assert.True(t, now.Equal(c.LastTransitionTime.Time))
		assert.NotEmpty(t, s.status.Status.Releases, "the rest of the record stays")
		s.save(nil)
		s.save(nil)
		assert.Equal(t, 2, s.puts)
		assert.Equal(t, metav1.ConditionTrue, s.condition().Status)
	})
	t.Run("ends a failure that an earlier process reported", func(t *testing.T) {
		before := newSaving(t, empty())
		before.save(errors.New("no room"))
		s := newSaving(t, before.status)
		assert.Equal(t, metav1.ConditionFalse, s.condition().Status, "the condition stays until this process has saved")
		s.save(nil)
		assert.Equal(t, metav1.ConditionTrue, s.condition().Status)
	})
	t.Run("retries a failed write of the report", func(t *testing.T) {
		s := newSaving(t, empty())
		s.heldRecord.failure = errors.New("timeout")
		s.save(errors.New("no room"))
		assert.Nil(t, s.condition())
		s.heldRecord.failure = nil
		s.Record.clock.(*clocktesting.FakePassiveClock).SetTime(now.Add(retry + time.Second))
		require.NoError(t, s.keep())
		assert.Equal(t, metav1.ConditionFalse, s.condition().Status)
	})
	t.Run("waits for a ReleaseStatus", func(t *testing.T) {
		s := newSaving(t, nil)
		s.Reset()
		s.status, s.identity = nil, identity.Identity{}
		s.save(errors.New("no room"))
		assert.Zero(t, s.puts)
		s.identity = oneRelease()
		require.NoError(t, s.keep())
		assert.Equal(t, metav1.ConditionFalse, s.condition().Status)
	})
	t.Run("writes the condition once if the definition drops it", func(t *testing.T) {
		s := newSaving(t, empty())
		s.drops = true
		s.save(errors.New("no room"))
		for range 3 {
			require.NoError(t, s.keep())
		}
		assert.Equal(t, 1, s.puts)
	})
	t.Run("replaces another client's condition", func(t *testing.T) {
		s := newSaving(t, empty())
		s.save(errors.New("no room"))
		s.status.Status.Conditions[0].Status = metav1.ConditionTrue
		s.Read(Found{Object: s.status})
		require.NoError(t, s.keep())
		assert.Equal(t, metav1.ConditionFalse, s.condition().Status)
	})
	t.Run("bounds the message", func(t *testing.T) {
		s := newSaving(t, empty())
		s.save(errors.New(strings.Repeat("é", 1<<20)))
		assert.LessOrEqual(t, len(s.condition().Message), maxConditionMessage)
		assert.True(t, strings.HasSuffix(s.condition().Message, "é…"))
	})
}

// oneRelease returns an identity with one accepted release.
func oneRelease() identity.Identity {
	return identity.Recall(&api.ReleaseStatusStatus{Releases: []api.AcceptedRelease{{Image: cluster.Image("1.0.0")}}}, cluster.At(), nil, request.Target{}, "")
}
