package clusterversion

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// Control tells what an administrator has asked for where ClusterVersion has no field, and which of its fields the
// cluster knows.
type Control interface {
	// Look returns what watches have delivered last. It makes no request.
	Look() Controls
	// Put replaces the status of the ReleaseRollout, which it creates if there is none. It cannot conflict with what an
	// administrator writes.
	Put(ctx context.Context, status api.ReleaseRolloutStatus) error
}

// Controls are one look at a Control. Nobody changes what it leads to.
type Controls struct {
	Schema Schema
	// Served: the cluster serves ReleaseRollout. Rollout is the one of this ClusterVersion, nil if there is none.
	Served  bool
	Rollout *api.ReleaseRollout
}

// Schema tells which fields the cluster's definition of ClusterVersion has that only some of its variants have. The API
// server drops what the definition lacks, so such a field is neither read nor written.
type Schema struct {
	// Mode is spec.desiredUpdate.mode, AcceptRisks is spec.desiredUpdate.acceptRisks.
	Mode, AcceptRisks bool
	// ConditionalUpdateRisks is the list in status; RiskNames and RiskConditions are the fields of status.conditionalUpdates
	// that refer to it.
	ConditionalUpdateRisks, RiskNames, RiskConditions bool
	// Capabilities are the names of capabilities that it takes, sorted, with commas around each; empty: any.
	Capabilities string
}

// Names reports whether status may name a capability.
func (s Schema) Names(capability configv1.ClusterVersionCapability) bool {
	return s.Capabilities == "" || strings.Contains(s.Capabilities, ","+string(capability)+",")
}

// Missing lists the fields that the definition lacks.
func (s Schema) Missing() []string {
	var out []string
	for _, field := range []struct {
		there bool
		name  string
	}{
		{s.Mode, "spec.desiredUpdate.mode"},
		{s.AcceptRisks, "spec.desiredUpdate.acceptRisks"},
		{s.ConditionalUpdateRisks, "status.conditionalUpdateRisks"},
		{s.RiskNames, "status.conditionalUpdates.riskNames"},
		{s.RiskConditions, "status.conditionalUpdates.risks.conditions"},
	} {
		if !field.there {
			out = append(out, field.name)
		}
	}
	return out
}

// SlotControl writes the status of the ReleaseRollout.
const SlotControl = "control"

const (
	// controlInterval is the least time between two writes of a ReleaseRollout that tell of progress, and
	// estimateInterval between two that tell of nothing but time going by.
	controlInterval  = 3 * time.Second
	estimateInterval = 30 * time.Second
)

// control is what an administrator has asked for where ClusterVersion has no field.
type control struct {
	schema Schema
	// preflight is the release that is to be looked at without being rolled out, nil for none.
	preflight *Target
}

// controlMemory is what is known of a ReleaseRollout: what it asks for, and what it is to tell.
type controlMemory struct {
	// recalled: what an earlier process has told is taken over.
	recalled bool
	paused   bool
	reason   string
	// boundary is where the rollout of an image is held back, nil if it is not, or if that has not been found yet; told
	// tells whether an event has told of it.
	boundary *boundary
	told     bool
	// generation is that of the ReleaseRollout that was looked at.
	generation int64
	schema     Schema
	missing    string

	current   *api.CurrentRollout
	estimate  *rollout.Estimate
	history   []api.CompletedRollout
	preflight *api.Preflight
	// lookedAt is the update that was asked for with mode Preflight last, nil if the update that is asked for has none, and
	// lookedAtIn the generation of the ClusterVersion that said so.
	lookedAt   *configv1.Update
	lookedAtIn int64
	// begunAhead: this process knows already whether it begins with a preflight.
	begunAhead bool

	// written is what was written last, nil if nothing was, and writtenAt when.
	written   *api.ReleaseRolloutStatus
	writtenAt time.Time
}

// boundary is the runlevel before which the rollout of an image is held back.
type boundary struct {
	image  string
	before int
}

// readControl reads what an administrator has asked for, and has the rollout under way follow it.
func (c *Reconciler) readControl(ctx context.Context, r *round) error {
	if c.options.Control == nil {
		return nil
	}
	look := c.options.Control.Look()
	r.control = control{schema: look.Schema}
	log := logr.FromContextOrDiscard(ctx)
	c.mu.Lock()
	news, changed := c.memory.follow(look)
	passer := c.memory.passer
	c.mu.Unlock()
	for _, e := range news {
		log.Info("control changed", "event", e.reason, "message", e.message)
	}
	c.emit(r.original, news)
	if changed {
		if passer != nil {
			passer.Changed()
		}
		c.runner.Wake(SlotRollout)
	}
	c.runner.Start(SlotControl, "", c.writeControl(log))
	c.runner.Wake(SlotControl)
	return nil
}

