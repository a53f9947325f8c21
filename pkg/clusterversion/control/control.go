// Package control handles requests of an administrator for which ClusterVersion has no field. It follows the spec of the ReleaseRollout,
// pauses and resumes the rollout under way, times its runlevels, and writes the status of the ReleaseRollout. It takes the object as of the
// last watch event and the progress of the rollout, and returns events.
package control

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/assess"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/clusterversion/event"
	"github.com/cluster-version/cvo/pkg/clusterversion/timing"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/release"
)

// Object reads and writes the ReleaseRollout, which holds requests of an administrator for which ClusterVersion has no field. It also
// reports which fields of ClusterVersion the cluster's definition has.
type Object interface {
	// Look returns the state as of the last watch event. It makes no request.
	Look() Look
	// Put replaces the status of the ReleaseRollout and creates the object if it does not exist. It cannot conflict with changes of the
	// spec.
	Put(ctx context.Context, status api.ReleaseRolloutStatus) error
}

// Look is a read-only snapshot of an Object.
type Look struct {
	Schema Schema
	// Served reports that the cluster serves the kind ReleaseRollout. Rollout is the object of this ClusterVersion, nil if there is none.
	Served  bool
	Rollout *api.ReleaseRollout
}

// Schema lists the optional fields of ClusterVersion that the cluster's definition has. The API server drops fields that the definition
// lacks, so the operator neither reads nor writes them.
type Schema struct {
	// Mode is spec.desiredUpdate.mode, AcceptRisks is spec.desiredUpdate.acceptRisks.
	Mode, AcceptRisks bool
	// ConditionalUpdateRisks is the list in status; RiskNames and RiskConditions are the fields of status.conditionalUpdates
	// that refer to it.
	ConditionalUpdateRisks, RiskNames, RiskConditions bool
	// Capabilities are the capability names that the definition accepts, sorted and with a comma around each. If it is empty, all names are
	// accepted.
	Capabilities string
}

// Names reports whether the status may contain a capability name.
func (s Schema) Names(capability configv1.ClusterVersionCapability) bool {
	return s.Capabilities == "" || strings.Contains(s.Capabilities, ","+string(capability)+",")
}

// Field is an optional field of ClusterVersion.
type Field struct {
	// Path is its path in the definition's schema, with [] for the items of a list.
	Path []string
	// In returns the value of a Schema that reports whether the definition has the field.
	In func(*Schema) *bool
}

// Fields lists the optional fields of ClusterVersion.
func Fields() []Field {
	return []Field{
		{[]string{"spec", "desiredUpdate", "mode"}, func(s *Schema) *bool { return &s.Mode }},
		{[]string{"spec", "desiredUpdate", "acceptRisks"}, func(s *Schema) *bool { return &s.AcceptRisks }},
		{[]string{"status", "conditionalUpdateRisks"}, func(s *Schema) *bool { return &s.ConditionalUpdateRisks }},
		{[]string{"status", "conditionalUpdates", "[]", "riskNames"}, func(s *Schema) *bool { return &s.RiskNames }},
		{[]string{"status", "conditionalUpdates", "[]", "risks", "[]", "conditions"}, func(s *Schema) *bool { return &s.RiskConditions }},
	}
}

// Missing lists the fields that the definition lacks.
func (s Schema) Missing() []string {
	var out []string
	for _, field := range Fields() {
		if !*field.In(&s) {
			out = append(out, strings.ReplaceAll(strings.Join(field.Path, "."), ".[]", ""))
		}
	}
	return out
}

const (
	// writeInterval is the least time between two writes of a ReleaseRollout that report progress or remove a time that has passed.
	// estimateInterval is the least time between two writes that only update the estimate.
	writeInterval    = 3 * time.Second
	estimateInterval = 30 * time.Second
	// writeRetry is the time between a failed write and the next attempt.
	writeRetry = 10 * time.Second
)

// Control is the known state of a ReleaseRollout: its requests, the rollout that they apply to, and its next status. Only Control changes
// that state.
type Control struct {
	clock  clock.PassiveClock
	object Object

	mu sync.Mutex
	memory
}

// New returns the control of a ReleaseRollout.
func New(clk clock.PassiveClock, object Object) *Control { return &Control{clock: clk, object: object} }

// Reset drops all state, as a restart does.
func (k *Control) Reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.memory = memory{}
}

