package clusterversion

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/clusterversion/preflight"
	"github.com/cluster-version/cvo/pkg/clusterversion/request"
	"github.com/cluster-version/cvo/pkg/engine/report"
)

// readControl reads an administrator's requests and applies them to the rollout under way.
func (c *Reconciler) readControl(ctx context.Context, r *round) error {
	if c.options.Control == nil {
		return nil
	}
	look := c.control.Look()
	r.schema = look.Schema
	log := logr.FromContextOrDiscard(ctx)
	news, changed := c.control.Follow(look)
	for _, e := range news {
		log.Info("control changed", "event", e.Reason, "message", e.Message)
	}
	c.emitter.Emit(r.original, news...)
	if changed {
		c.runner.Wake(background.SlotRollout)
	}
	c.runner.Start(background.SlotControl, "", c.control.Step(log, func() *report.Progress { return c.underway.snapshot().progress }))
	return nil
}

// startPreflight starts a requested preflight in the background and cancels the preflight of another release or of other manifests. It
// first waits for the release that the cluster runs, because that release has the trusted keys.
func (c *Reconciler) startPreflight(ctx context.Context, r *round) error {
	target := r.preflight
	known := c.control.KnowsPreflight(target, r.accepted != nil)
	if target == nil || r.accepted == nil || c.options.Control == nil {
		c.runner.Start(background.SlotPreflight, "", func(context.Context) background.Next { return background.Next{Done: true} })
		if target == nil && c.control.EndPreflight() {
			c.runner.Wake(background.SlotControl)
		}
		return nil
	}
	key := fmt.Sprintf("%+v %s %+v", *target, r.accepted.Image(), r.settings.Filter(r.cv, target.Version))
	step := c.preflightStep(logr.FromContextOrDiscard(ctx), r, *target)
	if known {
		step = func(context.Context) background.Next { return background.Next{Done: true} }
	}
	c.runner.Start(background.SlotPreflight, key, step)
	return nil
}

func (c *Reconciler) preflightStep(log logr.Logger, r *round, target request.Target) func(context.Context) background.Next {
	attempt, undecided, reported := 0, 0, ""
	began := metav1.NewTime(c.clock.Now().UTC().Truncate(time.Second))
	return func(ctx context.Context) background.Next {
		cv := &configv1.ClusterVersion{}
		if err := c.client.Get(ctx, types.NamespacedName{Name: c.options.Name}, cv); err != nil {
			return background.Next{After: pendingRetry}
		}
		report := func(account api.Preflight) {
			c.control.ReportPreflight(ctx, account)
			c.runner.Wake(background.SlotControl)
		}
		in := accept.Input{Stages: c.stages, ClusterVersion: cv, Settings: r.settings, Running: c.acceptance.snapshot().Running(), Own: c.options.ReleaseImage}
		f := preflight.New(in, target, c.options.Preview, c.options.Lookup, began)
		if attempt+undecided == 0 {
			c.emitter.Emit(cv, preflight.Started(f.Acceptance))
		}
		if reported == "" {
			f.Report = report
		}
		again := f.Run(ctx)
		if ctx.Err() != nil {
			return background.Next{Done: true}
		}
		if f.Acceptance.Undecided && undecided < pendingChecks {
			undecided++
			return background.Next{After: pendingRetry} // the preflight still runs
		}
		c.unretrievedAhead.Store(f.Acceptance.Err != nil && f.Acceptance.Step == api.ReasonRetrievePayload)
		ended := metav1.NewTime(c.clock.Now().UTC().Truncate(time.Second))
		f.Account.EndedAt = &ended
		report(f.Account)
		if e := preflight.Ended(f.Account); e.Message != reported {
			reported = e.Message
			c.emitter.Emit(cv, e)
			log.Info("preflight ended", "image", f.Account.Image, "state", f.Account.State, "message", f.Account.Message)
		}
		if !again {
			return background.Next{Done: true}
		}
		attempt++
		return background.Next{After: acceptRetry.After(attempt)}
	}
}
