package clusterversion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/precondition"
	"github.com/cluster-version/cvo/pkg/preview"
)

// Preview tells what an update to a release would do to the cluster, by dry runs that store nothing.
type Preview func(ctx context.Context, cv *configv1.ClusterVersion, p *payload.Payload) (*preview.Report, error)

// SlotPreflight looks at a release that is not to be rolled out.
const SlotPreflight = "preflight"

// preflightMode is the mode of a desired update that is looked at and not started.
const preflightMode = configv1.UpdateModePreflight

// withoutPreflight returns what the target is chosen by, and the release that is to be looked at instead, nil for none. A
// preflight changes nothing, so the cluster stays with what it does: not even an update under way is turned around, as it
// is when nothing is asked for.
func withoutPreflight(cv *configv1.ClusterVersion, own string) (rest *configv1.ClusterVersion, preflight *Target) {
	update := cv.Spec.DesiredUpdate
	if update == nil || update.Mode != preflightMode {
		return cv, nil
	}
	if len(cv.Status.History) > 0 {
		target := askedTarget(cv, own, false)
		target.Own = target.Image == own
		preflight = &target
	}
	rest = cv.DeepCopy()
	rest.Spec.DesiredUpdate = nil
	return rest, preflight
}

// keepMode returns an update as it was asked for. A definition of ClusterVersion that lacks the mode, put in place while a
// preflight is asked for, has the API server read the same spec without it: nobody has asked for that update.
func (k *controlMemory) keepMode(update *configv1.Update, generation int64, schema Schema) *configv1.Update {
	switch {
	case update == nil:
		k.lookedAt = nil
	case update.Mode == preflightMode:
		k.lookedAt, k.lookedAtIn = update.DeepCopy(), generation
	case k.lookedAt == nil:
	case (generation == k.lookedAtIn || !schema.Mode) && sameRelease(*update, *k.lookedAt):
		kept := *update.DeepCopy()
		kept.Mode = preflightMode
		return &kept
	default:
		k.lookedAt = nil
	}
	return update
}

func sameRelease(a, b configv1.Update) bool {
	return a.Image == b.Image && a.Version == b.Version && a.Architecture == b.Architecture && a.Force == b.Force
}

// lookAhead has the release of a preflight examined in the background, and ends that of another. It waits for the release
// that the cluster runs, whose keys verify others.
func (c *Reconciler) lookAhead(ctx context.Context, r *round) error {
	target := r.control.preflight
	known := c.knownAhead(target, r.accepted != nil)
	if target == nil || r.accepted == nil || c.options.Control == nil {
		c.runner.Start(SlotPreflight, "", func(context.Context) Next { return Next{Done: true} })
		if target == nil {
			c.preflightEnded()
		}
		return nil
	}
	key := fmt.Sprintf("%+v %+v %s %s %s", *target, r.cv.Spec.Capabilities, r.accepted.Image(),
		r.settings.FeatureSet, sets.List(r.settings.gates(r.cv, target.Version)))
	step := c.preflightStep(logr.FromContextOrDiscard(ctx), r, *target)
	if known {
		step = func(context.Context) Next { return Next{Done: true} }
	}
	c.runner.Start(SlotPreflight, key, step)
	return nil
}

// knownAhead reports whether an earlier process has looked at the release that is asked for when this one begins: it is not
// looked at again because the operator was restarted.
func (c *Reconciler) knownAhead(target *Target, ready bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := &c.memory.control
	if target != nil && !ready || k.begunAhead {
		return false
	}
	k.begunAhead = true
	p := k.preflight
	return target != nil && p != nil && p.Image == target.Image && (p.State == api.PreflightPassed || p.State == api.PreflightObjected)
}

// preflightEnded drops an account that would never come to an end.
func (c *Reconciler) preflightEnded() {
	c.mu.Lock()
	p := c.memory.control.preflight
	running := p != nil && p.State == api.PreflightRunning
	if running {
		c.memory.control.preflight = nil
	}
	c.mu.Unlock()
	if running {
		c.runner.Wake(SlotControl)
	}
}

