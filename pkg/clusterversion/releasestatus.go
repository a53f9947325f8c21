package clusterversion

import (
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

// Record keeps the ReleaseStatus of a cluster. Get returns nil if there is none; Put replaces what Get returned, and
// fails with a conflict if somebody else has meanwhile. A cluster that does not serve the kind answers with an error
// for which meta.IsNoMatchError holds.
type Record interface {
	Get(ctx context.Context, name string) (*api.ReleaseStatus, error)
	Put(ctx context.Context, status *api.ReleaseStatus) error
	// Accepted is told of each release that was accepted, once. It keeps what going back to it will need, and drops what
	// neither it nor the releases in the history need any more.
	Accepted(ctx context.Context, cv *configv1.ClusterVersion, verified release.Verified) error
}

// maxSkipped bounds the list of manifests that are left out, so that the object stays far below what etcd takes.
const maxSkipped = 2000

// recordRetry is how long to wait with a record that could not be written.
const recordRetry = 10 * time.Second

// record writes down, beside the rollout, by what evidence a release was accepted and what of it is left out. It is
// kept apart from ClusterVersion, which has no fields for it, and a cluster can do without.
func (c *Reconciler) record(log logr.Logger, cv *configv1.ClusterVersion, a Acceptance) func(context.Context) Next {
	accepted, kept := c.clock.Now(), false
	return func(ctx context.Context) Next {
		if !kept {
			if err := c.stages.Record.Accepted(ctx, cv, a.Verified); err != nil && ctx.Err() == nil {
				log.Info("release not kept", "error", err.Error())
				return Next{After: recordRetry}
			}
			kept = true
		}
		err := c.recordStatus(ctx, a, accepted)
		switch {
		case err == nil || ctx.Err() != nil:
			return Next{Done: true}
		case meta.IsNoMatchError(err):
			log.V(1).Info("release status not recorded: the cluster does not serve its kind")
			return Next{Done: true}
		}
		log.Info("release status not recorded", "error", err.Error())
		return Next{After: recordRetry}
	}
}

// recordStatus writes the ReleaseStatus, unless it says the same already.
func (c *Reconciler) recordStatus(ctx context.Context, a Acceptance, accepted time.Time) error {
	old, err := c.stages.Record.Get(ctx, c.options.Name)
	if err != nil {
		return err
	}
	if old == nil {
		old = &api.ReleaseStatus{ObjectMeta: metav1.ObjectMeta{Name: c.options.Name}}
	}
	next := *old
	next.Status = nextReleaseStatus(old.Status, a, accepted, c.options)
	if equality.Semantic.DeepEqual(old.Status, next.Status) {
		return nil
	}
	return c.stages.Record.Put(ctx, &next)
}

// nextReleaseStatus puts an accepted release in front. Evidence that was once recorded for an image stays when the
// operator, started from that image, has none: it was gathered before its predecessor handed over. It stays, too, when
// the same signers are found again, though elsewhere: after a restart their signatures are in the cluster.
func nextReleaseStatus(old api.ReleaseStatusStatus, a Acceptance, now time.Time, options Options) api.ReleaseStatusStatus {
	entry := api.AcceptedRelease{
		Version: a.Payload.Release.Version, Image: a.Image(), AcceptedAt: metav1.NewTime(now).Rfc3339Copy(), Evidence: evidence(a.Verified.Evidence),
	}
	if a.Verified.Forced != nil {
		entry.Forced = a.Verified.Forced.Error()
	}
	releases := slices.Clone(old.Releases)
	if len(releases) > 0 && releases[0].Image == entry.Image {
		entry.AcceptedAt = releases[0].AcceptedAt
		if entry.Forced == "" && (len(entry.Evidence) == 0 || sameSigners(entry.Evidence, releases[0].Evidence)) {
			entry.Evidence, entry.Forced = releases[0].Evidence, releases[0].Forced
		}
		releases = releases[1:]
	}
	releases = slices.Insert(releases, 0, entry)
	return api.ReleaseStatusStatus{
		Releases: releases[:min(len(releases), api.ReleaseStatusReleases)],
		Skipped:  skippedManifests(a.Payload.Excluded), SkippedCount: len(a.Payload.Excluded),
		Inventory: api.InventoryReference{Namespace: options.Namespace, Selector: api.InventoryLabel + "=" + options.Name},
	}
}

// sameSigners compares who signed, not where it was found.
func sameSigners(a, b []api.SignatureEvidence) bool {
	return slices.EqualFunc(a, b, func(a, b api.SignatureEvidence) bool {
		return a.Root == b.Root && a.Threshold == b.Threshold && a.Method == b.Method && a.KeyID == b.KeyID && a.Identity == b.Identity
	})
}

func evidence(list []release.Evidence) []api.SignatureEvidence {
	var out []api.SignatureEvidence
	for _, e := range list {
		s := api.SignatureEvidence{
			Root: e.Root, Threshold: e.Threshold, Method: e.Method, Identity: e.Identity, Issuer: e.Issuer, KeyID: e.KeyID,
			Fingerprint: e.Fingerprint, Certificate: e.Certificate, Algorithm: e.Algorithm, Store: e.Store,
		}
		if !e.SignedAt.IsZero() {
			at := metav1.NewTime(e.SignedAt).Rfc3339Copy()
			s.SignedAt = &at
		}
		out = append(out, s)
	}
	return out
}

// skippedManifests lists what the cluster is not given, in the order of the release. Overrides are in the spec.
func skippedManifests(excluded []payload.Exclusion) []api.SkippedManifest {
	var out []api.SkippedManifest
	for _, e := range excluded[:min(len(excluded), maxSkipped)] {
		out = append(out, api.SkippedManifest{File: e.Manifest.File, Object: e.Manifest.ID().String(), Reason: e.Reason})
	}
	return out
}
