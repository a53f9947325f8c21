package clusterversion

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/release"
)

// recorded is a store with the inventory of an earlier process.
type recorded struct {
	blank

	inventory inventory.Inventory
}

func (r recorded) Load(context.Context) (inventory.Inventory, error) { return r.inventory, nil }

// TestRemovedHistoryIsRestored replaces the history while the operator runs 1.1.0, which is not its own release. The operator writes its
// history again and keeps its release.
//
//threat:history-replaced
func TestRemovedHistoryIsRestored(t *testing.T) {
	for _, tt := range []struct {
		name  string
		entry []configv1.UpdateHistory
	}{
		{"restores a removed history", nil},
		{"restores a history in which no install has completed", []configv1.UpdateHistory{partial("1.0.0")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runner := &startLog{}
			s := newScribe(t, func(p *parts) { p.runner = runner })
			cv := s.get(t)
			cv.Status.History = []configv1.UpdateHistory{completed("1.1.0"), completed("1.0.0")}
			require.NoError(t, s.client.Status().Update(t.Context(), cv))
			s.reconcile(t)
			s.accepts(acceptedRelease("1.1.0"))
			s.at(2 * time.Second)
			s.reconcile(t)
			before := s.get(t).Status
			require.Equal(t, imageOf("1.1.0"), before.History[0].Image)

			cv = s.get(t)
			cv.Status.History, cv.Status.Conditions, cv.Status.Desired.Version = tt.entry, nil, "6.6.6"
			require.NoError(t, s.client.Status().Update(t.Context(), cv))
			runner.slots = nil
			result := s.reconcile(t)
			assert.Empty(t, runner.slots, "nothing is decided from the replaced history")
			assert.Equal(t, time.Second, result.RequeueAfter, "repairs wait for the interval")
			s.at(3 * time.Second)
			s.reconcile(t)
			assert.Equal(t, before, s.get(t).Status)
			s.reconcile(t)
			assert.Equal(t, imageOf("1.1.0"), s.acceptance.snapshot().Accepted.Image())
			assert.Contains(t, runner.slots, background.SlotRollout)
			assert.Zero(t, runner.stops)
		})
	}
}

// TestReplacedHistoryContinuesFromTheInventory starts a process whose ClusterVersion shows no completed release, while the inventory has
// the release that the cluster runs.
//
//threat:history-replaced
func TestReplacedHistoryContinuesFromTheInventory(t *testing.T) {
	for _, tt := range []struct {
		name    string
		history []configv1.UpdateHistory
		holds   string
		want    request.Target
	}{
		{"continues after a removed history", nil, "1.1.0", request.Target{Image: imageOf("1.1.0"), Continued: true}},
		{"continues after a forged first install", []configv1.UpdateHistory{partial("1.0.0")}, "1.1.0", request.Target{Image: imageOf("1.1.0"), Continued: true}},
		{"resumes a real first install", []configv1.UpdateHistory{partial("1.0.0")}, "1.0.0", request.Target{Image: imageOf("1.0.0"), Own: true}},
		{"begins a first install without an inventory", nil, "", request.Target{Image: imageOf("1.0.0"), Own: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := recorded{}
			if tt.holds != "" {
				store.inventory = inventory.Inventory{Release: tt.holds, Digest: string(digestOf(tt.holds))}
			}
			s := newScribe(t, func(p *parts) { p.store, p.options.Record = store, unwritable{} })
			cv := s.get(t)
			cv.Status.History = tt.history
			require.NoError(t, s.client.Status().Update(t.Context(), cv))
			r := &round{original: s.get(t), cv: s.get(t)}
			require.NoError(t, s.readRecord(t.Context(), r))
			require.NoError(t, s.choose(t.Context(), r))
			assert.Equal(t, tt.want, r.target)
		})
	}
}

// TestAcceptedRisksOfAnEntryAreBounded accepts risks with long names. The API server would reject a larger status.
//
//threat:history-forged-grows
func TestAcceptedRisksOfAnEntryAreBounded(t *testing.T) {
	s := newScribe(t)
	cv := wants(s.get(t), configv1.Update{Image: imageOf("1.1.0"), Version: "1.1.0"})
	update := configv1.ConditionalUpdate{Release: configv1.Release{Version: "1.1.0", Image: imageOf("1.1.0")}}
	for i := range 200 {
		name := fmt.Sprintf("Risk%d%s", i, strings.Repeat("a", 240))
		cv.Spec.DesiredUpdate.AcceptRisks = append(cv.Spec.DesiredUpdate.AcceptRisks, configv1.AcceptRisk{Name: name})
		applies := []metav1.Condition{{Type: api.RiskApplies, Status: metav1.ConditionTrue}}
		update.Risks = append(update.Risks, configv1.ConditionalUpdateRisk{Name: name, Conditions: applies})
	}
	require.NoError(t, s.client.Update(t.Context(), cv))
	cv.Status = clusterAt(completed("1.0.0")).Status
	require.NoError(t, s.client.Status().Update(t.Context(), cv))
	s.reconcile(t)
	cv = s.get(t)
	cv.Status.ConditionalUpdates = []configv1.ConditionalUpdate{update}
	require.NoError(t, s.client.Status().Update(t.Context(), cv))
	s.accepts(acceptedRelease("1.1.0"))
	s.later(t)
	entry := s.get(t).Status.History[0]
	assert.Equal(t, "1.1.0", entry.Version)
	assert.Contains(t, entry.AcceptedRisks, "exposed to the risks [Risk0a")
	assert.LessOrEqual(t, len(entry.AcceptedRisks), release.MaxText)
}