func (c *Reconciler) preflightStep(log logr.Logger, r *round, target Target) func(context.Context) Next {
	attempt, told := 0, ""
	return func(ctx context.Context) Next {
		cv := &configv1.ClusterVersion{}
		if err := c.client.Get(ctx, types.NamespacedName{Name: c.options.Name}, cv); err != nil {
			return Next{After: acceptRetryMin}
		}
		report := func(account api.Preflight) { c.preflightChanged(ctx, account) }
		now := metav1.NewTime(c.clock.Now().UTC().Truncate(time.Second))
		in := acceptInput{Stages: c.stages, cv: cv, settings: r.settings, running: c.running(), own: c.options.ReleaseImage}
		f := flight{in: in, acceptance: Acceptance{Target: target}, preview: c.options.Preview, account: api.Preflight{
			Version: api.Excerpt(target.Version, maxVersion), Image: api.Excerpt(target.Image, api.ReleaseRolloutText), State: api.PreflightRunning, StartedAt: now,
		}}
		if attempt == 0 {
			c.emit(cv, []event{preflightStarted(f.acceptance)})
			f.report = report
		}
		again := f.run(ctx)
		if ctx.Err() != nil {
			return Next{Done: true}
		}
		ended := metav1.NewTime(c.clock.Now().UTC().Truncate(time.Second))
		f.account.EndedAt = &ended
		report(f.account)
		if e := preflightEvent(f.account); e.message != told {
			told = e.message
			c.emit(cv, []event{e})
			log.Info("preflight ended", "image", f.account.Image, "state", f.account.State, "message", f.account.Message)
		}
		if !again {
			return Next{Done: true}
		}
		attempt++
		return Next{After: min(acceptRetryMin<<min(attempt-1, 10), acceptRetryMax)}
	}
}

// preflightChanged takes over an account, unless another one is wanted by now, or none: nobody would bring this one to an
// end.
func (c *Reconciler) preflightChanged(ctx context.Context, account api.Preflight) {
	c.mu.Lock()
	if ctx.Err() == nil {
		c.memory.control.preflight = &account
	}
	c.mu.Unlock()
	c.runner.Wake(SlotControl)
}

// flight is one preflight at work.
type flight struct {
	in         acceptInput
	acceptance Acceptance
	preview    Preview
	account    api.Preflight
	// report is told of each beginning; nil for nobody.
	report func(api.Preflight)
}

// run takes a release the way of acceptance, and on to dry runs even if preconditions speak against it. It reports
// whether another attempt may come to another end.
func (f *flight) run(ctx context.Context) (again bool) {
	for _, step := range acceptSteps() {
		f.begin(step.name, step.running+" "+f.acceptance.describe())
		f.acceptance.Step = step.name
		err := step.run(ctx, f.in, &f.acceptance)
		f.learn()
		var failed *precondition.FailedError
		switch {
		case err == nil:
		case step.name == api.ReasonPreconditionChecks && errors.As(err, &failed):
			f.object(failed.Objections)
		default:
			f.acceptance.Err = err
			f.account.State = api.PreflightFailed
			f.account.Message = api.Excerpt(fmt.Sprintf("%s %s failure=%v", step.failed, f.acceptance.describe(), err), api.ReleaseRolloutText)
			return transient(f.acceptance)
		}
	}
	f.begin(api.PreflightDryRun, "Asking the API server about each object of "+f.acceptance.describe())
	report, err := f.preview(ctx, f.in.cv, f.acceptance.Payload)
	if err != nil {
		f.account.State, f.account.Message = api.PreflightFailed, api.Excerpt(err.Error(), api.ReleaseRolloutText)
		return true
	}
	f.account.Changes = changesOf(report)
	return f.judge(report)
}

func (f *flight) begin(step, message string) {
	f.account.Step, f.account.Message = step, api.Excerpt(message, api.ReleaseRolloutText)
	if f.report != nil {
		f.report(f.account)
	}
}

// learn takes over what a step has found out.
func (f *flight) learn() {
	f.account.Image = api.Excerpt(f.acceptance.Image(), api.ReleaseRolloutText)
	f.account.Version = api.Excerpt(f.acceptance.Target.Version, maxVersion)
	f.account.VerifiedBy = evidence(f.acceptance.Verified.Evidence[:min(len(f.acceptance.Verified.Evidence), maxSigners)])
	if f.acceptance.Verified.Forced != nil {
		f.account.Forced = api.Excerpt(f.acceptance.Verified.Forced.Error(), api.ReleaseRolloutText)
	}
	if f.acceptance.Warned != "" && len(f.account.Preconditions) == 0 {
		f.account.Preconditions = []api.PreflightObjection{{
			Name: "Warnings", Reason: "PreconditionWarn", Message: api.Excerpt(f.acceptance.Warned, api.ReleaseRolloutText),
		}}
	}
}

