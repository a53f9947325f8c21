package clusterversion

import (
	"strings"
	"testing"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
)

// events returns the events with that reason since the last call.
func (s *scribe) events(reason string) (list []string) {
	for len(s.recorder.Events) > 0 {
		if e := <-s.recorder.Events; strings.Contains(e, " "+reason+" ") {
			list = append(list, e)
		}
	}
	return list
}

// TestRolloutEndsWithItsClusterVersion removes the ClusterVersion. All work for it ends, and one event reports the end. Late results are
// dropped, and a recreated ClusterVersion starts as with a new process.
//
//threat:clusterversion-deleted-being
func TestRolloutEndsWithItsClusterVersion(t *testing.T) {
	const finalizer = "example.com/hold"
	remove := func(t *testing.T, s *scribe) {
		t.Helper()
		require.NoError(t, s.client.Delete(t.Context(), s.get(t)))
	}
	create := func(t *testing.T, s *scribe) {
		t.Helper()
		cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version", UID: "second"}}
		require.NoError(t, s.client.Create(t.Context(), cv))
	}
	for _, tt := range []struct {
		name  string
		end   func(t *testing.T, s *scribe)
		again func(t *testing.T, s *scribe)
		want  string
	}{
		{
			"stops for a deleted ClusterVersion", remove, create,
			"Stopped the rollout of 1.0.0: ClusterVersion version was deleted; recreate it to continue",
		},
		{
			"stops for a ClusterVersion that waits for a finalizer",
			func(t *testing.T, s *scribe) {
				cv := s.get(t)
				cv.Finalizers = []string{finalizer}
				require.NoError(t, s.client.Update(t.Context(), cv))
				remove(t, s)
			},
			func(t *testing.T, s *scribe) {
				cv := s.get(t)
				cv.Finalizers = nil
				require.NoError(t, s.client.Update(t.Context(), cv))
				s.reconcile(t)
				assert.Empty(t, s.events(api.EventRolloutStopped), "the second stop emits no event")
				create(t, s)
			},
			"Stopped the rollout of 1.0.0: ClusterVersion version is being deleted and waits for finalizers " + finalizer + "; recreate it once it is gone to continue",
		},
		{
			"stops for a ClusterVersion that is replaced between two reads",
			func(t *testing.T, s *scribe) { remove(t, s); create(t, s) },
			func(*testing.T, *scribe) {},
			"Stopped the rollout of 1.0.0: ClusterVersion version was deleted and recreated",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runner := &startLog{}
			s := newScribe(t, func(p *parts) { p.runner = runner })
			cv := s.get(t)
			require.NoError(t, s.client.Delete(t.Context(), cv))
			require.NoError(t, s.client.Create(t.Context(), &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version", UID: "first"}}))
			s.reconcile(t)
			s.accepts(acceptedRelease("1.0.0"))
			s.reconcile(t)
			require.Contains(t, runner.slots, background.SlotRollout)
			_, err := s.ledger.Open(t.Context(), logr.Discard())
			require.NoError(t, err)
			question, rollout, serial := s.acceptance.snapshot().Key, s.underway.snapshot().key, s.acceptance.snapshot().Serial
			s.events("")

			runner.slots = nil
			tt.end(t, s)
			s.reconcile(t)
			assert.Equal(t, 1, runner.stops)
			assert.Equal(t, []string{"Warning " + api.EventRolloutStopped + " " + tt.want}, s.events(api.EventRolloutStopped))
			again, err := s.ledger.Open(t.Context(), logr.Discard())
			require.NoError(t, err)
			assert.NotNil(t, again, "the inventory is read again")
			_, telling := s.Snapshot()
			assert.False(t, telling)

			old := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version", UID: "first"}}
			s.acceptanceChanged(old, question, acceptedRelease("1.0.0"))
			s.progressed(old, rollout, *progressOf("1.0.0", 4, 4))
			assert.Nil(t, s.underway.snapshot().progress)
			assert.False(t, s.acceptance.snapshot().Latest.Done)

			tt.again(t, s)
			s.reconcile(t)
			assert.Empty(t, s.events(api.EventRolloutStopped))
			assert.Equal(t, 1, runner.stops)
			assert.NotEqual(t, question, s.acceptance.snapshot().Key, "a late answer does not match the new question")
			assert.NotContains(t, runner.slots, background.SlotRollout)
			s.accepts(acceptedRelease("1.0.0"))
			s.reconcile(t)
			assert.Contains(t, runner.slots, background.SlotRollout)
			assert.Greater(t, s.acceptance.snapshot().Serial, serial)
			assert.Equal(t, types.UID("second"), s.get(t).UID)
			assert.Equal(t, "1.0.0", s.get(t).Status.History[0].Version)
		})
	}
}