// follow takes over what a ReleaseRollout asks for. It reports what there is to tell, and whether the rollout is to look
// again.
func (m *memory) follow(look Controls) (news []event, changed bool) {
	k := &m.control
	if !k.recalled {
		k.recall(look.Rollout)
	}
	k.schema = look.Schema
	if missing := strings.Join(look.Schema.Missing(), ", "); missing != k.missing {
		if k.missing = missing; missing != "" {
			news = append(news, definitionOutdated(missing))
		}
	}
	var spec api.ReleaseRolloutSpec
	k.generation = 0
	if look.Rollout != nil {
		spec, k.generation = look.Rollout.Spec, look.Rollout.Generation
	}
	was := k.paused
	k.paused, k.reason = spec.Paused, spec.Reason
	switch {
	case was == k.paused:
		return news, false
	case k.paused:
		m.hold(m.passer)
	default:
		if m.passer != nil {
			m.passer.Resume()
		}
		switch {
		case look.Rollout == nil: // whoever asked for the pause may be somebody else
			news = append(news, pauseDeleted())
		case k.told && k.boundary != nil:
			news = append(news, rolloutResumed(k.boundary.before))
		}
		k.boundary, k.told = nil, false
	}
	return news, true
}

// hold has a Passer hold back the rollout of the image that is planned, if that is asked for: where it was held back
// before, else at the next boundary. What a complete release gives the cluster anew is no update: it has no other release to
// wait between, and mostly comes before a runlevel that has begun long ago.
func (m *memory) hold(passer *rollout.Passer) {
	if passer == nil || !m.control.paused || m.adds {
		return
	}
	before := rollout.NoBoundary
	if b := m.control.boundary; b != nil && b.image == m.planned {
		before = b.before
	}
	passer.Pause(before)
}

// recall takes over what an earlier process has told.
func (k *controlMemory) recall(r *api.ReleaseRollout) {
	k.recalled = true
	if r == nil {
		return
	}
	status := r.Status
	k.current, k.history, k.preflight = status.Current, status.History, status.Preflight
	if len(status.Conditions) > 0 {
		k.written = &status
	}
	if status.Current != nil && status.Current.PausedBefore != nil {
		k.boundary = &boundary{status.Current.Image, int(*status.Current.PausedBefore)}
		k.told = meta.IsStatusConditionTrue(status.Conditions, api.RolloutPaused)
	}
	k.paused = k.boundary != nil // whether it still is, is seen next
}

// track takes over the progress of a rollout: the times of its runlevels, the boundary that it is held back at, and what
// that comes to for the estimate, which it adds to the progress.
func (m *memory) track(cv *configv1.ClusterVersion, progress *rollout.Progress, now time.Time) (news []event) {
	k := &m.control
	k.estimate = nil
	if progress.Mode != release.Updating || m.adds {
		k.current = nil
		return nil
	}
	next := started(cv, *progress)
	if len(k.history) > 0 && k.history[0].To == next.To && k.history[0].StartedAt.Equal(&next.StartedAt) {
		k.current = nil // it has completed, and the ClusterVersion is yet to say so
		return nil
	}
	if p := progress.Paused; p != nil {
		if k.boundary == nil || *k.boundary != (boundary{m.planned, p.Before}) {
			k.boundary, k.told = &boundary{m.planned, p.Before}, false
		}
		// What was reached once stays reached: a restart may have to look at everything below once more.
		p.Reached = p.Reached || k.told
		if p.Reached && !k.told {
			k.told = true
			news = append(news, rolloutPaused(progress.Release.Version, p.Before, k.reason))
		}
	}
	k.current = trackRollout(k.current, next, *progress, now)
	k.estimate = estimateOf(k.history, *k.current, *progress, now)
	progress.Estimate = k.estimate
	if progress.Complete {
		k.history = remember(k.history, *k.current, now)
		k.current, k.estimate = nil, nil
	}
	return news
}

// rolloutStatus is what the ReleaseRollout has to tell.
func (m *memory) rolloutStatus(now time.Time) api.ReleaseRolloutStatus {
	k := &m.control
	out := api.ReleaseRolloutStatus{
		ObservedGeneration: k.generation, Current: k.current, Estimate: estimateStatus(k.estimate), History: k.history, Preflight: k.preflight,
	}
	if k.written != nil {
		for _, condition := range k.written.Conditions {
			out.Conditions = append(out.Conditions, *condition.DeepCopy())
		}
	}
	paused := m.pausedCondition()
	if paused != nil {
		paused.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
		meta.SetStatusCondition(&out.Conditions, *paused)
	}
	complete := metav1.Condition{
		Type: api.RolloutDefinitionComplete, Status: metav1.ConditionTrue, Reason: api.ReasonAllFields,
		Message: "The definition of ClusterVersion has every field that the operator uses", LastTransitionTime: metav1.NewTime(now.UTC().Truncate(time.Second)),
	}
	if missing := k.schema.Missing(); len(missing) > 0 {
		complete.Status, complete.Reason = metav1.ConditionFalse, api.ReasonFieldsMissing
		complete.Message = definitionOutdated(strings.Join(missing, ", ")).message
	}
	meta.SetStatusCondition(&out.Conditions, complete)
	if k.current != nil && k.boundary != nil && k.boundary.image == k.current.Image {
		current := *k.current
		before := int32(k.boundary.before) //nolint:gosec // a runlevel has few digits
		current.PausedBefore = &before
		out.Current = &current
	}
	return out
}

