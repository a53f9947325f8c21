package request_test

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/clusterversion/request"
)

func TestTargetFollowsSpecAndHistory(t *testing.T) {
	own := imageOf("1.0.0")
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
		want    request.Target
	}{
		{name: "installs its own release", cv: clusterAt(), want: request.Target{Image: own, Own: true}},
		{name: "installs its own release despite a request", cv: wants(clusterAt(), configv1.Update{Image: "x"}), want: request.Target{Image: own, Own: true}},
		{name: "keeps its own release until the install has completed", cv: wants(clusterAt(partial("1.0.0")), configv1.Update{Image: "x"}), want: request.Target{Image: own, Own: true}},
		{name: "installs its own release in place of an incomplete one", cv: clusterAt(partial("0.9.0")), want: request.Target{Image: own, Own: true}},
		{name: "keeps the current release", cv: clusterAt(completed("1.0.0")), want: request.Target{Image: own, Own: true}},
		{name: "keeps the release of the last update", cv: clusterAt(completed("1.1.0"), completed("1.0.0")), want: request.Target{Image: imageOf("1.1.0")}},
		{name: "follows an image", cv: wants(clusterAt(completed("1.0.0")), configv1.Update{Image: "x:1", Version: "1.1.0", Force: true}), want: request.Target{Image: "x:1", Version: "1.1.0", Force: true, Requested: true}},
		{name: "finds a version among the available updates", cv: wants(withAvailable(clusterAt(completed("1.0.0"))), configv1.Update{Version: "1.1.0"}), want: request.Target{Image: imageOf("1.1.0"), Version: "1.1.0", Requested: true}},
		{name: "finds a version among the conditional updates", cv: wants(conditional, configv1.Update{Version: "1.1.0"}), want: request.Target{Image: imageOf("1.1.0"), Version: "1.1.0", Requested: true}},
		{name: "finds the multi-architecture image of the current version", cv: wants(migrating(), configv1.Update{Architecture: multi}), want: request.Target{Image: "multi", Version: "1.0.0", Requested: true}},
		{name: "finds the multi-architecture image by version", cv: wants(migrating(), configv1.Update{Architecture: multi, Version: "1.0.0"}), want: request.Target{Image: "multi", Version: "1.0.0", Requested: true}},
		{name: "rejects a migration to several architectures with another version", cv: wants(migrating(), configv1.Update{Architecture: multi, Version: "1.1.0"}), want: request.Target{Image: own, Own: true}},
		{name: "stays at the multi-architecture image", cv: wants(migrated, configv1.Update{Architecture: multi, Version: "1.0.0"}), want: request.Target{Image: "multi", Version: "1.0.0", Requested: true}},
		{name: "treats accepted risks alone as no request", cv: accepting(clusterAt(completed("1.0.0"))), want: request.Target{Image: own, Own: true}},
		{name: "returns when a request is reduced to its accepted risks", cv: accepting(clusterAt(partial("1.1.0"), completed("1.0.0"))), want: request.Target{Image: own, Own: true, Return: true}},
		{name: "finds a version in the history", cv: wants(clusterAt(completed("1.1.0"), completed("1.0.0")), configv1.Update{Version: "1.0.0"}), want: request.Target{Image: own, Version: "1.0.0", Own: true, Requested: true}},
		{name: "continues an update", cv: wants(clusterAt(partial("1.1.0"), completed("1.0.0")), configv1.Update{Image: imageOf("1.1.0")}), want: request.Target{Image: imageOf("1.1.0"), Requested: true}},
		{name: "returns when the update is canceled", cv: clusterAt(partial("1.1.0"), completed("1.0.0")), want: request.Target{Image: own, Own: true, Return: true}},
		{name: "returns to the release before the update instead of its own release", cv: clusterAt(partial("1.2.0"), completed("1.1.0"), completed("1.0.0")), want: request.Target{Image: imageOf("1.1.0"), Return: true}},
		{name: "returns to its own release if that is newer", cv: clusterAt(partial("1.1.0"), partial("1.0.0"), completed("0.9.0")), want: request.Target{Image: own, Own: true, Return: true}},
		{name: "keeps returning", cv: clusterAt(partial("1.0.0"), partial("1.1.0"), completed("1.0.0")), want: request.Target{Image: own, Own: true}},
		{name: "keeps returning to another operator's release", cv: clusterAt(partial("1.1.0"), partial("1.2.0"), completed("1.1.0")), want: request.Target{Image: imageOf("1.1.0"), Return: true}},
		{name: "does not return from its own release", cv: clusterAt(partial("1.0.0"), completed("0.9.0")), want: request.Target{Image: own, Own: true}},
		{name: "continues the update while the request is invalid", cv: clusterAt(partial("1.1.0"), completed("1.0.0")), invalid: true, want: request.Target{Image: imageOf("1.1.0")}},
		{name: "continues the update while the requested version is unknown", cv: wants(clusterAt(partial("1.1.0"), completed("1.0.0")), configv1.Update{Version: "9.9.9"}), want: request.Target{Image: imageOf("1.1.0")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, request.Choose(tt.cv, own, tt.invalid))
		})
	}
}

//threat:history-forged-grows
func TestRunningTargetIsTheLatestRelease(t *testing.T) {
	own := imageOf("1.0.0")
	for _, tt := range []struct {
		name  string
		cv    *configv1.ClusterVersion
		asked string
		want  request.Target
		ok    bool
	}{
		{name: "resumes nothing before the first release", cv: clusterAt(), asked: own},
		{name: "resumes nothing during the first install", cv: clusterAt(partial("0.9.0")), asked: own},
		{name: "resumes nothing if the release is requested anyway", cv: clusterAt(completed("1.1.0")), asked: imageOf("1.1.0")},
		{name: "resumes the current release", cv: clusterAt(completed("1.1.0")), asked: "bad", want: request.Target{Image: imageOf("1.1.0")}, ok: true},
		{name: "resumes the update that was under way", cv: clusterAt(partial("1.1.0"), completed("1.0.0")), asked: "bad", want: request.Target{Image: imageOf("1.1.0")}, ok: true},
		{name: "resumes its own release", cv: clusterAt(completed("1.0.0")), asked: "bad", want: request.Target{Image: own, Own: true}, ok: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := request.Running(tt.cv, own, request.Target{Image: tt.asked})
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.ok, ok)
		})
	}
}