func (f *flight) object(objections []precondition.Objection) {
	f.account.Preconditions = nil
	for _, o := range objections[:min(len(objections), maxObjections)] {
		f.account.Preconditions = append(f.account.Preconditions, api.PreflightObjection{
			Name: o.Check, Reason: cmp.Or(o.Reason, "Unknown"), Message: api.Excerpt(o.Message, api.ReleaseRolloutText), Blocking: !o.Warning,
		})
	}
}

// Bounds of what a preflight tells, as the definition of ReleaseRollout has them.
const (
	maxObjections = 32
	maxSigners    = 32
	maxVersion    = 256
)

// judge sums up; what could not be looked at may be at another attempt.
func (f *flight) judge(report *preview.Report) (again bool) {
	blocking := 0
	for _, o := range f.account.Preconditions {
		if o.Blocking {
			blocking++
		}
	}
	var against []string
	if blocking > 0 {
		against = append(against, fmt.Sprintf("%d preconditions would hold the update up", blocking))
	}
	if report.Totals.Refused > 0 {
		against = append(against, fmt.Sprintf("the API server would refuse %d objects", report.Totals.Refused))
	}
	t := report.Totals
	f.account.Message = fmt.Sprintf("objects to create: %d, to change: %d, to delete: %d, to recreate: %d", t.Created, t.Changed, t.Deleted, t.Recreated)
	switch {
	case t.NotAsked > 0:
		f.account.State = api.PreflightFailed
		f.account.Message = fmt.Sprintf("%d objects could not be looked at; of the others %s", t.NotAsked, f.account.Message)
	case len(against) > 0:
		f.account.State = api.PreflightObjected
		f.account.Message = strings.Join(against, ", ") + "; " + f.account.Message
	default:
		f.account.State = api.PreflightPassed
	}
	return t.NotAsked > 0
}

// changesOf is a report in short.
func changesOf(report *preview.Report) *api.PreflightChanges {
	t := report.Totals
	count := func(n int) int32 { return int32(min(n, 1<<30)) } //nolint:gosec // bounded
	out := &api.PreflightChanges{
		Created: count(t.Created), Changed: count(t.Changed), Deleted: count(t.Deleted), Recreated: count(t.Recreated),
		Refused: count(t.Refused), Unchanged: count(t.Unchanged), Unknown: count(t.Unknown + t.NotAsked), ObjectCount: count(len(report.Objects)),
	}
	objects := slices.Clone(report.Objects)
	slices.SortStableFunc(objects, func(a, b preview.Object) int { return cmp.Compare(rankVerdict(a.Verdict), rankVerdict(b.Verdict)) })
	for _, o := range objects[:min(len(objects), api.ReleaseRolloutObjects)] {
		out.Objects = append(out.Objects, api.PreflightObject{
			Object: api.Excerpt(o.ID.String(), maxObjectName), Runlevel: count(o.Runlevel), Verdict: string(o.Verdict), Message: api.Excerpt(messageOf(o), maxObjectMessage),
		})
	}
	return out
}

const (
	maxObjectName    = 1024
	maxObjectMessage = 512
)

// rankVerdict puts first what keeps an update from completing.
func rankVerdict(v preview.Verdict) int {
	switch v {
	case preview.Refuse:
		return 0
	case preview.NotAsked, preview.Unknown:
		return 1
	case preview.Delete, preview.Recreate:
		return 2
	case preview.Create, preview.Modify, preview.Nothing:
	}
	return 3
}

func messageOf(o preview.Object) string {
	parts := make([]string, 0, len(o.Fields)+2)
	for _, f := range o.Fields {
		parts = append(parts, f.Path)
	}
	for _, text := range []string{o.Message, o.Remedy} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, ", ")
}

func preflightStarted(a Acceptance) event {
	return normal(api.EventPreflightStarted, "Started to look at %s without rolling it out", a.describe())
}

func preflightEvent(p api.Preflight) event {
	name := fmt.Sprintf("version=%q image=%q", p.Version, p.Image)
	switch p.State {
	case api.PreflightPassed:
		return normal(api.EventPreflightPassed, "Preflight passed %s: %s", name, p.Message)
	case api.PreflightObjected:
		return warning(api.EventPreflightObjected, "Preflight objects to %s: %s", name, p.Message)
	}
	return warning(api.EventPreflightFailed, "Preflight failed at %s: %s", p.Step, p.Message)
}
