package integration_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/test/env"
)

// rolloutDefinition is the path of the definition of ReleaseRollout.
const rolloutDefinition = "../../manifests/0000_00_cluster-version-operator_02_releaserollouts.crd.yaml"

// newTestPlatform installs 4.2.0 of the tiny platform on a new cluster that serves ReleaseRollout, and starts nothing else.
func newTestPlatform(t *testing.T) *testPlatform {
	t.Helper()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	l.create(rolloutDefinition)
	l.own = l.release("4.2.0", l.signer)
	_, err := l.run("install", "--no-operator", "--release-image", l.own.ByDigest(), "--trust", l.trust)
	require.NoError(t, err)
	l.cvo = l.operator(l.own.ByDigest())
	return l
}

// rollout returns the ReleaseRollout, nil if there is none.
func (l *testPlatform) rollout() *api.ReleaseRollout {
	l.t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(api.ReleaseRolloutVersion.WithKind(api.ReleaseRolloutKind))
	err := l.client.Get(l.t.Context(), client.ObjectKey{Name: "version"}, u)
	if client.IgnoreNotFound(err) == nil && err != nil {
		return nil
	}
	require.NoError(l.t, err)
	r := &api.ReleaseRollout{}
	require.NoError(l.t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, r))
	return r
}

// awaitRollout waits until the ReleaseRollout satisfies a condition and returns the object.
func (l *testPlatform) awaitRollout(what string, condition func(*api.ReleaseRollout) bool) *api.ReleaseRollout {
	l.t.Helper()
	var last *api.ReleaseRollout
	if !assert.Eventually(l.t, func() bool {
		last = l.rollout()
		return last != nil && condition(last)
	}, time.Minute, 50*time.Millisecond, what) {
		data, err := json.MarshalIndent(last, "", " ")
		require.NoError(l.t, err)
		require.FailNow(l.t, "waiting for "+what, "%s", data)
	}
	return last
}

// pausedAs returns the condition about the pause as status, reason and message.
func pausedAs(r *api.ReleaseRollout) string {
	c := meta.FindStatusCondition(r.Status.Conditions, api.RolloutPaused)
	if c == nil {
		return ""
	}
	return string(c.Status) + "|" + c.Reason + "|" + c.Message
}

// progresses returns a condition that holds when the message of Progressing ends with a suffix.
func progresses(suffix string) func(*configv1.ClusterVersion) bool {
	return func(cv *configv1.ClusterVersion) bool {
		return strings.HasSuffix(condition(cv, configv1.OperatorProgressing), suffix)
	}
}

// drift changes a field that a release sets and waits for the repair.
func (l *testPlatform) drift(component, version string) {
	l.t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind("ConfigMap")
	u.SetNamespace("tiny-" + component)
	u.SetName("settings")
	require.NoError(l.t, l.client.Patch(l.t.Context(), u, client.RawPatch(types.MergePatchType, []byte(`{"data":{"version":"0"}}`))))
	require.Eventually(l.t, func() bool {
		got, _ := l.settings(component)
		return got == version
	}, time.Minute, 20*time.Millisecond)
}

