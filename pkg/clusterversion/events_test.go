package clusterversion

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/manifest"
)

func TestRepairEventsNameTheOtherWriter(t *testing.T) {
	const advice = "; if that client writes another API version than the release, release the manifest in that version"
	for _, tt := range []struct {
		name             string
		repair           report.Repair
		repaired, paused string
	}{
		{
			"names a field manager",
			report.Repair{Reason: report.DriftChanged, Manager: "kubectl"},
			`Repaired Widget lab/w, which was changed by field manager "kubectl"`,
			`Widget lab/w keeps being changed by field manager "kubectl"; it is not repaired again before 13:04:00Z`,
		},
		{
			"names no cause of empty managedFields",
			report.Repair{Reason: report.DriftChanged, Unowned: true},
			"Repaired Widget lab/w, which was changed by an unknown client (managedFields were empty)" + advice,
			"Widget lab/w keeps being changed by an unknown client (managedFields were empty); it is not repaired again before 13:04:00Z" + advice,
		},
		{
			"accepts an unknown writer",
			report.Repair{Reason: report.DriftDeleted},
			"Repaired Widget lab/w, which was deleted",
			"Widget lab/w keeps being changed by another client; it is not repaired again before 13:04:00Z",
		},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			r := report.Repaired{
				ID: manifest.ID{Kind: "Widget", Namespace: "lab", Name: "w"}, Repair: tt.repair,
				Fight: true, HeldBack: time.Date(2026, 3, 1, 13, 4, 0, 0, time.UTC),
			}
			assert.Equal(t, event.Normal(api.EventDriftRepaired, "%s", tt.repaired), driftRepaired(r))
			assert.Equal(t, event.Warning(api.EventRepairsHeldBack, "%s", tt.paused), repairsHeldBack(r))
		})
	}
}