// memory is the state of a Control.
type memory struct {
	// recalled reports that the status written by an earlier process is restored.
	recalled bool
	paused   bool
	reason   string
	planned  planned
	// underway is the rollout that a pause applies to.
	underway underway
	// boundary is the runlevel boundary at which the rollout of an image pauses. It is nil if the rollout does not pause or the boundary is
	// not known yet. reported means that an event has reported the pause.
	boundary *boundary
	reported bool
	// generation is the generation of the last ReleaseRollout that was read.
	generation int64
	schema     Schema
	missing    string

	current   *api.CurrentRollout
	estimate  *report.Estimate
	history   []api.CompletedRollout
	preflight *api.Preflight
	// preflightRequest is the current request; nil if it does not have mode Preflight.
	preflightRequest *api.PreflightRequest
	// preflightDecided reports that this process has decided whether to start with a preflight.
	preflightDecided bool

	// written is the last written status, nil if there is none. writtenAt is the time of that write.
	written   *api.ReleaseRolloutStatus
	writtenAt time.Time
}

// planned is the rollout that may start. A superseded rollout has another key. The zero value means none.
type planned struct {
	key   string
	image string
	// adds reports that the rollout adds objects to a completed release, for example those of a new capability, and is not an update.
	adds bool
}

// underway is a rollout that has started. The zero value means none.
type underway struct {
	planned
	executor *rollout.Executor
}

// boundary is the runlevel before which the rollout of an image pauses.
type boundary struct {
	image  string
	before int
}

// Look returns the state as of the last watch event.
func (k *Control) Look() Look { return k.object.Look() }

// Follow applies the spec of a ReleaseRollout, also to the rollout under way. It returns the events to emit and whether the rollout has to
// make another pass.
func (k *Control) Follow(look Look) (news []event.Event, changed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
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
		k.hold()
	default:
		if k.underway.executor != nil {
			k.underway.executor.Resume()
		}
		switch {
		case look.Rollout == nil: // another administrator may have requested the pause
			news = append(news, pauseDeleted())
		case k.reported && k.boundary != nil:
			news = append(news, rolloutResumed(k.boundary.before))
		}
		k.boundary, k.reported = nil, false
	}
	if k.underway.executor != nil {
		k.underway.executor.Changed()
	}
	return news, true
}

// Plan makes the rollout of an image the one that may begin and report its progress; an empty key means none. adds reports that the rollout
// adds objects to a completed release, which is not an update.
func (k *Control) Plan(key, image string, adds bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.planned = planned{key, image, adds}
}

// Begin makes the rollout with the given key the one to which requests apply, and pauses it if a pause is requested. It returns false if
// another rollout was planned in the meantime.
func (k *Control) Begin(key string, executor *rollout.Executor) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.planned.key != key {
		return false
	}
	k.underway = underway{k.planned, executor}
	if k.paused {
		k.hold()
	}
	return true
}

// hold pauses the rollout under way at the earlier boundary of its image, or else at the next one. Additions to a complete release never
// pause, because there is no other release to stay at and most of their runlevels began long ago.
func (m *memory) hold() {
	if m.underway.executor == nil || m.underway.adds {
		return
	}
	before := rollout.NoBoundary
	if b := m.boundary; b != nil && b.image == m.underway.image {
		before = b.before
	}
	m.underway.executor.Pause(before)
}

// recall restores the status written by an earlier process.
func (m *memory) recall(r *api.ReleaseRollout) {
	m.recalled = true
	if r == nil {
		return
	}
	status := r.Status
	m.current, m.history, m.preflightRequest, m.preflight = status.Current, status.History, status.PreflightRequest, status.Preflight
	if len(status.Conditions) > 0 {
		m.written = &status
	}
	if status.Current != nil && status.Current.PausedBefore != nil {
		m.boundary = &boundary{status.Current.Image, int(*status.Current.PausedBefore)}
		m.reported = meta.IsStatusConditionTrue(status.Conditions, api.RolloutPaused)
	}
	m.paused = m.boundary != nil // Follow compares this with the spec
}

// Track records the progress of the rollout with the given key: the times of its runlevels and the boundary at which it pauses. It adds the
// resulting estimate to the progress and returns the events to emit. For a superseded rollout it does nothing, and ok is false.
func (k *Control) Track(key string, cv *configv1.ClusterVersion, progress *report.Progress) (news []event.Event, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.planned.key != key {
		return nil, false
	}
	return k.advance(cv, progress, k.clock.Now()), true
}

