package clusterversion

import (
	"errors"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/release"
)

func wants(cv *configv1.ClusterVersion, update configv1.Update) *configv1.ClusterVersion {
	cv.Spec.DesiredUpdate = &update
	return cv
}

// forcedPast is what the history says of an image that was forced past verification.
const forcedPast = `Target release version="1.1.0" image="x" cannot be verified, but continuing anyway because the update was forced: nobody signed it`

// TestForcedBefore: what was accepted otherwise is no leave to run what nobody has signed.
func TestForcedBefore(t *testing.T) {
	assert.True(t, forcedBefore(configv1.UpdateHistory{AcceptedRisks: forcedPast}))
	assert.True(t, forcedBefore(configv1.UpdateHistory{AcceptedRisks: forcedPast + "\nForced through blocking failures: x"}))
	assert.True(t, forcedBefore(configv1.UpdateHistory{AcceptedRisks: Acceptance{Target: Target{Image: "x"}, Verified: release.Verified{Forced: errors.New("no")}}.forcedText()}))
	assert.False(t, forcedBefore(configv1.UpdateHistory{AcceptedRisks: forcedPast, Verified: true}))
	for _, risks := range []string{
		"", `Precondition "ClusterVersionRecommendedUpdate" failed because of "NoChannel": Configured channel is unset`,
		"The target release x is exposed to the risks [A] which were all explicitly accepted by the cluster administrator.",
		`Precondition "A" failed because of "B": ` + forcedPast,
	} {
		assert.False(t, forcedBefore(configv1.UpdateHistory{AcceptedRisks: risks}), risks)
	}
}

func TestChooseTarget(t *testing.T) {
	own := imageOf("1.0.0")
	forced := partial("1.1.0")
	forced.Verified, forced.AcceptedRisks = false, forcedPast
	forcedDone := completed("1.1.0")
	forcedDone.Verified, forcedDone.AcceptedRisks = false, forcedPast
	withAvailable := func(cv *configv1.ClusterVersion) *configv1.ClusterVersion {
		cv.Status.AvailableUpdates = []configv1.Release{{Version: "1.1.0", Image: imageOf("1.1.0")}}
		return cv
	}
	conditional := clusterAt(completed("1.0.0"))
	conditional.Status.ConditionalUpdates = []configv1.ConditionalUpdate{{Release: configv1.Release{Version: "1.1.0", Image: imageOf("1.1.0")}}}
	const multi = configv1.ClusterVersionArchitectureMulti
	migrating := func() *configv1.ClusterVersion {
		cv := withAvailable(clusterAt(completed("1.0.0")))
		cv.Status.AvailableUpdates = append(cv.Status.AvailableUpdates, configv1.Release{Version: "1.0.0", Image: "multi", Architecture: multi})
		return cv
	}
	migrated := clusterAt(completed("1.0.0"), completed("1.0.0"))
	migrated.Status.History[0].Image = "multi"
	migrated.Status.Desired = configv1.Release{Version: "1.0.0", Image: "multi", Architecture: multi}
	accepting := func(cv *configv1.ClusterVersion) *configv1.ClusterVersion {
		return wants(cv, configv1.Update{AcceptRisks: []configv1.AcceptRisk{{Name: "A"}}})
	}
	for _, tt := range []struct {
		name    string
		cv      *configv1.ClusterVersion
		invalid bool
		want    Target
	}{
		{name: "installs its own release", cv: clusterAt(), want: Target{Image: own, Own: true}},
		{name: "installs its own release whatever is asked for", cv: wants(clusterAt(), configv1.Update{Image: "x"}), want: Target{Image: own, Own: true}},
		{name: "keeps to that until it has completed", cv: wants(clusterAt(partial("1.0.0")), configv1.Update{Image: "x"}), want: Target{Image: own, Own: true}},
		{name: "installs its own in place of an install that did not complete", cv: clusterAt(partial("0.9.0")), want: Target{Image: own, Own: true}},
		{name: "stays", cv: clusterAt(completed("1.0.0")), want: Target{Image: own, Own: true}},
		{name: "stays at what it was updated to", cv: clusterAt(completed("1.1.0"), completed("1.0.0")), want: Target{Image: imageOf("1.1.0")}},
		{name: "follows an image", cv: wants(clusterAt(completed("1.0.0")), configv1.Update{Image: "x:1", Version: "1.1.0", Force: true}), want: Target{Image: "x:1", Version: "1.1.0", Force: true}},
		{name: "finds a version among the available updates", cv: wants(withAvailable(clusterAt(completed("1.0.0"))), configv1.Update{Version: "1.1.0"}), want: Target{Image: imageOf("1.1.0"), Version: "1.1.0"}},
		{name: "finds a version among the conditional updates", cv: wants(conditional, configv1.Update{Version: "1.1.0"}), want: Target{Image: imageOf("1.1.0"), Version: "1.1.0"}},
		{name: "finds the current version for many architectures", cv: wants(migrating(), configv1.Update{Architecture: multi}), want: Target{Image: "multi", Version: "1.0.0"}},
		{name: "finds it by its version, too", cv: wants(migrating(), configv1.Update{Architecture: multi, Version: "1.0.0"}), want: Target{Image: "multi", Version: "1.0.0"}},
		{name: "takes no other version for many architectures", cv: wants(migrating(), configv1.Update{Architecture: multi, Version: "1.1.0"}), want: Target{Image: own, Own: true}},
		{name: "stays at many architectures", cv: wants(migrated, configv1.Update{Architecture: multi, Version: "1.0.0"}), want: Target{Image: "multi", Version: "1.0.0"}},
		{name: "takes accepted risks for no update", cv: accepting(clusterAt(completed("1.0.0"))), want: Target{Image: own, Own: true}},
		{name: "goes back where nothing but accepted risks is left of an update", cv: accepting(clusterAt(partial("1.1.0"), completed("1.0.0"))), want: Target{Image: own, Own: true, Return: true}},
		{name: "finds a version in the history", cv: wants(clusterAt(completed("1.1.0"), completed("1.0.0")), configv1.Update{Version: "1.0.0"}), want: Target{Image: own, Version: "1.0.0", Own: true}},
		{name: "goes on", cv: wants(clusterAt(partial("1.1.0"), completed("1.0.0")), configv1.Update{Image: imageOf("1.1.0")}), want: Target{Image: imageOf("1.1.0")}},
		{name: "goes back when the update is cancelled", cv: clusterAt(partial("1.1.0"), completed("1.0.0")), want: Target{Image: own, Own: true, Return: true}},
		{name: "goes back to where the update came from, not to its own release", cv: clusterAt(partial("1.2.0"), completed("1.1.0"), completed("1.0.0")), want: Target{Image: imageOf("1.1.0"), Return: true}},
		{name: "goes back to its own release if that is younger", cv: clusterAt(partial("1.1.0"), partial("1.0.0"), completed("0.9.0")), want: Target{Image: own, Own: true, Return: true}},
		{name: "stays on the way back", cv: clusterAt(partial("1.0.0"), partial("1.1.0"), completed("1.0.0")), want: Target{Image: own, Own: true}},
		{name: "stays on the way back to another's release", cv: clusterAt(partial("1.1.0"), partial("1.2.0"), completed("1.1.0")), want: Target{Image: imageOf("1.1.0"), Return: true}},
		{name: "does not go back from its own release", cv: clusterAt(partial("1.0.0"), completed("0.9.0")), want: Target{Image: own, Own: true}},
		{name: "does not turn around for an invalid wish", cv: clusterAt(partial("1.1.0"), completed("1.0.0")), invalid: true, want: Target{Image: imageOf("1.1.0")}},
		{name: "does not turn around for a version that nobody knows", cv: wants(clusterAt(partial("1.1.0"), completed("1.0.0")), configv1.Update{Version: "9.9.9"}), want: Target{Image: imageOf("1.1.0")}},
		{name: "needs no force for what was forced", cv: clusterAt(forcedDone, completed("1.0.0")), want: Target{Image: imageOf("1.1.0"), Force: true}},
		{name: "needs no force to go on with what was forced", cv: wants(clusterAt(forced, completed("1.0.0")), configv1.Update{Image: imageOf("1.1.0")}), want: Target{Image: imageOf("1.1.0"), Force: true}},
		{name: "needs force for anything else", cv: wants(clusterAt(forced, completed("1.0.0")), configv1.Update{Image: imageOf("1.2.0")}), want: Target{Image: imageOf("1.2.0")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, chooseTarget(tt.cv, own, tt.invalid))
		})
	}
}

