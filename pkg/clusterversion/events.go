package clusterversion

import (
	"cmp"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/manifest"
)

func driftRepaired(r report.Repaired) event.Event {
	return event.Normal(api.EventDriftRepaired, "Repaired %s, which was %s%s%s", r.ID, r.Reason, r.By(), r.Advice())
}

func repairsHeldBack(r report.Repaired) event.Event {
	return event.Warning(api.EventRepairsHeldBack, "%s keeps being changed%s; it is not repaired again before %s%s",
		r.ID, cmp.Or(r.By(), " by another client"), r.HeldBack.UTC().Format("15:04:05Z"), r.Advice())
}

func fieldsTakenBack(id manifest.ID, text string) event.Event {
	return event.Normal(api.EventFieldsTakenBack, "%s: the operator %s", id, text)
}

func orphanPruned(r inventory.Record) event.Event {
	return event.Normal(api.EventOrphanPruned, "Deleted %s: release %s no longer contains it (last shipped in %s)", r.ID, r.Dropped, r.Release)
}
