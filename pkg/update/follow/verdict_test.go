package follow

import (
	"fmt"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/clusterversions"
)

// awaited returns a ClusterVersion that rolls out the desired release and requests the wanted one.
func awaited(desired, wanted string, state configv1.UpdateState, conditions ...configv1.ClusterOperatorStatusCondition) *configv1.ClusterVersion {
	cv := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: "version", Generation: 2}}
	cv.Status.ObservedGeneration, cv.Status.Desired, cv.Status.Conditions = 2, clusterversions.VersionedRelease(desired), conditions
	if wanted != "" {
		cv.Spec.DesiredUpdate = &configv1.Update{Version: wanted, Image: clusterversions.VersionedRelease(wanted).Image}
	}
	if state != "" {
		cv.Status.History = []configv1.UpdateHistory{{State: state, Version: desired, Image: cv.Status.Desired.Image}}
	}
	return cv
}

func TestVerdictFollowsTheClusterVersion(t *testing.T) {
	const partial, done = configv1.PartialUpdate, configv1.CompletedUpdate
	refused := clusterversions.Condition(api.ReleaseAccepted, configv1.ConditionFalse, "RetrievePayload", "Nobody signed it.")
	verifying := clusterversions.Condition(api.ReleaseAccepted, configv1.ConditionUnknown, "RetrievePayload", "Retrieving and verifying")
	failing := clusterversions.Condition(api.Failing, configv1.ConditionTrue, "Broken", "It broke.")
	working := clusterversions.Condition(configv1.OperatorProgressing, configv1.ConditionTrue, "", "Working towards 1.1.0: 3 of 9 done")
	rejection := func(image, reason string) configv1.ClusterOperatorStatusCondition {
		return clusterversions.Condition(api.ReleaseAccepted, configv1.ConditionFalse, "RetrievePayload",
			fmt.Sprintf("Retrieving payload failed version=\"\" image=%q failure=%s", image, reason))
	}
	rejects := func(version string) configv1.ClusterOperatorStatusCondition {
		return rejection(clusterversions.VersionedRelease(version).Image, "no route")
	}
	const tag, unrecorded = "r.example/r:1.1", api.CannotRecord + ": forbidden"
	unobserved := func(requested, rejected, reason string) *configv1.ClusterVersion {
		cv := awaited("1.0.0", "1.1.0", configv1.CompletedUpdate, rejection(rejected, reason))
		cv.Spec.DesiredUpdate.Image, cv.Generation = requested, 3
		return cv
	}
	unable := clusterversions.Condition(configv1.OperatorProgressing, configv1.ConditionTrue, api.ReasonNoAcceptedRelease, "Unable to apply 1.0.0: no release is accepted")
	changed := func(cv *configv1.ClusterVersion, change func(*configv1.ClusterVersion)) *configv1.ClusterVersion {
		change(cv)
		return cv
	}
	half := runlevels{version: "1.1.0", done: map[int]bool{0: true, 10: true, 20: false, 30: false}}
	for _, tt := range []struct {
		name    string
		goal    string
		cv      *configv1.ClusterVersion
		levels  runlevels
		want    State
		message string
	}{
		{"it waits until the operator observes the request", "completed", changed(awaited("1.0.0", "1.1.0", done), func(cv *configv1.ClusterVersion) { cv.Generation = 3 }), runlevels{}, Waiting, "waiting for the version operator to observe the request"},
		{"it says why the operator does not observe a request by tag", "completed", unobserved(tag, tag, unrecorded), runlevels{}, Waiting, "waiting for the version operator to observe the request: " + rejection(tag, unrecorded).Message},
		{"it ignores an earlier rejection of the tag", "completed", unobserved(tag, tag, "no route"), runlevels{}, Waiting, "waiting for the version operator to observe the request"},
		{"it ignores a rejection of another tag", "completed", unobserved(tag, "r.example/r:1.2", unrecorded), runlevels{}, Waiting, "waiting for the version operator to observe the request"},
		{"it ignores a rejection of a digest", "completed", unobserved(clusterversions.VersionedRelease("1.1.0").Image, clusterversions.VersionedRelease("1.1.0").Image, unrecorded), runlevels{}, Waiting, "waiting for the version operator to observe the request"},
		{"it ends immediately without an update", "completed", awaited("1.0.0", "", done), runlevels{}, Reached, "The cluster is at 1.0.0, and no update is in progress."},
		{"it has no runlevel to wait for", "runlevel=90", awaited("1.0.0", "", done), runlevels{}, Reached, "The cluster is at 1.0.0, and no update is in progress."},
		{"it waits for an install", "completed", awaited("1.0.0", "", partial, working), runlevels{}, Waiting, working.Message},
		{"it waits for the first report", "completed", awaited("", "", ""), runlevels{}, Waiting, "waiting for the update to a release to start"},
		{"it waits for acceptance", "completed", awaited("1.0.0", "1.1.0", done, verifying), runlevels{}, Waiting, verifying.Message},
		{"it does not accept another release as completion", "completed", awaited("1.0.0", "1.1.0", done), runlevels{}, Waiting, "waiting for the update to 1.1.0 to start"},
		{"it reports progress", "completed", awaited("1.1.0", "1.1.0", partial, working), runlevels{}, Waiting, working.Message},
		{"it reports completion", "completed", awaited("1.1.0", "1.1.0", done, refused), runlevels{}, Reached, "Update to 1.1.0 is complete."},
		{"it ignores the completion of an older history entry", "completed", changed(awaited("1.1.0", "1.1.0", done), func(cv *configv1.ClusterVersion) { cv.Status.Desired.Image = "x@sha256:2" }), runlevels{}, Waiting, "waiting for the update to 1.1.0 to start"},
		{"it reports a rejection", "completed", awaited("1.0.0", "1.1.0", done, refused), runlevels{}, Refused, "the cluster rejected the update to 1.1.0: RetrievePayload: Nobody signed it."},
		{"it waits for an install whose release is not accepted", "completed", awaited("1.0.0", "1.1.0", partial, rejects("1.0.0"), unable), runlevels{}, Waiting, unable.Message},
		{"it waits for an install that has not started", "completed", awaited("", "1.1.0", "", rejects("1.0.0"), unable), runlevels{}, Waiting, unable.Message},
		{"it reports the rejection of a replacement during an install", "completed", awaited("1.0.0", "1.1.0", partial, rejects("1.1.0"), unable), runlevels{}, Refused, "the cluster rejected the update to 1.1.0: RetrievePayload: " + rejects("1.1.0").Message},
		{"it reports an invalid spec", "accepted", awaited("1.0.0", "1.1.0", done, clusterversions.Condition(api.Invalid, configv1.ConditionTrue, "Unknown", "No such version.")), runlevels{}, Refused, "the ClusterVersion is invalid: Unknown: No such version."},
		{
			"it reports an invalid request at rest", "completed",
			changed(awaited("1.0.0", "", done, clusterversions.Condition(api.Invalid, configv1.ConditionTrue, "Unknown", "No version.")), func(cv *configv1.ClusterVersion) {
				cv.Spec.DesiredUpdate = &configv1.Update{}
			}),
			runlevels{},
			Refused, "the ClusterVersion is invalid: Unknown: No version.",
		},
		{"it reports acceptance", "accepted", awaited("1.1.0", "1.1.0", partial), runlevels{}, Reached, "Update to 1.1.0 is accepted."},
		{"it treats completion as acceptance", "accepted", awaited("1.1.0", "1.1.0", done), runlevels{}, Reached, "Update to 1.1.0 is complete."},
		{"it tolerates failures", "completed", awaited("1.1.0", "1.1.0", partial, failing, working), runlevels{}, Waiting, working.Message},
		{"it ends on a failure if requested", "fail-fast", awaited("1.1.0", "1.1.0", partial, failing, working), runlevels{}, Failing, "the update to 1.1.0 is failing: Broken: It broke."},
		{"it ignores failures of the previous release", "fail-fast", awaited("1.0.0", "1.1.0", done, failing, verifying), runlevels{}, Waiting, verifying.Message},
		{"it reports a completed runlevel", "runlevel=10", awaited("1.1.0", "1.1.0", partial, working), half, Reached, "Update to 1.1.0 has completed runlevel 10."},
		{"it treats a runlevel without manifests like the next lower one", "runlevel=15", awaited("1.1.0", "1.1.0", partial, working), half, Reached, "Update to 1.1.0 has completed runlevel 15."},
		{"it waits for a runlevel", "runlevel=20", awaited("1.1.0", "1.1.0", partial, working), half, Waiting, working.Message},
		{"it ignores runlevels of another release", "runlevel=10", awaited("1.1.0", "1.1.0", partial, working), runlevels{version: "1.0.0", done: half.done}, Waiting, working.Message},
		{"it ignores runlevels of another image", "runlevel=10", awaited("1.1.0", "1.1.0", partial, working), runlevels{version: "1.1.0", image: "registry.example/release@sha256:other", done: half.done}, Waiting, working.Message},
		{"it accepts runlevels of a mirrored image", "runlevel=10", awaited("1.1.0", "1.1.0", partial, working), runlevels{version: "1.1.0", image: "mirror.example/copy@sha256:1.1.0", done: half.done}, Reached, "Update to 1.1.0 has completed runlevel 10."},
		{"it waits without known runlevels", "runlevel=0", awaited("1.1.0", "1.1.0", partial, working), runlevels{version: "1.1.0"}, Waiting, working.Message},
		{"it reports a pause", "completed", awaited("1.1.0", "1.1.0", partial, working), runlevels{paused: "Held back before runlevel 20."}, Waiting, "Held back before runlevel 20."},
		{"it recognizes a mirrored image by its digest", "completed", changed(awaited("1.1.0", "1.1.0", done), func(cv *configv1.ClusterVersion) {
			cv.Spec.DesiredUpdate = &configv1.Update{Image: "mirror.example/copy@sha256:1.1.0"}
		}), runlevels{}, Reached, "Update to 1.1.0 is complete."},
		{"it accepts the digest that the operator resolved for a tag", "completed", changed(awaited("1.1.0", "1.1.0", done, verifying), func(cv *configv1.ClusterVersion) {
			cv.Spec.DesiredUpdate = &configv1.Update{Image: "registry.example/release:new", Force: true}
		}), runlevels{}, Waiting, verifying.Message},
		{"it distinguishes architectures", "completed", changed(awaited("1.1.0", "", done, verifying), func(cv *configv1.ClusterVersion) {
			cv.Spec.DesiredUpdate = &configv1.Update{Version: "1.1.0", Architecture: configv1.ClusterVersionArchitectureMulti}
		}), runlevels{}, Waiting, verifying.Message},
		{"it does not wait for a preflight", "completed", changed(awaited("1.0.0", "1.1.0", done, refused), func(cv *configv1.ClusterVersion) {
			cv.Spec.DesiredUpdate.Mode = configv1.UpdateModePreflight
		}), runlevels{}, Reached, "The cluster is at 1.0.0, and no update is in progress."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			goal, err := ParseGoal(strings.Replace(tt.goal, "fail-fast", "completed", 1))
			require.NoError(t, err)
			goal.FailFast = tt.goal == "fail-fast"
			got := judge(goal, tt.cv, tt.levels)
			assert.Equal(t, tt.want, got.State, got.Message)
			assert.Equal(t, tt.message, got.Message)
		})
	}
}