// TestPauseHoldsUpdates pauses updates of one cluster across a restart, other targets and a canceled request.
func TestPauseHoldsUpdates(t *testing.T) {
	t.Parallel()
	l := newTestPlatform(t)
	operators := l.start("operators")
	l.await("4.2.0 to complete", time.Minute, at("4.2.0"))
	assert.Nil(t, l.rollout(), "no object without a pause or a report")
	first, second := l.release("4.2.1", l.signer), l.release("4.2.2", l.signer)

	// Its operators report nothing, so the update is in runlevel 10 when it is paused.
	operators.kill()
	l.update(configv1.Update{Image: first.ByDigest()})
	l.await("4.2.1 to wait in runlevel 10", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return strings.Contains(condition(cv, configv1.OperatorProgressing), "Working towards 4.2.1") &&
			strings.Contains(condition(cv, configv1.OperatorProgressing), "waiting on ")
	})
	out, err := l.run("upgrade", "pause", "--reason", "closing", "--dry-run")
	require.NoError(t, err)
	assert.Contains(t, out, "(server dry run)")
	out, err = l.run("upgrade", "pause", "--reason", "closing")
	require.NoError(t, err)
	assert.Equal(t, "Updates are paused (closing); the update to 4.2.1 finishes its current runlevel and stops before the next one\n", out)
	out, err = l.run("upgrade", "pause")
	require.NoError(t, err)
	assert.Equal(t, "Updates are already paused (closing) (no change)\n", out)
	l.await("the update to pause", time.Minute, progresses(", pausing before runlevel 20"))
	r := l.awaitRollout("the condition to report the pause", func(r *api.ReleaseRollout) bool { return strings.HasPrefix(pausedAs(r), "False|Pausing|") })
	assert.Equal(t, "4.2.0", r.Status.Current.From)
	assert.Equal(t, "4.2.1", r.Status.Current.To)

	l.start("operators")
	cv := l.await("the pause at the boundary", time.Minute, progresses(", paused before runlevel 20"))
	assert.Regexp(t, `^True\|[^|]*\|Working towards 4\.2\.1: \d+ of \d+ done \(\d+% complete\), paused before runlevel 20$`, condition(cv, configv1.OperatorProgressing))
	r = l.awaitRollout("the condition to report the boundary", func(r *api.ReleaseRollout) bool {
		return meta.IsStatusConditionTrue(r.Status.Conditions, api.RolloutPaused)
	})
	assert.Equal(t, "True|BeforeRunlevel|The update to 4.2.1 is paused before runlevel 20: closing", pausedAs(r))
	require.NotNil(t, r.Status.Current.PausedBefore)
	assert.EqualValues(t, 20, *r.Status.Current.PausedBefore)
	l.drift("a", "4.2.1")
	version, _ := l.settings("b")
	assert.Equal(t, "4.2.0", version, "runlevel 20 has not started")

	since := meta.FindStatusCondition(r.Status.Conditions, api.RolloutPaused).LastTransitionTime
	l.handOver()
	l.logged("rollout started")
	l.drift("a", "4.2.1")
	version, _ = l.settings("b")
	assert.Equal(t, "4.2.0", version, "a restart does not resume")
	r = l.rollout()
	assert.Equal(t, "True|BeforeRunlevel|The update to 4.2.1 is paused before runlevel 20: closing", pausedAs(r))
	assert.Equal(t, since, meta.FindStatusCondition(r.Status.Conditions, api.RolloutPaused).LastTransitionTime)

	// Another target and a canceled request are accepted and wait too.
	l.update(configv1.Update{Image: second.ByDigest()})
	l.await("4.2.2 to be paused", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return condition(cv, configv1.OperatorProgressing) == "True||Working towards 4.2.2: paused before runlevel 00"
	})
	l.cancel()
	l.await("the rollback to be paused", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return condition(cv, configv1.OperatorProgressing) == "True||Working towards 4.2.0: paused before runlevel 00"
	})
	version, _ = l.settings("a")
	assert.Equal(t, "4.2.1", version, "neither has begun")

	asked := time.Now()
	out, err = l.run("upgrade", "resume")
	require.NoError(t, err)
	assert.Equal(t, "Updates are no longer paused; the update to 4.2.0 continues\n", out)
	l.await("the update to continue", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return !strings.Contains(condition(cv, configv1.OperatorProgressing), "paused")
	})
	t.Logf("resumed %s after the request, including the start of the command", time.Since(asked).Round(time.Millisecond))
	l.await("4.2.0", time.Minute, at("4.2.0"))
	out, err = l.run("upgrade", "resume", "-o", "json")
	require.NoError(t, err)
	assert.Contains(t, out, `"changed": false`)
	var reported []string
	for _, e := range l.story() {
		if e == api.EventRolloutPaused || e == api.EventRolloutResumed {
			reported = append(reported, e)
		}
	}
	assert.Equal(t, []string{api.EventRolloutPaused, api.EventRolloutPaused, api.EventRolloutPaused, api.EventRolloutResumed}, reported)
}

