package cli

import (
	"cmp"
	"fmt"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// waitState is whether to go on waiting.
type waitState string

const (
	waitGoesOn  waitState = "waiting"
	waitReached waitState = "reached"
	waitRefused waitState = "refused"
	waitFails   waitState = "failing"
)

// waitVerdict is what to think of an update that is waited for.
type waitVerdict struct {
	state          waitState
	version, image string
	message        string
}

// runlevels tells of an update's runlevels which are done.
type runlevels struct {
	version, image string
	// done has an entry for each runlevel of the release.
	done map[int]bool
	// paused is why nothing of the next runlevel begins; empty if it does.
	paused string
}

// of reports whether they are those of a release. What tells of them may be later than the ClusterVersion or before it,
// and a version can have been made twice.
func (r runlevels) of(desired configv1.Release) bool {
	told, wanted := digestOf(r.image), digestOf(desired.Image)
	return r.version == desired.Version && (told == "" || wanted == "" || told == wanted)
}

// upTo reports whether every runlevel up to this one is done.
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

func accountLevels(snapshot *rollout.Snapshot) runlevels {
	r := runlevels{version: snapshot.Progress.Release.Version, image: snapshot.Progress.Release.Image, done: map[int]bool{}}
	for _, level := range snapshot.Progress.Runlevels {
		r.done[level.Runlevel] = level.Done == level.Total
	}
	return r
}

// judgeWait says whether what is waited for has come.
func judgeWait(goal waitGoal, cv *configv1.ClusterVersion, levels runlevels) waitVerdict {
	v := waitVerdict{state: waitGoesOn, version: cv.Status.Desired.Version, image: cv.Status.Desired.Image}
	if cv.Status.ObservedGeneration < cv.Generation {
		v.message = "waiting for the version operator to see what was asked for"
		return v
	}
	wanted := wantedUpdate(cv)
	begun := wanted == nil || runs(cv, wanted)
	name := cv.Status.Desired.Version
	if wanted != nil {
		name = cmp.Or(wanted.Version, wanted.Image)
		if !begun {
			v.version, v.image = wanted.Version, wanted.Image
		}
	}
	invalid := api.FindCondition(cv.Status.Conditions, api.Invalid)
	accepted := api.FindCondition(cv.Status.Conditions, api.ReleaseAccepted)
	failing := api.FindCondition(cv.Status.Conditions, api.Failing)
	progressing := api.FindCondition(cv.Status.Conditions, configv1.OperatorProgressing)
	switch {
	case begun && completed(cv):
		v.state, v.message = waitReached, fmt.Sprintf("Update to %s is complete.", name)
		if wanted == nil {
			v.message = fmt.Sprintf("The cluster is at %s, and no update is under way.", name)
		}
	case invalid != nil && invalid.Status == configv1.ConditionTrue:
		v.state, v.message = waitRefused, fmt.Sprintf("the cluster cannot work with the ClusterVersion as it is: %s: %s", invalid.Reason, invalid.Message)
	case !begun && accepted != nil && accepted.Status == configv1.ConditionFalse:
		v.state, v.message = waitRefused, fmt.Sprintf("the cluster refuses the update to %s: %s: %s", name, accepted.Reason, accepted.Message)
	case goal.accepted && begun && len(cv.Status.History) > 0:
		v.state, v.message = waitReached, fmt.Sprintf("Update to %s is accepted.", name)
	case !goal.completed && !goal.accepted && begun && levels.of(cv.Status.Desired) && levels.upTo(goal.runlevel):
		v.state, v.message = waitReached, fmt.Sprintf("Update to %s has completed runlevel %d.", name, goal.runlevel)
	case goal.failFast && begun && failing != nil && failing.Status == configv1.ConditionTrue:
		v.state, v.message = waitFails, fmt.Sprintf("the update to %s fails: %s: %s", name, failing.Reason, failing.Message)
	case !begun && accepted != nil && accepted.Status != configv1.ConditionTrue:
		v.message = cmp.Or(accepted.Message, "waiting for the release to be accepted")
	case levels.paused != "":
		v.message = levels.paused
	case progressing != nil && progressing.Message != "" && begun:
		v.message = progressing.Message
	default:
		v.message = fmt.Sprintf("waiting for the update to %s to begin", cmp.Or(name, "a release"))
	}
	return v
}

// wantedUpdate is what somebody asks for; nil if nobody does. What is only to be looked at is never rolled out.
func wantedUpdate(cv *configv1.ClusterVersion) *configv1.Update {
	wanted := cv.Spec.DesiredUpdate
	if wanted == nil || wanted.Mode == configv1.UpdateModePreflight || wanted.Version == "" && wanted.Image == "" && wanted.Architecture == "" {
		return nil
	}
	return wanted
}

// runs reports whether the update that is asked for is the one that the operator rolls out.
func runs(cv *configv1.ClusterVersion, wanted *configv1.Update) bool {
	desired := cv.Status.Desired
	if wanted.Version != "" && wanted.Version != desired.Version {
		return false
	}
	// A mirror has another name for the same image, and the digest is the same.
	if digest := digestOf(wanted.Image); digest != "" && digest != digestOf(desired.Image) {
		return false
	}
	if wanted.Architecture != "" && wanted.Architecture != desired.Architecture {
		return false
	}
	if wanted.Image != "" && wanted.Image != desired.Image && digestOf(wanted.Image) == "" {
		// By its tag nobody can tell an image; the operator says when it has accepted what was asked for.
		accepted := api.FindCondition(cv.Status.Conditions, api.ReleaseAccepted)
		return accepted == nil || accepted.Status == configv1.ConditionTrue
	}
	return true
}

func digestOf(pullspec string) string {
	_, digest, _ := strings.Cut(pullspec, "@")
	return digest
}

// completed reports whether the release that the operator rolls out is rolled out.
func completed(cv *configv1.ClusterVersion) bool {
	history := cv.Status.History
	return len(history) > 0 && history[0].State == configv1.CompletedUpdate &&
		history[0].Version == cv.Status.Desired.Version && history[0].Image == cv.Status.Desired.Image
}
