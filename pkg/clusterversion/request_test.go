package clusterversion

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/clusterversion/background"
	"github.com/cluster-version/cvo/pkg/release"
)

// edit changes the spec of the ClusterVersion.
func (s *scribe) edit(t *testing.T, change func(cv *configv1.ClusterVersion)) {
	t.Helper()
	cv := s.get(t)
	change(cv)
	require.NoError(t, s.client.Update(t.Context(), cv))
}

// TestForceAloneDoesNotRestartTheRollout sets and clears force for the running release. The operator retrieves nothing again.
func TestForceAloneDoesNotRestartTheRollout(t *testing.T) {
	work := slots{}
	s := newScribe(t, func(p *parts) { p.runner = work })
	s.reconcile(t)
	s.accepts(acceptedRelease("1.0.0"))
	s.reconcile(t)
	s.progresses(progressOf("1.0.0", 4, 4))
	s.at(time.Minute)
	s.reconcile(t)
	s.at(2 * time.Minute)
	s.reconcile(t)
	require.Equal(t, configv1.CompletedUpdate, s.get(t).Status.History[0].State)
	accepting, rolling := work[background.SlotAccept].key, work[background.SlotRollout].key
	require.NotEmpty(t, rolling)
	for i, force := range []bool{true, false, true} {
		s.edit(t, func(cv *configv1.ClusterVersion) {
			wants(cv, configv1.Update{Image: imageOf("1.0.0"), Version: "1.0.0", Force: force})
		})
		s.at(time.Duration(3+i) * time.Minute)
		s.reconcile(t)
		assert.Equal(t, accepting, work[background.SlotAccept].key)
		assert.Equal(t, rolling, work[background.SlotRollout].key)
	}
	assert.Len(t, s.get(t).Status.History, 1)
}

// TestOverridesDoNotReplaceAnInstall requests a release during an install. The request waits, even if the same edit of the spec changes
// overrides and capabilities.
func TestOverridesDoNotReplaceAnInstall(t *testing.T) {
	registry, work := newShelf("1.0.0", "1.1.0"), slots{}
	s := newScribe(t, func(p *parts) { p.stages, p.runner = registry.stages(), work })
	s.reconcile(t)
	work[background.SlotAccept].step(t.Context())
	s.at(time.Minute)
	s.reconcile(t)
	s.edit(t, func(cv *configv1.ClusterVersion) {
		cv.Spec.Overrides = []configv1.ComponentOverride{{Kind: "ConfigMap", Namespace: "ns", Name: "a", Unmanaged: true}}
		cv.Spec.Capabilities = &configv1.ClusterVersionCapabilitiesSpec{BaselineCapabilitySet: configv1.ClusterVersionCapabilitySetNone}
		wants(cv, configv1.Update{Image: imageOf("1.1.0"), Version: "1.1.0"})
	})
	for i := range 3 {
		s.at(time.Duration(2+i) * time.Minute)
		s.reconcile(t)
		work[background.SlotAccept].step(t.Context())
	}
	assert.Equal(t, []release.Digest{digestOf("1.0.0")}, slices.Compact(registry.pulled), "the requested release is not read")
	status := s.get(t).Status
	assert.Equal(t, imageOf("1.0.0"), status.Desired.Image)
	require.Len(t, status.History, 1)
	assert.Equal(t, imageOf("1.0.0"), status.History[0].Image)
}

// TestNoUpdateServiceIsNoRisk updates a cluster without a channel. Only if the operator was started with an update service, the history
// records that the update is not known to be recommended.
func TestNoUpdateServiceIsNoRisk(t *testing.T) {
	for name, tt := range map[string]struct{ service, risk string }{
		"no service":        {},
		"an update service": {"https://updates.example/graph", "Configured channel is unset, so the recommended status"},
	} {
		t.Run(name, func(t *testing.T) {
			registry, work := newShelf("1.0.0", "1.1.0"), slots{}
			s := newScribe(t, func(p *parts) { p.stages, p.runner, p.options.Updates.Default = registry.stages(), work, tt.service })
			s.edit(t, func(cv *configv1.ClusterVersion) {
				wants(cv, configv1.Update{Image: imageOf("1.1.0"), Version: "1.1.0"})
			})
			cv := s.get(t)
			cv.Status = clusterAt(completed("1.0.0")).Status
			require.NoError(t, s.client.Status().Update(t.Context(), cv))
			for range 3 {
				s.later(t)
				work[background.SlotAccept].step(t.Context())
			}
			s.later(t)
			entry := s.get(t).Status.History[0]
			require.Equal(t, "1.1.0", entry.Version)
			if tt.risk == "" {
				assert.Empty(t, entry.AcceptedRisks)
			} else {
				assert.Contains(t, entry.AcceptedRisks, tt.risk)
			}
		})
	}
}