// TestRolloutHistoryProvidesTheEstimate completes two updates. The durations of the first provide the estimate for the second, until the
// second takes longer. At rest, the operator writes nothing.
func TestRolloutHistoryProvidesTheEstimate(t *testing.T) {
	t.Parallel()
	l := newTestPlatform(t)
	operators := l.start("operators", "--delay", "6s")
	l.await("4.2.0 to complete", time.Minute, at("4.2.0"))
	first, second := l.release("4.2.1", l.signer), l.release("4.2.2", l.signer)
	l.update(configv1.Update{Image: first.ByDigest()})
	l.await("4.2.1", time.Minute, at("4.2.1"))
	r := l.awaitRollout("4.2.1", func(r *api.ReleaseRollout) bool { return len(r.Status.History) == 1 && r.Status.Current == nil })
	assert.Equal(t, "4.2.0", r.Status.History[0].From)
	assert.Equal(t, "4.2.1", r.Status.History[0].To)
	levels := r.Status.History[0].Runlevels
	require.Len(t, levels, 3)
	assert.Equal(t, []int32{0, 10, 20}, []int32{levels[0].Runlevel, levels[1].Runlevel, levels[2].Runlevel})
	assert.EqualValues(t, 4, levels[1].Manifests)
	assert.Nil(t, r.Status.Estimate)

	operators.kill()
	l.update(configv1.Update{Image: second.ByDigest()})
	r = l.awaitRollout("an estimate", func(r *api.ReleaseRollout) bool {
		return r.Status.Estimate != nil && r.Status.Estimate.EarliestCompletion != nil
	})
	assert.Equal(t, "History", r.Status.Estimate.Basis)
	assert.EqualValues(t, 1, r.Status.Estimate.Rollouts)
	assert.False(t, r.Status.Estimate.LatestCompletion.Before(r.Status.Estimate.EarliestCompletion))
	l.awaitRollout("the estimate to end when it is in the past", func(r *api.ReleaseRollout) bool {
		return r.Status.Estimate == nil && r.Status.Current != nil
	})
	l.start("operators")
	l.await("4.2.2", time.Minute, at("4.2.2"))
	r = l.awaitRollout("4.2.2", func(r *api.ReleaseRollout) bool { return len(r.Status.History) == 2 && r.Status.Current == nil })
	assert.Equal(t, "4.2.2", r.Status.History[0].To)
	assert.False(t, r.Status.History[0].CompletedAt.Before(&r.Status.History[1].CompletedAt))

	// A restarted operator knows all this and does not write it again.
	before := r.ResourceVersion
	l.handOver()
	l.logged("rollout started")
	l.drift("a", "4.2.2")
	assert.Equal(t, before, l.rollout().ResourceVersion)

	// Deleting the object loses nothing.
	require.NoError(t, l.client.Delete(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": api.ReleaseRolloutVersion.String(), "kind": api.ReleaseRolloutKind, "metadata": map[string]any{"name": "version"},
	}}))
	l.awaitRollout("the object to be recreated", func(r *api.ReleaseRollout) bool { return len(r.Status.History) == 2 })
}

// TestPauseRequiresTheDefinition uses a cluster whose release does not contain ReleaseRollout. The cluster works as before and reports why
// it cannot be paused. With the definition it can be paused without a restart.
func TestPauseRequiresTheDefinition(t *testing.T) {
	t.Parallel()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	l.own = l.release("4.2.0", l.signer)
	l.install("4.2.0")
	_, err := l.run("upgrade", "pause")
	require.ErrorContains(t, err, "the cluster does not serve releaserollouts.cvo.cluster-version.github.io")

	l.create(rolloutDefinition)
	require.Eventually(t, func() bool { _, err = l.run("upgrade", "pause"); return err == nil }, time.Minute, 100*time.Millisecond)
	next := l.release("4.2.1", l.signer)
	l.awaitRollout("the condition to report that no update is running", func(r *api.ReleaseRollout) bool { return strings.HasPrefix(pausedAs(r), "False|NoUpdate|") })
	l.update(configv1.Update{Image: next.ByDigest()})
	l.await("4.2.1 to be paused", time.Minute, progresses("Working towards 4.2.1: paused before runlevel 00"))
	_, err = l.run("upgrade", "resume")
	require.NoError(t, err)
	l.await("4.2.1", time.Minute, at("4.2.1"))
}

