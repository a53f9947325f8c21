package clusterversion

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/clusterversion/identity"
	"github.com/cluster-version/cvo/pkg/clusterversion/releasestatus"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/update/reported"
)

// readRecord reads the record of an earlier process once. It reads past the cache, because the record is compared with the ClusterVersion
// on the API server.
func (c *Reconciler) readRecord(ctx context.Context, r *round) error {
	if c.record.WasRead() {
		return nil
	}
	found, err := c.record.Get(ctx)
	if err != nil {
		return err
	}
	live, err := c.publisher.ReadLive(ctx)
	if err != nil {
		return err
	}
	r.original, r.cv = live, live.DeepCopy()
	from, err := c.inherited(ctx, live, found.Status())
	if err != nil {
		return err
	}
	c.record.Read(found)
	if s := found.Status(); s != nil {
		c.updates.Recall(s.UpdatesDigest)
	}
	own := identity.RecallOwn(found.Status(), live)
	c.acceptance.change(func(a accept.Decision) accept.Decision { return a.Inherit(from, own) })
	return nil
}

// inherited returns the release in the inventory if the history does not show what the cluster runs. Either the history is empty, because the
// ClusterVersion was recreated. Or it has no completed release, nothing recorded that its install began, and the inventory has none of its
// releases: then another client has replaced the history.
func (c *Reconciler) inherited(ctx context.Context, live *configv1.ClusterVersion, found *api.ReleaseStatusStatus) (identity.Inherited, error) {
	entries := live.Status.History
	if reported.HasCompleted(entries) || len(entries) > 0 && identity.RecordsInstall(found, live) {
		return identity.Inherited{}, nil
	}
	inv, err := c.ledger.Look(ctx, logr.FromContextOrDiscard(ctx))
	if err != nil {
		return identity.Inherited{}, err
	}
	from := identity.Inherit(inv.Release, inv.Digest, found, c.options.ReleaseImage)
	digest := request.DigestIn(from.Image)
	if len(entries) > 0 && (digest == "" || slices.ContainsFunc(entries, func(e configv1.UpdateHistory) bool { return request.DigestIn(e.Image) == digest })) {
		return identity.Inherited{}, nil
	}
	return from, nil
}

// identify observes the request in the spec and records it before the status reports it as observed. cv is the ClusterVersion from which
// the target was chosen. An invalid request changes nothing. The first call restores the identity from the record of an earlier process. It
// drops migrated releases that could not be recorded, and the next process migrates them again.
func (c *Reconciler) identify(ctx context.Context, r *round, cv *configv1.ClusterVersion, invalid bool) {
	var restored identity.Identity
	migrated := false
	if !c.acceptance.snapshot().Recalled {
		asked := identity.Of(cv)
		if invalid {
			asked = identity.Recorded(c.record.Status(), cv)
		}
		restored = identity.Recall(c.record.Status(), cv, asked, r.target, c.options.ReleaseImage)
		recalled := restored
		if c.record.Predates() {
			recalled = restored.Migrate(cv.Status.History)
			migrated = recalled.IsMigrated(cv.Status.History)
		}
		c.acceptance.change(func(a accept.Decision) accept.Decision { return a.Recall(recalled) })
	}
	if !invalid {
		c.acceptance.change(func(a accept.Decision) accept.Decision { return a.Observe(cv, c.clock.Now()) })
	} else if len(cv.Status.History) == 0 { // a cluster without a history continues with the release in its inventory, whatever the request
		c.acceptance.change(func(a accept.Decision) accept.Decision {
			a.Identity = a.Identity.ObserveInstall(r.original, a.Inherited)
			return a
		})
	}
	if err := c.keep(ctx, r, c.acceptance.snapshot()); migrated && err != nil {
		c.acceptance.change(func(a accept.Decision) accept.Decision { return a.WithoutMigration(restored) })
	}
}

// keep writes the record of a decision if it differs from the one on the API server. A failed write is retried later. It affects only requests
// that must be recorded.
func (c *Reconciler) keep(ctx context.Context, r *round, known accept.Decision) error {
	before := c.record.UnmatchedOverrides()
	kept, err := c.record.Keep(ctx, releasestatus.Content{
		Identity: known.Identity, Payload: known.Recorded, Overrides: r.cv.Spec.Overrides, Recorded: c.recorded,
		NamesService: c.options.Updates.NamesService(), UpdatesDigest: r.updates.Digest(),
		Needed: known.Identity.NeedsRecord(r.target, c.options.ReleaseImage) || r.installing,
	})
	r.within(kept.Again)
	if kept.Recovered {
		c.runner.Wake(background.SlotAccept)
	}
	if unmatched := c.record.UnmatchedOverrides(); unmatched != "" && unmatched != before {
		c.emitter.Emit(r.original, event.Warning(api.EventOverrideUnmatched, "%s", unmatched))
	}
	return err
}

// recorded returns the objects in the inventory.
func (c *Reconciler) recorded(ctx context.Context) ([]manifest.ID, error) {
	inv, err := c.ledger.Look(ctx, logr.FromContextOrDiscard(ctx))
	return slices.Collect(maps.Keys(inv.Records)), err
}

// keepAccepted records an accepted release. A release that was requested by tag, or that the cluster continues with, must be recorded
// before it is accepted. The error says why it could not be recorded. It is releasestatus.ErrChanged if the write is only delayed; then the
// reconcile is requeued for the time of the write.
func (c *Reconciler) keepAccepted(ctx context.Context, r *round, a accept.Acceptance) error {
	now := c.clock.Now()
	record := func(known accept.Decision) accept.Decision { return known.Record(a, c.options.ReleaseImage, now) }
	err := c.keep(ctx, r, record(c.acceptance.snapshot()))
	if err == nil || !a.Target.Continued && (!request.IsTag(a.Target.Named()) || a.Verified.Digest == "") {
		c.acceptance.change(record) // of the current decision: a tag may have been resolved in the meantime
		return nil
	}
	switch {
	case errors.Is(err, releasestatus.ErrChanged):
		return err
	case a.Target.Continued:
		return fmt.Errorf("cannot record that the cluster continues with the release: %w; apply the CustomResourceDefinition %s of this operator's release",
			err, api.ReleaseStatusDefinition)
	}
	return &releasestatus.UnrecordedError{Err: err}
}

// RecordChanged takes each version of the ReleaseStatus that a watch reports, nil after a deletion. If another client has deleted or
// changed the record, it is written again. RecordChanged may be called at any time.
func (c *Reconciler) RecordChanged(live *api.ReleaseStatus) {
	if c.record.Changed(live) {
		c.changed()
	}
}

// inventorySaved records the result of saving the inventory if it differs from the previous one.
func (c *Reconciler) inventorySaved(err error) {
	if c.record.InventorySaved(err) {
		c.changed()
	}
}
