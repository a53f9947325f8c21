package clusterversion

import (
	"fmt"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/report"
)

func driftRepaired(r report.Repaired) event.Event {
	by := ""
	if r.Manager != "" {
		by = fmt.Sprintf(" by field manager %q", r.Manager)
	}
	return event.Normal(api.EventDriftRepaired, "Repaired %s, which was %s%s", r.ID, r.Reason, by)
}

func repairsHeldBack(r report.Repaired) event.Event {
	by := "another client"
	if r.Manager != "" {
		by = fmt.Sprintf("field manager %q", r.Manager)
	}
	return event.Warning(api.EventRepairsHeldBack, "%s keeps being changed by %s; it is not repaired again before %s", r.ID, by, r.HeldBack.UTC().Format("15:04:05Z"))
}

func orphanPruned(r inventory.Record) event.Event {
	return event.Normal(api.EventOrphanPruned, "Deleted %s: release %s no longer contains it (last shipped in %s)", r.ID, r.Dropped, r.Release)
}
