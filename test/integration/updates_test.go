package integration_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cluster-version/cvo/pkg/release"
	updategraph "github.com/cluster-version/cvo/pkg/update/graph"
	"github.com/cluster-version/cvo/test/fixture"
)

// TestUpdatesAreKeptWhileTheServiceIsUnavailable gets the available updates from an update service and keeps them while the service is
// unavailable.
//
//threat:does-answer-fails
func TestUpdatesAreKeptWhileTheServiceIsUnavailable(t *testing.T) {
	t.Parallel()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	images := map[string]release.Image{}
	for _, version := range []string{"4.2.0", "4.2.1", "4.2.2", "4.2.3"} {
		images[version] = l.release(version, l.signer)
	}
	l.own = images["4.2.0"]
	l.create(statusDefinition) // it reports that the operator has no update service
	_, err := l.run("install", "--no-operator", "--release-image", l.own.ByDigest(), "--trust", l.trust)
	require.NoError(t, err)
	service := fixture.StartUpdateService(t, offered(images))
	l.start("operators")
	l.cvo = l.operator(l.own.ByDigest())
	l.await("4.2.0 to complete", time.Minute, at("4.2.0"))
	id := string(l.get().Spec.ClusterID)

	l.await("the missing channel to be reported", time.Minute, says(configv1.RetrievedUpdates, "False|NoChannel|The update channel has not been configured."))
	unlisted := []string{"upgrade", "--to-image", images["4.2.1"].ByDigest(), "--dry-run"}
	out, err := l.run(unlisted...)
	require.NoError(t, err, "without a service and a channel, a signed image needs no flag")
	assert.Contains(t, out, "Requested update to release image "+images["4.2.1"].ByDigest()+" (server dry run)")
	l.channel("stable")
	_, err = l.run(unlisted...)
	require.ErrorContains(t, err, "specify --allow-explicit-upgrade to continue with the update.")
	l.await("the missing update service to be reported", time.Minute, says(configv1.RetrievedUpdates, "False|NoUpstream|"))
	l.edit(func(spec *configv1.ClusterVersionSpec) { spec.Upstream = configv1.URL(service.URL() + "/graph") })
	cv := l.await("updates", time.Minute, offers("4.2.3", "4.2.1"))
	assert.Equal(t, "True||", condition(cv, configv1.RetrievedUpdates))
	query := service.Questions()[0].Query
	assert.Equal(t, []string{"stable", id, "4.2.0"}, []string{query.Get("channel"), query.Get("id"), query.Get("version")})
	assert.Equal(t, []string{"4.2.3 True NotExposedToRisks", "4.2.2 False Fire"}, judged(cv))
	assert.Equal(t, configv1.URL("https://example.com/4.2.1"), cv.Status.AvailableUpdates[1].URL)
	assert.Equal(t, images["4.2.1"].ByDigest(), cv.Status.AvailableUpdates[1].Image)

	t.Run("keeps updates of an unavailable service", func(t *testing.T) { serviceAway(t, l, service, cv) })
	t.Run("recommends an update with an accepted risk", func(t *testing.T) { riskAccepted(t, l) })
	t.Run("drops the updates of another channel", func(t *testing.T) { anotherChannel(t, l, service) })
	t.Run("finds a conditional update by its version", func(t *testing.T) { conditionalByVersion(t, l, service) })
}

// offered returns a graph with an unconditional update, one with a risk that applies, and one with a risk that does not.
func offered(images map[string]release.Image) updategraph.Graph {
	var releases []configv1.Release
	for _, version := range []string{"4.2.0", "4.2.1", "4.2.2", "4.2.3"} {
		releases = append(releases, configv1.Release{Version: version, Image: images[version].ByDigest(), URL: configv1.URL("https://example.com/" + version)})
	}
	graph := fixture.UpdateGraph(releases...)
	for name, rule := range map[string]configv1.ClusterCondition{
		"4.2.2 Fire":  {Type: "Always"},
		"4.2.3 Water": {Type: "PromQL", PromQL: &configv1.PromQLClusterCondition{PromQL: "vector(0)"}},
	} {
		version, risk, _ := strings.Cut(name, " ")
		graph.ConditionalEdges = append(graph.ConditionalEdges, updategraph.ConditionalEdges{
			Edges: []updategraph.Edge{{From: "4.2.0", To: version}},
			Risks: []configv1.ConditionalUpdateRisk{{
				Name: risk, URL: "https://example.com/risks/" + risk, Message: risk + " may break out.", MatchingRules: []configv1.ClusterCondition{rule},
			}},
		})
	}
	return graph
}