func TestSnapshotCountsOnlyRunlevelsOfItsRelease(t *testing.T) {
	snapshot := &report.Snapshot{Progress: report.Progress{Release: release.Release{Version: "1.1.0", Image: clusterversions.VersionedRelease("1.1.0").Image}, Runlevels: []report.Runlevel{
		{Runlevel: 0, Total: 2, Done: 2}, {Runlevel: 10, Total: 2, Done: 1},
	}}}
	got := snapshotLevels(snapshot)
	assert.True(t, got.of(clusterversions.VersionedRelease("1.1.0")))
	assert.False(t, got.of(clusterversions.VersionedRelease("1.2.0")))
	assert.True(t, got.upTo(9))
	assert.False(t, got.upTo(10))
}

func TestEarlierRejectionIsNotFinal(t *testing.T) {
	rejected := func(reason, message string) *configv1.ClusterVersion {
		return awaited("1.0.0", "1.1.0", configv1.CompletedUpdate, clusterversions.Condition(api.ReleaseAccepted, configv1.ConditionFalse, reason, message))
	}
	unsigned := rejected(api.ReasonRetrievePayload, "Nobody signed it.")
	accepted := awaited("1.1.0", "1.1.0", configv1.PartialUpdate)
	verifying := awaited("1.0.0", "1.1.0", configv1.CompletedUpdate, clusterversions.Condition(api.ReleaseAccepted, configv1.ConditionUnknown, api.ReasonRetrievePayload, "Verifying"))
	for _, tt := range []struct {
		name     string
		cvs      []*configv1.ClusterVersion
		failFast bool
		over     bool
		want     []State
	}{
		{"waits for the next check", []*configv1.ClusterVersion{unsigned, unsigned.DeepCopy(), accepted}, false, false, []State{Waiting, Waiting, Reached}},
		{"ends if the next check rejects it for another reason", []*configv1.ClusterVersion{unsigned, rejected(api.ReasonPreconditionChecks, "Not now.")}, false, false, []State{Waiting, Refused}},
		{"ends with a rejection during the wait", []*configv1.ClusterVersion{verifying, unsigned}, false, false, []State{Waiting, Refused}},
		{"ends when the patience is over", []*configv1.ClusterVersion{unsigned}, false, true, []State{Refused}},
		{"ends at once if asked to", []*configv1.ClusterVersion{unsigned}, true, false, []State{Refused}},
		{"ends at once for a broken release", []*configv1.ClusterVersion{rejected(api.ReasonLoadPayload, "Broken.")}, false, false, []State{Refused}},
		{"ends at once for another version", []*configv1.ClusterVersion{rejected(api.ReasonVerifyPayloadVersion, "Other.")}, false, false, []State{Refused}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			goal := Goal{accepted: true, FailFast: tt.failFast}
			before := earlier{over: tt.over}
			var got []State
			for _, cv := range tt.cvs {
				got = append(got, before.tolerate(goal, judge(goal, cv, runlevels{})).State)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}