// TestRepeatedHistoryIsHarmless uses a history with many entries of one release, as a broken writer leaves it. The operator keeps working.
func TestRepeatedHistoryIsHarmless(t *testing.T) {
	for _, verbosity := range []int{0, 10} {
		s := newScribe(t)
		cv := s.get(t)
		cv.Status.History = slices.Repeat([]configv1.UpdateHistory{partial("1.0.0"), completed("1.0.0"), {}, partial("not a version")}, 40)
		require.NoError(t, s.client.Status().Update(t.Context(), cv))
		log := funcr.New(func(string, string) {}, funcr.Options{Verbosity: verbosity})
		reconciled := func(after time.Duration) {
			s.at(after)
			_, err := s.Reconcile(logr.NewContext(t.Context(), log), reconcile.Request{NamespacedName: client.ObjectKey{Name: "version"}})
			require.NoError(t, err)
		}
		reconciled(time.Minute)
		s.accepts(acceptedRelease("1.1.0"))
		reconciled(2 * time.Minute)
		history := s.get(t).Status.History
		assert.Equal(t, "1.1.0", history[0].Version)
		assert.LessOrEqual(t, len(history), 100)
	}
}

// TestWarningsOfAReleaseAreLogged accepts a release with an invalid field in its metadata.
func TestWarningsOfAReleaseAreLogged(t *testing.T) {
	registry, work := newShelf(), slots{}
	registry.images[digestOf("1.0.0")] = files("1.0.0", "release-manifests/release-metadata",
		`{"kind": "cincinnati-metadata-v0", "version": "1.0.0", "metadata": {"url": 1}}`)
	s := newScribe(t, func(p *parts) { p.stages, p.runner = registry.stages(), work })
	var lines []string
	log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
	_, err := s.Reconcile(logr.NewContext(t.Context(), log), reconcile.Request{NamespacedName: client.ObjectKey{Name: "version"}})
	require.NoError(t, err)
	work[background.SlotAccept].step(t.Context())
	lines = slices.DeleteFunc(lines, func(line string) bool { return !strings.Contains(line, "release accepted") })
	require.Len(t, lines, 1)
	assert.Contains(t, lines[0], "metadata.url: must be a string")
}

// TestEventsKeepPercentSigns shows that text from a release or a cluster is never used as a format string.
func TestEventsKeepPercentSigns(t *testing.T) {
	const odd = "1.0.0+%d%s%!"
	s := newScribe(t)
	s.reconcile(t)
	a := acceptedRelease("1.0.0")
	a.Payload.Release.Version = odd
	s.accepts(a)
	s.at(time.Minute)
	s.reconcile(t)
	assert.Equal(t, []string{"Normal UpdateStarted Started to install " + odd}, s.events("UpdateStarted"))
	failure := apiFailure("a", "PayloadFailed", time.Hour)
	failure.Message = "100%d of %s failed"
	s.progresses(progressOf(odd, 1, 4, failure))
	s.at(2 * time.Minute)
	s.reconcile(t)
	failing := s.events("RolloutFailing")
	require.Len(t, failing, 1)
	assert.Contains(t, failing[0], failure.Message)
}

// TestLateAnswerResolvesNoOtherRequest lets the background resolve the tag of the request before between two steps of a
// reconcile: after it has observed a new request with force, and before it asks about that one. Force must not cover the
// digest of the request before.
//
//threat:late-answer
func TestLateAnswerResolvesNoOtherRequest(t *testing.T) {
	const before, after = "example.com/r:before", "example.com/r:after"
	between := func() {}
	s := newScribe(t, func(p *parts) {
		p.stages.Settings = func() accept.Settings {
			between()
			return accept.Settings{}
		}
	})
	s.reconcile(t)
	s.accepts(acceptedRelease("1.0.0"))
	s.reconcile(t)
	s.progresses(progressOf("1.0.0", 4, 4))
	s.at(time.Minute)
	s.reconcile(t)
	request := func(image string, force bool) {
		s.edit(t, func(cv *configv1.ClusterVersion) { wants(cv, configv1.Update{Image: image, Force: force}) })
		s.at(2 * time.Minute)
		s.reconcile(t)
	}
	resolved := func(image, version string) accept.Acceptance {
		a := acceptedRelease(version)
		a.Done, a.Step, a.Message = false, api.ReasonLoadPayload, "loading"
		a.Target.Image, a.Target.Requested = image, true
		return a
	}
	request(before, false)
	between = func() { s.accepts(resolved(before, "6.6.6")) }
	request(after, true)
	between = func() {}

	target := resolved(after, "1.1.0").Target
	target.Force = true
	require.NoError(t, s.acceptance.snapshot().Identity.Covers(target, digestOf("1.1.0")), "nothing was forced yet")
	s.accepts(resolved(after, "1.1.0"))
	require.Error(t, s.acceptance.snapshot().Identity.Covers(target, digestOf("6.6.6")), "the digest of the request before")
}