func (l *testPlatform) channel(name string) {
	l.t.Helper()
	l.edit(func(spec *configv1.ClusterVersionSpec) { spec.Channel = name })
}

// offers returns a condition that holds when exactly these versions are available.
func offers(versions ...string) func(*configv1.ClusterVersion) bool {
	return func(cv *configv1.ClusterVersion) bool {
		var got []string
		for _, r := range cv.Status.AvailableUpdates {
			got = append(got, r.Version)
		}
		return strings.Join(got, " ") == strings.Join(versions, " ")
	}
}

// judged returns the conditional updates and whether each is recommended.
func judged(cv *configv1.ClusterVersion) []string {
	var out []string
	for _, update := range cv.Status.ConditionalUpdates {
		text := update.Release.Version
		if c := meta.FindStatusCondition(update.Conditions, "Recommended"); c != nil {
			text += " " + string(c.Status) + " " + c.Reason
		}
		out = append(out, text)
	}
	return out
}

// serviceAway restarts the operator while the service is unavailable. The known updates do not change.
func serviceAway(t *testing.T, l *testPlatform, service *fixture.UpdateService, before *configv1.ClusterVersion) {
	defer service.AddFault(fixture.Fault{Status: http.StatusServiceUnavailable, RetryAfter: "3600"})()
	l.handOver()
	cv := l.await("the unavailable service to be reported", time.Minute, says(configv1.RetrievedUpdates, "False|ResponseFailed|"))
	assert.Equal(t, "False|ResponseFailed|Unable to retrieve available updates: unexpected HTTP status: 503 Service Unavailable", condition(cv, configv1.RetrievedUpdates))
	assert.Equal(t, before.Status.AvailableUpdates, cv.Status.AvailableUpdates)
	assert.Equal(t, before.Status.ConditionalUpdates, cv.Status.ConditionalUpdates)
	assert.Equal(t, before.Status.ConditionalUpdateRisks, cv.Status.ConditionalUpdateRisks)
}

// riskAccepted accepts a risk before the next query of the service. That alone requests no update.
func riskAccepted(t *testing.T, l *testPlatform) {
	l.edit(func(spec *configv1.ClusterVersionSpec) {
		spec.DesiredUpdate = &configv1.Update{AcceptRisks: []configv1.AcceptRisk{{Name: "Fire"}}}
	})
	cv := l.await("the update to be recommended", time.Minute, offers("4.2.3", "4.2.2", "4.2.1"))
	assert.Equal(t, []string{"4.2.3 True NotExposedToRisks", "4.2.2 True AllExposedRisksAccepted"}, judged(cv))
	assert.True(t, at("4.2.0")(cv) || len(cv.Status.History) == 1, "no update starts")
	assert.Empty(t, condition(cv, "Invalid"))
}

// anotherChannel selects a channel that the service lacks, and then one that it has. Updates of one channel are not offered in another.
func anotherChannel(t *testing.T, l *testPlatform, service *fixture.UpdateService) {
	remove := service.AddFault(fixture.Fault{Status: http.StatusNotFound})
	l.channel("none")
	cv := l.await("the unknown channel to be reported", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return strings.Contains(condition(cv, configv1.RetrievedUpdates), "404 Not Found") && offers()(cv)
	})
	assert.Empty(t, cv.Status.ConditionalUpdates)
	assert.Empty(t, cv.Status.ConditionalUpdateRisks)
	remove()
	l.channel("fast")
	l.await("updates", time.Minute, offers("4.2.3", "4.2.2", "4.2.1"))
}

// conditionalByVersion requests a conditional update only by its version, while the service hangs.
func conditionalByVersion(t *testing.T, l *testPlatform, service *fixture.UpdateService) {
	remove := service.AddFault(fixture.Fault{Delay: time.Hour})
	l.edit(func(spec *configv1.ClusterVersionSpec) { spec.DesiredUpdate.Version = "4.2.2" })
	cv := l.await("4.2.2 to complete", time.Minute, completed("4.2.2"))
	assert.True(t, cv.Status.History[0].Verified)
	assert.Contains(t, cv.Status.History[0].AcceptedRisks, "exposed to the risks [Fire] which were all explicitly accepted by the cluster administrator.")
	remove()
	l.channel("stable")
	cv = l.await("updates from 4.2.2", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return offers()(cv) && says(configv1.RetrievedUpdates, "True")(cv)
	})
	assert.Empty(t, cv.Status.ConditionalUpdates)
	assert.Equal(t, "4.2.2", service.Questions()[len(service.Questions())-1].Query.Get("version"))
}
