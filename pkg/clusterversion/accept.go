package clusterversion

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/internal/backoff"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
)

// staleRetry is the time between two checks whether a stale cache has caught up.
const staleRetry = 50 * time.Millisecond

// pendingRetry is the delay before work is repeated that could not start or has no answer yet.
const pendingRetry = 2 * time.Second

// pendingChecks is how often preconditions are checked, every pendingRetry, before obstacles that are not known yet reject a release.
// That is longer than a pass needs to look for the objects that the release deletes.
const pendingChecks = 10

// Backoff of an acceptance that failed for transient reasons. It notices a recovered registry within half a minute. A failed precondition
// is usually checked again earlier, because a watch reports the change.
var (
	acceptRetry       = backoff.Doubling{First: pendingRetry, Max: 30 * time.Second}
	preconditionRetry = backoff.Doubling{First: pendingRetry, Max: accept.MaxPause}
)

func (c *Reconciler) acceptStep(log logr.Logger, key string, target request.Target, settings accept.Settings) func(context.Context) background.Next {
	attempt, pending := 0, 0
	var refused *accept.Acceptance // rejected by its preconditions only
	return func(ctx context.Context) background.Next {
		cv := &configv1.ClusterVersion{}
		if err := c.client.Get(ctx, types.NamespacedName{Name: c.options.Name}, cv); err != nil {
			return background.Next{After: pendingRetry}
		}
		if c.publisher.Behind(cv) > 0 {
			return background.Next{After: staleRetry}
		}
		in := c.acceptInput(cv, settings)
		running, missing := c.acceptance.snapshot().Running(), false
		if running == nil {
			running, missing = c.resume(ctx, log, in, key, target)
		}
		in.Running, in.Known = running, in.VerifiedBefore(running, target)
		report := func(a accept.Acceptance) { c.acceptanceChanged(cv, key, a) }
		var a accept.Acceptance
		if refused != nil {
			a = accept.Again(ctx, in, *refused, report)
		} else {
			a = accept.Run(ctx, in, target, report)
		}
		if ctx.Err() != nil {
			return background.Next{Done: true}
		}
		refused = nil
		if a.Err != nil && a.Loaded() && !missing && !a.ByTag() { // by the next attempt, a tag may point to another image
			refused = &a
		}
		if !missing && a.Undecided && pending < pendingChecks {
			pending++
			return background.Next{After: pendingRetry} // the last answer stays
		}
		pending = 0
		report(a)
		if a.Err != nil {
			log.Info("release not accepted", "image", target.Image, "step", a.Step, "error", a.Err.Error())
		} else if a.Done {
			log.Info("release accepted", "image", target.Image, "content", a.Image(), "release", a.Payload.Release.Version, "warnings", a.Payload.Warnings)
		}
		if a.Done || !missing && !accept.IsTransient(a) {
			return background.Next{Done: true}
		}
		attempt++
		if refused != nil {
			return background.Next{After: preconditionRetry.After(attempt)}
		}
		return background.Next{After: acceptRetry.After(attempt)}
	}
}

// acceptInput returns the input of an acceptance with the current identity and without a running release.
func (c *Reconciler) acceptInput(cv *configv1.ClusterVersion, settings accept.Settings) accept.Input {
	return accept.Input{
		Stages: c.stages, ClusterVersion: cv, Settings: settings, Own: c.options.ReleaseImage,
		Identity: c.acceptance.snapshot().Identity, Unrecorded: c.record.Unrecorded(),
	}
}

// resume accepts the release of the history again (see identity.Running) and returns it, or nil if there is none. missing means that the
// release is unavailable at the moment and that the caller has to retry.
func (c *Reconciler) resume(
	ctx context.Context, log logr.Logger, in accept.Input, key string, asked request.Target,
) (running *accept.Acceptance, missing bool) {
	cv := in.ClusterVersion
	target, ok := in.Identity.Running(cv, in.Identity.OwnImage(c.options.ReleaseImage), asked)
	if !ok {
		return nil, false
	}
	in.Known = in.VerifiedBefore(nil, target)
	a := accept.Run(ctx, in, target, func(accept.Acceptance) {})
	if ctx.Err() != nil {
		return nil, true
	}
	before, _ := c.acceptance.change(func(known accept.Decision) accept.Decision { return known.Resume(key, a) })
	if a.Err != nil {
		log.Info("cannot resume the release of the history", "image", target.Image, "step", a.Step, "error", a.Err.Error())
		if !before.KnowsResumption(key, a) {
			c.emitter.Emit(cv, event.Warning(accept.FailureEvent(a.Step), "%s", a.Message))
		}
		return nil, true
	}
	c.changed()
	return &a, false
}

// acceptanceChanged stores a result, emits events for the changes and triggers a reconcile.
func (c *Reconciler) acceptanceChanged(cv *configv1.ClusterVersion, key string, a accept.Acceptance) {
	before, _ := c.acceptance.change(func(known accept.Decision) accept.Decision { return known.Answer(key, a, c.clock.Now()) })
	if !before.IsNews(key, a) {
		return
	}
	c.options.Metrics.answered(a)
	c.emitter.Emit(cv, accept.Events(before.Latest, a)...)
	c.changed()
}