func (m *memory) advance(cv *configv1.ClusterVersion, progress *report.Progress, now time.Time) (news []event.Event) {
	m.estimate = nil
	if progress.Mode != release.Updating || m.underway.adds {
		m.current = nil
		return nil
	}
	next := timing.Start(cv, *progress)
	if len(m.history) > 0 && m.history[0].To == next.To && m.history[0].StartedAt.Equal(&next.StartedAt) {
		m.current = nil // the rollout has completed, but the ClusterVersion does not show it yet
		return nil
	}
	if p := progress.Paused; p != nil {
		if at := (boundary{m.underway.image, p.Before}); m.boundary == nil || *m.boundary != at {
			m.boundary, m.reported = &at, false
		}
		// A boundary stays reached: after a restart, the rollout may have to check everything below it again.
		p.Reached = p.Reached || m.reported
		if p.Reached && !m.reported {
			m.reported = true
			news = append(news, rolloutPaused(progress.Release.Version, p.Before, m.reason))
		}
	}
	m.current = timing.Track(m.current, next, *progress, now)
	if !fails(progress, now) {
		m.estimate = timing.Estimate(m.history, *m.current, *progress, now)
	}
	progress.Estimate = m.estimate
	if progress.Complete {
		m.history = timing.Complete(m.history, *m.current, now)
		m.current, m.estimate = nil, nil
	}
	return news
}

// fails reports whether the condition Failing is true for a progress. While something fails, no one knows the remaining time.
func fails(progress *report.Progress, now time.Time) bool {
	return assess.Rollout(progress.Problems, progress.Mode, now).Failing == configv1.ConditionTrue
}

// Estimated returns a tracked progress with its estimate as of now. The estimate of a ReleaseRollout has the same times.
func (k *Control) Estimated(progress *report.Progress) *report.Progress {
	if progress == nil || progress.Estimate == nil {
		return progress
	}
	out, now := *progress, k.clock.Now()
	out.Estimate = out.Estimate.At(now)
	if fails(&out, now) {
		out.Estimate = nil
	}
	return &out
}

// reviseEstimate removes the times of the estimate that have passed, and the whole estimate once the rollout fails. It returns the time
// until that may happen next; 0 for never.
func (m *memory) reviseEstimate(progress *report.Progress, now time.Time) time.Duration {
	if m.estimate == nil || progress == nil {
		return 0
	}
	a := assess.Rollout(progress.Problems, progress.Mode, now)
	if m.estimate.At(now) == nil || a.Failing == configv1.ConditionTrue {
		m.estimate = nil
		return 0
	}
	next := a.Recheck
	for _, at := range []*time.Time{&m.estimate.Earliest, &m.estimate.Latest} {
		switch left := at.Sub(now); {
		case at.IsZero():
		case left <= 0:
			m.estimate = m.estimate.At(now)
		case next == 0 || left < next:
			next = left
		}
	}
	return next
}

// status returns the status of the ReleaseRollout. progress belongs to the rollout under way; nil if it is unknown.
func (m *memory) status(progress *report.Progress, now time.Time) api.ReleaseRolloutStatus {
	out := api.ReleaseRolloutStatus{
		ObservedGeneration: m.generation, Current: m.current, Estimate: timing.Status(m.estimate), History: m.history,
		PreflightRequest: m.preflightRequest, Preflight: m.preflight,
	}
	if m.written != nil {
		for _, condition := range m.written.Conditions {
			out.Conditions = append(out.Conditions, *condition.DeepCopy())
		}
	}
	paused := m.pausedCondition(progress)
	if paused != nil {
		paused.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
		meta.SetStatusCondition(&out.Conditions, *paused)
	}
	complete := metav1.Condition{
		Type: api.RolloutDefinitionComplete, Status: metav1.ConditionTrue, Reason: api.ReasonAllFields,
		Message: "The definition of ClusterVersion has every field that the operator uses", LastTransitionTime: metav1.NewTime(now.UTC().Truncate(time.Second)),
	}
	if missing := m.schema.Missing(); len(missing) > 0 {
		complete.Status, complete.Reason = metav1.ConditionFalse, api.ReasonFieldsMissing
		complete.Message = definitionOutdated(strings.Join(missing, ", ")).Message
	}
	meta.SetStatusCondition(&out.Conditions, complete)
	if m.current != nil && m.boundary != nil && m.boundary.image == m.current.Image {
		current := *m.current
		before := int32(m.boundary.before) // a runlevel has few digits
		current.PausedBefore = &before
		out.Current = &current
	}
	return out
}

// pausedCondition returns the condition about the pause. It is nil until the first pass of a process has reported its progress.
func (m *memory) pausedCondition(progress *report.Progress) *metav1.Condition {
	condition := &metav1.Condition{Type: api.RolloutPaused, Status: metav1.ConditionFalse, ObservedGeneration: m.generation}
	because := ""
	if m.reason != "" {
		because = ": " + m.reason
	}
	switch {
	case !m.paused:
		condition.Reason, condition.Message = api.ReasonNotAsked, "Updates are not paused"
	case progress == nil:
		return nil
	case progress.Paused == nil:
		condition.Reason = api.ReasonNoUpdate
		condition.Message = "No update is running; the next one pauses before its first runlevel" + because
	case progress.Paused.Reached:
		condition.Status, condition.Reason = metav1.ConditionTrue, api.ReasonPaused
		condition.Message = fmt.Sprintf("The update to %s is paused before runlevel %02d%s", progress.Release.Version, progress.Paused.Before, because)
	default:
		condition.Reason = api.ReasonPausing
		condition.Message = fmt.Sprintf("The update to %s completes its current runlevel and pauses before runlevel %02d%s",
			progress.Release.Version, progress.Paused.Before, because)
	}
	return condition
}

