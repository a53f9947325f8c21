package integration_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/endpoint"
)

// story returns the reasons of the events about the ClusterVersion in the order in which they were written. A runlevel event includes its
// runlevel.
func (l *testPlatform) story() (reported []string) {
	l.t.Helper()
	list, err := kubernetes.NewForConfigOrDie(l.env.Config("integration")).CoreV1().Events(api.OperatorNamespace).
		List(l.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=ClusterVersion"})
	require.NoError(l.t, err)
	slices.SortFunc(list.Items, func(a, b corev1.Event) int {
		order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
		require.NoError(l.t, err)
		return order
	})
	for _, e := range list.Items {
		assert.EqualValues(l.t, 1, e.Count, "%s: %s", e.Reason, e.Message)
		if e.Reason == api.EventRunlevelReached {
			about, _, _ := strings.Cut(e.Message, ",")
			e.Reason += strings.TrimPrefix(about, "Reached runlevel")
		}
		reported = append(reported, e.Reason)
	}
	return reported
}

// eventsUntil waits until the last event has a given reason, and returns the events after the first since ones.
func (l *testPlatform) eventsUntil(since int, until string) []string {
	l.t.Helper()
	var events []string
	require.Eventually(l.t, func() bool {
		events = l.story()
		return len(events) > since && events[len(events)-1] == until
	}, time.Minute, 50*time.Millisecond, "waiting for event %s, last %v", until, &events)
	return events[since:]
}

// testMetrics checks the metrics of the operator after an install and an update.
func (l *testPlatform) testMetrics(address string, next release.Image) {
	served, err := endpoint.Connect(l.t.Context(), l.env.Config("integration"), api.OperatorNamespace, api.ClusterVersionName, "https://"+address)
	require.NoError(l.t, err)
	defer served.Close()
	text, err := endpoint.Metrics(l.t.Context(), served)
	require.NoError(l.t, err)
	for _, series := range []string{
		`cluster_version{from_version="4.2.0",image="` + next.ByDigest() + `",type="completed",version="4.2.1"} `,
		`cluster_version{from_version="4.2.1",image="` + next.ByDigest() + `",type="current",version="4.2.1"} `,
		`cluster_operator_conditions{condition="Available",name="version",reason=""} 1`,
		`cluster_operator_up{name="tiny-a",`,
		`cluster_installer{invoker="",type="",version=""} 1`,
		`cluster_version_payload{type="pending",version="4.2.1"} 0`,
		`cvo_rollout_complete 1`,
		`cvo_rollout_mode{mode="Reconciling"} 1`,
		`cvo_clusterversion_acceptances_total{result="accepted",step="PayloadLoaded"} 2`,
		`cvo_verify_verifications_total{method="openpgp",result="verified"} 2`,
		`cvo_apply_duration_seconds_count{result="configured"} `,
	} {
		assert.Contains(l.t, string(text), "\n"+series)
	}
}

// TestEachEventIsEmittedOnce checks the events of a cluster: a process reports each step once and in order. A process that
// starts reports once more that it accepts the current release; in the middle of an update it may also repeat runlevels.
func TestEachEventIsEmittedOnce(t *testing.T) {
	t.Parallel()
	l := &testPlatform{platform: newPlatform(t), book: t, tiny: newTiny(t)}
	l.own = l.release("4.2.0", l.signer)
	next, stuck, after := l.release("4.2.1", l.signer), l.release("4.2.2", l.signer), l.release("4.2.3", l.signer)
	_, err := l.run("install", "--no-operator", "--release-image", l.own.ByDigest(), "--trust", l.trust)
	require.NoError(t, err)
	l.start("operators", "--fail", "tiny-b@4.2.2")
	address := freeAddress(t)
	l.cvo = l.operator(l.own.ByDigest(), "--listen", address)
	install := l.eventsUntil(0, api.EventUpdateCompleted)
	assert.Equal(t, []string{"RetrievePayload", "LoadPayload", "PayloadLoaded", "UpdateStarted", "UpdateCompleted"}, install)

	reported := len(install)
	l.update(configv1.Update{Image: next.ByDigest()})
	update := l.eventsUntil(reported, api.EventUpdateCompleted)
	steps := func(version string) []string {
		return []string{
			"RetrievePayload", "LoadPayload", "PreconditionsPassed", "PayloadLoaded", "UpdateStarted",
			"RunlevelReached 00 of " + version, "RunlevelReached 10 of " + version, "RunlevelReached 20 of " + version,
		}
	}
	assert.Equal(t, append(steps("4.2.1"), "UpdateCompleted"), update)
	reported += len(update)
	l.await("the cluster to be at 4.2.1", time.Minute, at("4.2.1"))

	l.testMetrics(address, next)

	l.handOver()
	l.logged(`"mode":"Reconciling"`)
	l.update(configv1.Update{Image: stuck.ByDigest()})
	begun := l.eventsUntil(reported, api.EventRolloutFailing)
	assert.Equal(t, slices.Concat(steps("4.2.1")[:4], steps("4.2.2")[:7], []string{"RolloutFailing"}), begun,
		"the new process accepts 4.2.1 again, and neither runlevel 20 nor the end is reached")
	reported += len(begun)

	l.restart()
	l.logged(`"mode":"Updating"`)
	l.await("the rollout to fail again", time.Minute, says(api.Failing, "True|ClusterOperatorNotAvailable|"))
	l.update(configv1.Update{Image: after.ByDigest()})
	end := l.eventsUntil(reported, api.EventUpdateCompleted)
	assert.Contains(t, end, "RolloutRecovered")
	end = slices.DeleteFunc(end, func(reason string) bool {
		return strings.HasPrefix(reason, "Rollout") || // one for each change of the status
			strings.HasSuffix(reason, " of 4.2.2")
	})
	assert.Equal(t, slices.Concat(steps("4.2.2")[:4], steps("4.2.3"), []string{"UpdateCompleted"}), end)
}