// pausedCondition tells of the pause; nil as long as the first pass of a process has not told how far the rollout is.
func (m *memory) pausedCondition() *metav1.Condition {
	k := &m.control
	condition := &metav1.Condition{Type: api.RolloutPaused, Status: metav1.ConditionFalse, ObservedGeneration: k.generation}
	because := ""
	if k.reason != "" {
		because = ": " + k.reason
	}
	switch {
	case !k.paused:
		condition.Reason, condition.Message = api.ReasonNotAsked, "Updates are not paused"
	case m.progress == nil:
		return nil
	case m.progress.Paused == nil:
		condition.Reason = api.ReasonNoUpdate
		condition.Message = "There is nothing to hold back; the next update is held back before its first runlevel" + because
	case m.progress.Paused.Reached:
		condition.Status, condition.Reason = metav1.ConditionTrue, api.ReasonPaused
		condition.Message = fmt.Sprintf("The update to %s is paused before runlevel %02d%s", m.progress.Release.Version, m.progress.Paused.Before, because)
	default:
		condition.Reason = api.ReasonPausing
		condition.Message = fmt.Sprintf("The update to %s pauses before runlevel %02d, once what has begun is complete%s",
			m.progress.Release.Version, m.progress.Paused.Before, because)
	}
	return condition
}

// writeControl writes what there is to tell, if it is not what was written last, and not too often.
func (c *Reconciler) writeControl(log logr.Logger) func(context.Context) Next {
	var retry time.Time // after a write that failed, whatever wakes us
	failure := ""
	return func(ctx context.Context) Next {
		look := c.options.Control.Look()
		if !look.Served {
			return Next{} // its watch tells when that changes
		}
		now := c.clock.Now()
		if wait := retry.Sub(now); wait > 0 {
			return Next{After: wait}
		}
		c.mu.Lock()
		next, written, at := c.memory.rolloutStatus(now), c.memory.control.written, c.memory.control.writtenAt
		c.mu.Unlock()
		fresh := look.Rollout != nil && len(look.Rollout.Status.Conditions) == 0
		switch {
		case look.Rollout == nil && next.Current == nil && next.Preflight == nil && len(next.History) == 0:
			return Next{} // nobody asks, and there is nothing to tell
		case written == nil || fresh || look.Rollout == nil:
		case equality.Semantic.DeepEqual(*written, next):
			return Next{}
		default:
			if wait := at.Add(pace(*written, next)).Sub(now); wait > 0 {
				return Next{After: wait}
			}
		}
		if err := c.options.Control.Put(ctx, next); err != nil {
			if ctx.Err() == nil && err.Error() != failure {
				failure = err.Error()
				log.Info("release rollout not written", "error", failure)
			}
			retry = now.Add(recordRetry)
			return Next{After: recordRetry}
		}
		failure = ""
		c.mu.Lock()
		c.memory.control.written, c.memory.control.writtenAt = &next, now
		c.mu.Unlock()
		return Next{}
	}
}

// pace is how long two writes are to be apart. What an administrator waits for is told at once.
func pace(before, after api.ReleaseRolloutStatus) time.Duration {
	if before.ObservedGeneration != after.ObservedGeneration || !equality.Semantic.DeepEqual(before.Conditions, after.Conditions) ||
		!equality.Semantic.DeepEqual(before.Preflight, after.Preflight) || !equality.Semantic.DeepEqual(before.History, after.History) {
		return 0 // and what estimates are made of is not to be lost with the process
	}
	before.Estimate = after.Estimate
	if equality.Semantic.DeepEqual(before, after) {
		return estimateInterval
	}
	return controlInterval
}

// pausedText adds to what a rollout waits for that it is held back.
func pausedText(progress *rollout.Progress, waiting string) string {
	if progress == nil || progress.Paused == nil {
		return waiting
	}
	text := fmt.Sprintf("paused before runlevel %02d", progress.Paused.Before)
	if !progress.Paused.Reached {
		text = fmt.Sprintf("pausing before runlevel %02d", progress.Paused.Before)
	}
	if waiting != "" {
		text = waiting + ", " + text
	}
	return text
}

func rolloutPaused(version string, before int, reason string) event {
	because := ""
	if reason != "" {
		because = ": " + reason
	}
	return normal(api.EventRolloutPaused, "Paused the update to %s before runlevel %02d%s", version, before, because)
}

func rolloutResumed(before int) event {
	return normal(api.EventRolloutResumed, "Resumed the update, which was paused before runlevel %02d", before)
}

func pauseDeleted() event {
	return normal(api.EventRolloutResumed, "Updates are not paused any more: the ReleaseRollout that asked for it was deleted")
}

func definitionOutdated(missing string) event {
	return warning(api.EventDefinitionOutdated, "The definition of ClusterVersion in this cluster lacks %s: the API server drops these fields, "+
		"so that an update asked for with mode Preflight would be rolled out", missing)
}