// Step writes the status of the ReleaseRollout if it differs from the last written one, at a limited rate. progress returns the progress of
// the rollout under way, nil if it is unknown.
func (k *Control) Step(log logr.Logger, progress func() *report.Progress) func(context.Context) background.Next {
	var retry time.Time // the earliest next attempt after a failed write
	failure := ""
	return func(ctx context.Context) background.Next {
		look := k.object.Look()
		if !look.Served {
			return background.Next{} // the watch wakes us when the definition changes
		}
		now := k.clock.Now()
		if wait := retry.Sub(now); wait > 0 {
			return background.Next{After: wait}
		}
		next, written, at, revision := k.due(progress(), now)
		fresh := look.Rollout != nil && len(look.Rollout.Status.Conditions) == 0
		switch {
		case look.Rollout == nil && next.Current == nil && next.PreflightRequest == nil && next.Preflight == nil && len(next.History) == 0:
			return background.Next{} // neither a request nor anything to report
		case written == nil || fresh || look.Rollout == nil:
		case equality.Semantic.DeepEqual(*written, next):
			return background.Next{After: revision}
		default:
			if wait := at.Add(pace(*written, next)).Sub(now); wait > 0 {
				return background.Next{After: wait}
			}
		}
		if err := k.object.Put(ctx, next); err != nil {
			if ctx.Err() == nil && err.Error() != failure {
				failure = err.Error()
				log.Info("cannot write the ReleaseRollout", "error", failure)
			}
			retry = now.Add(writeRetry)
			return background.Next{After: writeRetry}
		}
		failure = ""
		k.wrote(next, now)
		return background.Next{After: revision}
	}
}

// due returns the next status, the last written one, the time of that write, and the time until the estimate has to be revised; 0 for
// never.
func (k *Control) due(progress *report.Progress, now time.Time) (
	next api.ReleaseRolloutStatus, written *api.ReleaseRolloutStatus, at time.Time, revision time.Duration,
) {
	k.mu.Lock()
	defer k.mu.Unlock()
	revision = k.reviseEstimate(progress, now)
	return k.status(progress, now), k.written, k.writtenAt, revision
}

// wrote records that the status was written.
func (k *Control) wrote(status api.ReleaseRolloutStatus, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.written, k.writtenAt = &status, at
}

// pace returns the least time between two writes. A change that an administrator waits for is written at once.
func pace(before, after api.ReleaseRolloutStatus) time.Duration {
	if before.ObservedGeneration != after.ObservedGeneration || !equality.Semantic.DeepEqual(before.Conditions, after.Conditions) ||
		!equality.Semantic.DeepEqual(before.PreflightRequest, after.PreflightRequest) ||
		!equality.Semantic.DeepEqual(before.Preflight, after.Preflight) || !equality.Semantic.DeepEqual(before.History, after.History) {
		return 0 // later estimates need the history, so a crash must not lose it
	}
	outdated := before.Estimate != nil && (after.Estimate == nil || before.Estimate.EarliestCompletion != nil && after.Estimate.EarliestCompletion == nil)
	before.Estimate = after.Estimate
	if equality.Semantic.DeepEqual(before, after) && !outdated {
		return estimateInterval
	}
	return writeInterval
}

func rolloutPaused(version string, before int, reason string) event.Event {
	because := ""
	if reason != "" {
		because = ": " + reason
	}
	return event.Normal(api.EventRolloutPaused, "Paused the update to %s before runlevel %02d%s", version, before, because)
}

func rolloutResumed(before int) event.Event {
	return event.Normal(api.EventRolloutResumed, "Resumed the update, which was paused before runlevel %02d", before)
}

func pauseDeleted() event.Event {
	return event.Normal(api.EventRolloutResumed, "Updates are no longer paused: the ReleaseRollout was deleted")
}

func definitionOutdated(missing string) event.Event {
	return event.Warning(api.EventDefinitionOutdated, "The definition of ClusterVersion in this cluster lacks %s: the API server drops these fields, "+
		"so that an update requested with mode Preflight would be rolled out", missing)
}
