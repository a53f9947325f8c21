package integration_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/test/env"
)

// preflightEnded returns a condition that holds when the preflight of a version has ended. For a version that was never read, what is its
// image.
func preflightEnded(state, what string) func(*api.ReleaseRollout) bool {
	return func(r *api.ReleaseRollout) bool {
		p := r.Status.Preflight
		return p != nil && p.State == state && (p.Version == what || strings.Contains(p.Image, what))
	}
}

// preflight requests a preflight of a release.
func (l *testPlatform) preflight(update configv1.Update) {
	l.t.Helper()
	update.Mode = configv1.UpdateModePreflight
	l.update(update)
}

// stored counts the effective writes to the platform since a position in the audit log, by object. It excludes events, leases and the
// operator's own objects.
func (l *testPlatform) stored(since int) map[string]int {
	l.t.Helper()
	events, err := l.env.Audit()
	require.NoError(l.t, err)
	out := map[string]int{}
	for _, e := range env.Changes(events[since:]) {
		switch e.Object.Resource {
		case "events", "leases", "clusterversions", api.ReleaseRolloutResource, "releasestatuses":
			continue
		}
		if strings.HasPrefix(e.UserAgent, "cluster-version-operator") {
			out[e.Verb+" "+e.Object.String()]++
		}
	}
	return out
}

// asked counts the dry runs since a position in the audit log.
func (l *testPlatform) asked(since int) (count int) {
	l.t.Helper()
	events, err := l.env.Audit()
	require.NoError(l.t, err)
	for _, e := range events[since:] {
		if strings.Contains(e.URI, "dryRun=All") {
			count++
		}
	}
	return count
}

func (l *testPlatform) now() int {
	l.t.Helper()
	events, err := l.env.Audit()
	require.NoError(l.t, err)
	return len(events)
}

// TestPreflightChangesNothing examines valid and invalid releases on a cluster at rest and during an update. It must change nothing.
func TestPreflightChangesNothing(t *testing.T) {
	t.Parallel()
	l := newTestPlatform(t)
	operators := l.start("operators")
	before := l.await("4.2.0 to complete", time.Minute, at("4.2.0"))
	good, unsigned, old := l.release("4.2.1", l.signer), l.release("4.2.2", nil), l.release("4.1.0", l.signer)
	since := l.now()

	l.preflight(configv1.Update{Image: good.ByDigest()})
	r := l.awaitRollout("the preflight of 4.2.1", preflightEnded(api.PreflightPassed, "4.2.1"))
	p := r.Status.Preflight
	assert.Equal(t, good.ByDigest(), p.Image)
	require.Len(t, p.VerifiedBy, 1)
	assert.Equal(t, l.signer.KeyID(), p.VerifiedBy[0].KeyID)
	require.NotNil(t, p.Changes)
	assert.EqualValues(t, 4, p.Changes.Changed, "both ConfigMaps and Deployments change: %v", p.Changes)
	assert.Zero(t, p.Changes.Refused)
	assert.EqualValues(t, len(p.Changes.Objects), p.Changes.ObjectCount)
	assert.Positive(t, l.asked(since), "each object gets a dry run")

	l.preflight(configv1.Update{Image: unsigned.ByDigest()})
	r = l.awaitRollout("the preflight of an unsigned image", preflightEnded(api.PreflightFailed, string(unsigned.Digest)))
	p = r.Status.Preflight
	assert.Equal(t, api.ReasonRetrievePayload, p.Step)
	assert.Contains(t, p.Message, "The update cannot be verified")
	assert.Empty(t, p.VerifiedBy)
	assert.Nil(t, p.Changes)
	assert.Zero(t, l.registry.Count("GET", "/v4.2.2/blobs/"), "nothing of the image is read")

	l.preflight(configv1.Update{Image: old.ByDigest()})
	r = l.awaitRollout("the preflight of an older release", preflightEnded(api.PreflightObjected, "4.1.0"))
	p = r.Status.Preflight
	require.NotEmpty(t, p.Preconditions)
	assert.Equal(t, "ClusterVersionRollback", p.Preconditions[0].Name)
	assert.True(t, p.Preconditions[0].Blocking)
	assert.NotNil(t, p.Changes, "the preflight completes")

	cv := l.await("the spec to be observed", time.Minute, at("4.2.0"))
	assert.Equal(t, before.Status.History, cv.Status.History)
	assert.Equal(t, before.Status.Desired, cv.Status.Desired)
	assert.Equal(t, condition(before, api.ReleaseAccepted), condition(cv, api.ReleaseAccepted), "the condition describes the running release")
	assert.Empty(t, l.stored(since))
	reported := map[string]int{}
	for _, reason := range l.story() {
		if strings.HasPrefix(reason, "Preflight") {
			reported[reason]++
		}
	}
	assert.Equal(t, []string{api.EventPreflightFailed, api.EventPreflightObjected, api.EventPreflightPassed, api.EventPreflightStarted},
		slices.Sorted(maps.Keys(reported)))
	assert.Equal(t, 3, reported[api.EventPreflightStarted])

	// An update under way continues to its end.
	operators.kill()
	l.update(configv1.Update{Image: good.ByDigest()})
	l.await("4.2.1 to begin", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return cv.Status.Desired.Version == "4.2.1" && strings.Contains(condition(cv, configv1.OperatorProgressing), "waiting on ")
	})
	next := l.release("4.2.3", l.signer)
	l.preflight(configv1.Update{Image: next.ByDigest()})
	l.awaitRollout("the preflight of 4.2.3", preflightEnded(api.PreflightPassed, "4.2.3"))
	l.start("operators")
	cv = l.await("4.2.1 to complete anyway", time.Minute, at("4.2.1"))
	assert.Equal(t, []string{"4.2.1", "4.2.0"}, versions(cv))

	// Without the mode it is a normal update.
	l.update(configv1.Update{Image: next.ByDigest()})
	l.await("4.2.3", time.Minute, at("4.2.3"))
	// Overrides decide what a preflight looks at.
	changed := func(count int32) func(*api.ReleaseRollout) bool {
		return func(r *api.ReleaseRollout) bool {
			return preflightEnded(api.PreflightPassed, "4.2.4")(r) && r.Status.Preflight.Changes.Changed == count
		}
	}
	l.edit(func(spec *configv1.ClusterVersionSpec) {
		spec.Overrides = []configv1.ComponentOverride{{Kind: "ConfigMap", Namespace: "tiny-a", Name: "settings", Unmanaged: true}}
	})
	l.preflight(configv1.Update{Image: l.release("4.2.4", l.signer).ByDigest()})
	l.awaitRollout("the preflight without the object of the override", changed(3))
	l.edit(func(spec *configv1.ClusterVersionSpec) { spec.Overrides = nil })
	l.awaitRollout("the preflight with all objects", changed(4))
}