func TestResumeTarget(t *testing.T) {
	own := imageOf("1.0.0")
	forced := completed("1.1.0")
	forced.Verified, forced.AcceptedRisks = false, forcedPast
	for _, tt := range []struct {
		name  string
		cv    *configv1.ClusterVersion
		asked string
		want  Target
		ok    bool
	}{
		{name: "resumes nothing before the first release", cv: clusterAt(), asked: own},
		{name: "resumes nothing during the first install", cv: clusterAt(partial("0.9.0")), asked: own},
		{name: "resumes nothing that is asked for anyway", cv: clusterAt(completed("1.1.0")), asked: imageOf("1.1.0")},
		{name: "resumes the release the cluster is at", cv: clusterAt(completed("1.1.0")), asked: "bad", want: Target{Image: imageOf("1.1.0")}, ok: true},
		{name: "resumes the update that was under way", cv: clusterAt(partial("1.1.0"), completed("1.0.0")), asked: "bad", want: Target{Image: imageOf("1.1.0")}, ok: true},
		{name: "resumes its own", cv: clusterAt(completed("1.0.0")), asked: "bad", want: Target{Image: own, Own: true}, ok: true},
		{name: "resumes what was forced", cv: clusterAt(forced), asked: "bad", want: Target{Image: imageOf("1.1.0"), Force: true}, ok: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := resumeTarget(tt.cv, own, Target{Image: tt.asked})
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.ok, ok)
		})
	}
}

// TestModeAfterACrash is what a new process finds in the history at each phase of a cluster's life.
func TestModeAfterACrash(t *testing.T) {
	for _, tt := range []struct {
		name    string
		history []configv1.UpdateHistory
		image   string
		want    release.Mode
	}{
		{"before anything was recorded", nil, "1.0.0", release.Initializing},
		{"in the first install", []configv1.UpdateHistory{partial("1.0.0")}, "1.0.0", release.Initializing},
		{"in a second attempt at it", []configv1.UpdateHistory{partial("1.0.1"), partial("1.0.0")}, "1.0.1", release.Initializing},
		{"at rest", []configv1.UpdateHistory{completed("1.0.0")}, "1.0.0", release.Reconciling},
		{"accepted, not recorded", []configv1.UpdateHistory{completed("1.0.0")}, "1.1.0", release.Updating},
		{"in an update", []configv1.UpdateHistory{partial("1.1.0"), completed("1.0.0")}, "1.1.0", release.Updating},
		{"on the way back", []configv1.UpdateHistory{partial("1.0.0"), partial("1.1.0"), completed("1.0.0")}, "1.0.0", release.Updating},
		{"updated", []configv1.UpdateHistory{completed("1.1.0"), completed("1.0.0")}, "1.1.0", release.Reconciling},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, modeOf(clusterAt(tt.history...), imageOf(tt.image)))
		})
	}
}