// TestPauseDoesNotHoldNewCapabilities enables capabilities while updates are paused. Their manifests in a complete release are not an
// update, at any runlevel. During an update they wait with the rest of it.
func TestPauseDoesNotHoldNewCapabilities(t *testing.T) {
	t.Parallel()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	for level, capability := range map[string]string{"15": "Console", "30": "Insights", "40": "Storage"} {
		l.tiny.definitions["release-manifests/0000_"+level+"_optional_01.yaml"] = optional(strings.ToLower(capability), api.CapabilityAnnotation, capability)
	}
	l.create(rolloutDefinition)
	l.own = l.release("4.2.0", l.signer)
	_, err := l.run("install", "--no-operator", "--release-image", l.own.ByDigest(), "--trust", l.trust)
	require.NoError(t, err)
	enable := func(capabilities ...configv1.ClusterVersionCapability) {
		l.edit(func(spec *configv1.ClusterVersionSpec) {
			spec.Capabilities = &configv1.ClusterVersionCapabilitiesSpec{
				BaselineCapabilitySet: configv1.ClusterVersionCapabilitySetNone, AdditionalEnabledCapabilities: capabilities,
			}
		})
	}
	enabled := func(n int) func(*configv1.ClusterVersion) bool {
		return func(cv *configv1.ClusterVersion) bool { return len(cv.Status.Capabilities.EnabledCapabilities) == n }
	}
	enable()
	l.start("operators")
	l.cvo = l.operator(l.own.ByDigest())
	l.await("4.2.0 to complete", time.Minute, at("4.2.0"))

	_, err = l.run("upgrade", "pause")
	require.NoError(t, err)
	for n, capability := range []configv1.ClusterVersionCapability{"Console", "Insights"} {
		enable([]configv1.ClusterVersionCapability{"Console", "Insights"}[:n+1]...)
		l.gets(strings.ToLower(string(capability)))
		l.await(string(capability), time.Minute, func(cv *configv1.ClusterVersion) bool { return at("4.2.0")(cv) && enabled(n+1)(cv) })
	}
	l.awaitRollout("the condition to report that no update was running", func(r *api.ReleaseRollout) bool {
		return strings.HasPrefix(pausedAs(r), "False|NoUpdate|") && r.Status.Current == nil
	})

	l.update(configv1.Update{Image: l.release("4.2.1", l.signer).ByDigest()})
	l.await("4.2.1 to be paused", time.Minute, progresses("Working towards 4.2.1: paused before runlevel 00"))
	enable("Console", "Insights", "Storage")
	l.await("Storage to be part of the update", time.Minute, enabled(3))
	l.await("4.2.1 to stay paused", time.Minute, progresses("Working towards 4.2.1: paused before runlevel 00"))
	l.logged("rollout started")
	assert.False(t, l.has("storage"))
	version, _ := l.settings("a")
	assert.Equal(t, "4.2.0", version)
	_, err = l.run("upgrade", "resume")
	require.NoError(t, err)
	l.gets("storage")
	l.await("4.2.1", time.Minute, at("4.2.1"))
	paused := 0
	for _, e := range l.story() {
		if e == api.EventRolloutPaused {
			paused++
		}
	}
	assert.Equal(t, 1, paused, "the pause is reported once")
}

// TestReleaseRolloutRulesRejectInvalidSpecs checks the validation rules in the definition on the API server.
func TestReleaseRolloutRulesRejectInvalidSpecs(t *testing.T) {
	t.Parallel()
	p := &platform{t: t, env: env.New(t, env.Options{Audit: env.AuditNone})}
	var err error
	p.client, err = client.NewWithWatch(p.env.Config("integration"), client.Options{})
	require.NoError(t, err)
	p.create(rolloutDefinition)
	put := func(name string, spec map[string]any) error {
		u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}, "spec": spec}}
		u.SetGroupVersionKind(api.ReleaseRolloutVersion.WithKind(api.ReleaseRolloutKind))
		return p.client.Create(t.Context(), u)
	}
	require.Eventually(t, func() bool { return !meta.IsNoMatchError(put("warm", map[string]any{})) }, time.Minute, 100*time.Millisecond)
	for _, test := range []struct {
		name, object string
		spec         map[string]any
		want         string
	}{
		{"accepts a pause with a reason", "version", map[string]any{"paused": true, "reason": "closing"}, ""},
		{"accepts another name of a ClusterVersion", "mine", map[string]any{"paused": true}, ""},
		{"rejects a name that no ClusterVersion can have", "1.version", map[string]any{"paused": true}, "the name must be that of the ClusterVersion"},
		{"rejects a reason without a pause", "a", map[string]any{"reason": "closing"}, "reason requires paused"},
		{"rejects a reason when resumed", "b", map[string]any{"paused": false, "reason": "closing"}, "reason requires paused"},
		{"rejects a long reason", "c", map[string]any{"paused": true, "reason": strings.Repeat("x", 257)}, "Too long"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := put(test.object, test.spec)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(api.ReleaseRolloutVersion.WithKind(api.ReleaseRolloutKind))
	u.SetName("version")
	for _, test := range []struct{ status, want string }{
		{`{"estimate":{"remainingLow":"1s","remainingHigh":"2s","basis":"History"}}`, "estimate requires current"},
		{`{"current":{"to":"1","image":"i","mode":"Updating","startedAt":"2026-01-01T00:00:00Z"},"estimate":{"remainingLow":"1s","remainingHigh":"2s","basis":"History",` +
			`"earliestCompletion":"2026-01-01T00:00:02Z","latestCompletion":"2026-01-01T00:00:01Z"}}`, "must not be after"},
		{`{"preflight":{"image":"i","state":"Passed","step":"DryRun","startedAt":"2026-01-01T00:00:00Z"}}`, "set endedAt if and only if"},
		{`{"history":[{"to":"1","startedAt":"2026-01-02T00:00:00Z","completedAt":"2026-01-01T00:00:00Z"}]}`, "must not be before startedAt"},
	} {
		err := p.client.Status().Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(`{"status":`+test.status+`}`)))
		require.ErrorContains(t, err, test.want)
	}
}
