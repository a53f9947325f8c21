package follow

import (
	"cmp"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/reported"
)

// State is the result of an update so far, which decides whether to keep waiting.
type State string

const (
	// Waiting means that the goal has not been reached but still can be.
	Waiting State = "waiting"
	// Reached means that the goal has been reached.
	Reached State = "reached"
	// Refused means that the operator rejected the request or the ClusterVersion is invalid.
	Refused State = "refused"
	// Failing means that the update fails.
	Failing State = "failing"
)

// Verdict is the state of an update during a wait.
type Verdict struct {
	State          State
	Version, Image string
	Message        string

	// rejection is the condition of a rejected release; nil for all other verdicts.
	rejection *configv1.ClusterOperatorStatusCondition
}

// runlevels contains the completed runlevels of an update.
type runlevels struct {
	version, image string
	// done has an entry for each runlevel of the release, which is true if the runlevel is complete.
	done map[int]bool
	// paused is the reason why the next runlevel does not start; empty if it is not paused.
	paused string
}

// of reports whether the runlevels belong to a release. Their source may be behind or ahead of the ClusterVersion, and two builds may have
// the same version.
func (r runlevels) of(desired configv1.Release) bool {
	reported, wanted := release.Pullspec(r.image).Digest(), release.Pullspec(desired.Image).Digest()
	return r.version == desired.Version && (reported == "" || wanted == "" || reported == wanted)
}

// upTo reports whether all runlevels up to the given one are complete.
func (r runlevels) upTo(runlevel int) bool {
	for level, done := range r.done {
		if level <= runlevel && !done {
			return false
		}
	}
	return len(r.done) > 0
}

func rolloutLevels(object *api.ReleaseRollout) runlevels {
	r := runlevels{done: map[int]bool{}}
	if paused := meta.FindStatusCondition(object.Status.Conditions, api.RolloutPaused); paused != nil && paused.Status == metav1.ConditionTrue {
		r.paused = cmp.Or(paused.Message, "paused")
	}
	if current := object.Status.Current; current != nil {
		r.version, r.image = current.To, current.Image
		for _, level := range current.Runlevels {
			r.done[int(level.Runlevel)] = level.CompletedAt != nil
		}
	}
	return r
}

func snapshotLevels(snapshot *report.Snapshot) runlevels {
	r := runlevels{version: snapshot.Progress.Release.Version, image: snapshot.Progress.Release.Image, done: map[int]bool{}}
	for _, level := range snapshot.Progress.Runlevels {
		r.done[level.Runlevel] = level.Done == level.Total
	}
	return r
}

// judge decides whether the goal of a wait is reached.
func judge(goal Goal, cv *configv1.ClusterVersion, levels runlevels) Verdict {
	v := Verdict{State: Waiting, Version: cv.Status.Desired.Version, Image: cv.Status.Desired.Image}
	if cv.Status.ObservedGeneration < cv.Generation {
		v.Message = "waiting for the version operator to observe the request"
		if why := reported.Unrecorded(cv); why != "" {
			v.Message += ": " + why
		}
		return v
	}
	wanted := reported.Requested(cv)
	begun := wanted == nil || reported.Runs(cv, wanted)
	waits := !begun && reported.WaitsForInstall(cv, wanted)
	name := cv.Status.Desired.Version
	switch {
	case !begun:
		name = cmp.Or(wanted.Version, wanted.Image)
		v.Version, v.Image = wanted.Version, wanted.Image
	case wanted != nil:
		name = cmp.Or(name, wanted.Version, wanted.Image)
	}
	invalid := api.FindCondition(cv.Status.Conditions, api.Invalid)
	accepted := api.FindCondition(cv.Status.Conditions, api.ReleaseAccepted)
	failing := api.FindCondition(cv.Status.Conditions, api.Failing)
	progressing := api.FindCondition(cv.Status.Conditions, configv1.OperatorProgressing)
	isInvalid := invalid != nil && invalid.Status == configv1.ConditionTrue
	switch {
	case begun && reported.Completed(cv) && (!isInvalid || wanted != nil || cv.Spec.DesiredUpdate == nil):
		v.State, v.Message = Reached, fmt.Sprintf("Update to %s is complete.", name)
		if wanted == nil {
			v.Message = fmt.Sprintf("The cluster is at %s, and no update is in progress.", name)
		}
	case isInvalid:
		v.State, v.Message = Refused, fmt.Sprintf("the ClusterVersion is invalid: %s: %s", invalid.Reason, invalid.Message)
	case !begun && !waits && accepted != nil && accepted.Status == configv1.ConditionFalse:
		v.State, v.Message, v.rejection = Refused, fmt.Sprintf("the cluster rejected the update to %s: %s: %s", name, accepted.Reason, accepted.Message), accepted
	case goal.accepted && begun && len(cv.Status.History) > 0:
		v.State, v.Message = Reached, fmt.Sprintf("Update to %s is accepted.", name)
	case !goal.Completed && !goal.accepted && begun && levels.of(cv.Status.Desired) && levels.upTo(goal.runlevel):
		v.State, v.Message = Reached, fmt.Sprintf("Update to %s has completed runlevel %02d.", name, goal.runlevel)
	case goal.FailFast && begun && failing != nil && failing.Status == configv1.ConditionTrue:
		v.State, v.Message = Failing, fmt.Sprintf("the update to %s is failing: %s: %s", name, failing.Reason, failing.Message)
	case !begun && !waits && accepted != nil && accepted.Status != configv1.ConditionTrue:
		v.Message = cmp.Or(accepted.Message, "waiting for the release to be accepted")
	case levels.paused != "":
		v.Message = levels.paused
	case progressing != nil && progressing.Message != "" && (begun || waits):
		v.Message = progressing.Message
	default:
		v.Message = fmt.Sprintf("waiting for the update to %s to start", cmp.Or(name, "a release"))
	}
	return v
}

// earlier is a rejection from before a wait. The operator checks the release again, and its condition does not show when. So the rejection
// is not final until it changes or the patience is over.
type earlier struct {
	// judged means that the wait has a first verdict. rejection is the rejection in it, nil if there was none.
	judged    bool
	rejection *configv1.ClusterOperatorStatusCondition
	over      bool
}

// tolerate returns the verdict, or a waiting one for an earlier rejection that is not final yet. A broken release or another version is
// final, and so is every rejection with FailFast.
func (e *earlier) tolerate(goal Goal, v Verdict) Verdict {
	if !e.judged {
		e.judged, e.rejection = true, v.rejection
	}
	r := v.rejection
	if r == nil || e.rejection == nil || !equality.Semantic.DeepEqual(r, e.rejection) || e.over || goal.FailFast ||
		r.Reason == api.ReasonLoadPayload || r.Reason == api.ReasonVerifyPayloadVersion {
		return v
	}
	v.State, v.Message = Waiting, v.Message+" (rejected before this command started; waiting for the next check)"
	return v
}
