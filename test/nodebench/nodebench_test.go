//go:build linux

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
	"github.com/cluster-version/cvo/test/env"
)

// TestSmallCluster measures a small cluster, and checks the figures that do not depend on the speed of the machine.
func TestSmallCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("this test needs a control plane")
	}
	ctrl.SetLogger(logr.Discard())
	o, err := parseFlags(strings.Fields("--nodes 20 --pods 200 --small 0 --replicas 10 --allowed 3 --max-unavailable 5 --idle 2s --startup 100ms --termination 100ms --reboot 300ms"))
	require.NoError(t, err)
	report, err := run(t.Context(), o, t.Output())
	require.NoError(t, err)
	require.NoError(t, report.writeText(t.Output()))
	m := report.Measurements[0]
	for _, f := range figures() {
		if !f.isTimed {
			assert.False(t, f.isMissed(m), "%s: "+f.format, f.name, f.value(m))
		}
	}
	assert.Equal(t, 200, m.Pods)
	assert.Equal(t, 5, m.Slots)
	assert.Equal(t, 20, m.QuickDone.Count)
	assert.Equal(t, 15, m.SlotFilled.Count+m.SlotsWithheld)
	assert.Positive(t, m.ControllerMiB)
	assert.Less(t, m.LowestMargin, o.allowed, "the judge has seen evictions")
	assert.GreaterOrEqual(t, m.Roll.Evictions, 200, "every node is drained")
	assert.Zero(t, m.Quick.Evictions)
	assert.InDelta(t, 1, m.Quick.Reads, 0)
	assert.InDelta(t, 2, m.Roll.Reads, 0.5, "the config, and the pods before the end of the drain")
	assert.GreaterOrEqual(t, m.Roll.Writes, 10., "the audit log has the writes of controller and daemons")
}

func podOf(app, uid string, isReady bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Labels: map[string]string{appLabel: app}}}
	if isReady {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return p
}

func TestJudgeFindsViolatedBudgets(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	j := newJudge(3, 1)
	j.observe(at, apiwatch.Added, podOf("", "other", true))
	for i := range 3 {
		j.observe(at, apiwatch.Added, podOf("web", fmt.Sprint(i), false))
	}
	assert.Zero(t, j.complete())
	for i := range 3 {
		j.observe(at, apiwatch.Modified, podOf("web", fmt.Sprint(i), true))
		j.observe(at, apiwatch.Modified, podOf("web", fmt.Sprint(i), true))
	}
	assert.Equal(t, 1, j.complete())
	terminating := podOf("web", "0", true)
	terminating.DeletionTimestamp = &metav1.Time{Time: at}
	j.observe(at, apiwatch.Modified, terminating)
	j.observe(at, apiwatch.Deleted, terminating)
	assert.Zero(t, j.lowest)
	assert.Empty(t, j.violations)

	j.observe(at, apiwatch.Modified, podOf("web", "1", false))
	assert.Equal(t, []string{"2026-01-02T03:04:05Z: web has 1 healthy pods, its budget needs 2"}, j.violations)
	j.observe(at, apiwatch.Modified, podOf("web", "1", true))
	j.observe(at, apiwatch.Deleted, podOf("web", "2", true))
	assert.Len(t, j.violations, 2)
	assert.Equal(t, -1, j.lowest)
}

// rollout returns the changes of a pool with three nodes and one slot; n3 gets its slot late. Times are in seconds.
func rollout() []change {
	at := func(seconds int, node, desired, current, state string, isCordoned bool) change {
		return change{nodeState{node, desired, current, state, isCordoned}, time.Unix(int64(seconds), 0)}
	}
	return []change{
		at(0, "n1", "old", "old", api.NodeDone, false), // a former state
		at(10, "n1", "new", "old", api.NodeDone, false),
		at(11, "n1", "new", "old", api.NodeDone, true),
		at(12, "n1", "new", "new", api.NodeDone, true),
		at(13, "n1", "new", "new", api.NodeDone, false),
		at(13, "n2", "new", "old", api.NodeDone, false),
		at(14, "n2", "new", "old", api.NodeDone, true),
		at(20, "n2", "new", "new", api.NodeDone, false),
		at(27, "n3", "new", "old", api.NodeDone, true),
		at(28, "n3", "new", "new", api.NodeDone, false),
	}
}

func TestDurationsBeginWithTheDesiredConfig(t *testing.T) {
	assert.Equal(t, []time.Duration{3 * time.Second, 7 * time.Second, time.Second}, durations(rollout(), "new"))
}

func TestSlotsAreFreeUntilTheNextCordon(t *testing.T) {
	gaps, withheld, most := slotGaps(rollout(), nil, "new", 1)
	assert.Equal(t, []time.Duration{time.Second, 7 * time.Second}, gaps)
	assert.Zero(t, withheld)
	assert.Equal(t, 1, most)
	gaps, _, _ = slotGaps(rollout(), nil, "new", 2)
	assert.Equal(t, []time.Duration{14 * time.Second}, gaps, "one of the first two slots is filled late")

	waiting := &mcfgv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: api.WorkerPool}}
	waiting.Status.Conditions = []mcfgv1.MachineConfigPoolCondition{{Type: pool.NodesWaiting, Status: corev1.ConditionTrue, Message: "a budget"}}
	line := newTimeline()
	line.observePool(time.Unix(22, 0), waiting)
	line.observePool(time.Unix(23, 0), waiting)
	line.observePool(time.Unix(25, 0), &mcfgv1.MachineConfigPool{ObjectMeta: waiting.ObjectMeta})
	gaps, withheld, _ = slotGaps(rollout(), line.waits, "new", 1)
	assert.Equal(t, []time.Duration{time.Second}, gaps)
	assert.Equal(t, 1, withheld)
	line.waits[0].ended = time.Time{}
	_, withheld, _ = slotGaps(rollout(), line.waits, "new", 1)
	assert.Equal(t, 1, withheld, "the pool still waits")
}

func TestLatenciesArePercentiles(t *testing.T) {
	var list []time.Duration
	for i := range 200 {
		list = append(list, time.Duration(200-i)*time.Second)
	}
	assert.Equal(t, Latencies{Count: 200, P50: 100, P99: 198, Max: 200}, latencies(list))
	assert.Equal(t, Latencies{Count: 1, P50: 2, P99: 2, Max: 2}, latencies([]time.Duration{2 * time.Second}))
	assert.Zero(t, latencies(nil))
}

func TestRequestsOfTheStageAreCounted(t *testing.T) {
	begun := time.Unix(100, 0)
	request := func(agent, verb, resource, subresource, name string, code int) env.AuditEvent {
		return env.AuditEvent{
			Received: begun, UserAgent: agent, Verb: verb, Code: code, Object: env.AuditObject{Resource: resource, Subresource: subresource, Name: name},
		}
	}
	late := request("cvo-node-daemon/x", "patch", "nodes", "", "n1", 200)
	late.Received = begun.Add(time.Hour)
	r := countUpdate([]env.AuditEvent{
		request("cvo-node-daemon/x", "patch", "nodes", "", "n1", 200),
		request("cvo-node-daemon/x", "patch", "machineconfignodes", "status", "n1", 200),
		request("cvo-node-daemon/x", "get", "machineconfigs", "", "rendered", 200),
		request("cvo-node-daemon/x", "get", "", "", "", 200),
		request("cvo-node-daemon/x", "watch", "nodes", "", "n1", 200),
		request("cvo-node-controller/x", "patch", "machineconfigpools", "status", "worker", 200),
		request("cvo-node-controller/x", "patch", "nodes", "", "n2", 409),
		request("cvo-node-controller/x", "create", "pods", "eviction", "p", 201),
		request("cvo-node-controller/x", "create", "pods", "eviction", "p", 429),
		request("cvo-node-controller/x", "create", "events", "", "e", 201),
		request("cvo-node-controller/x", "update", "leases", "", "l", 200),
		request("kwok", "patch", "nodes", "status", "n1", 200),
		late,
	}, phase{begun, begun.Add(time.Minute)}, 2)
	byKind := r.ByKind
	r.ByKind = nil
	assert.Equal(t, Requests{Writes: 1.5, MostWrites: 2, Rejected: 0.5, Reads: 1, Evictions: 1, Refused: 1, Events: 1}, r)
	assert.Equal(t, 1, byKind["daemon patch machineconfignodes/status"])
	assert.Equal(t, 2, byKind["controller create pods/eviction"])
	assert.NotContains(t, byKind, "controller update leases")
}

func TestMissedBudgetsFail(t *testing.T) {
	r := &Report{}
	r.add(Measurement{Nodes: 5})
	require.NoError(t, r.err())
	r.add(Measurement{Nodes: 50, ControllerMiB: 301, Violations: []string{"app-1 has 2"}, Idle: map[string]int{"daemon get nodes": 2}})
	require.EqualError(t, r.err(), `3 figures miss their budgets:
  50 nodes: idle: requests besides watches and the Lease: 2 instead of 0
  50 nodes: violated budgets of pods: 1 instead of 0
  50 nodes: peak memory of the controller: 301 MiB instead of 300 MiB`)
	var out strings.Builder
	require.NoError(t, r.writeText(&out))
	for _, want := range []string{"301 MiB (missed)", "app-1 has 2", "2 daemon get nodes", "50 nodes"} {
		assert.Contains(t, out.String(), want)
	}
}

func TestInvalidFlagsAreRejected(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"all", `unexpected argument "all": nodebench takes only flags`},
		{"-o yaml", `-o "yaml": use text or json`},
		{"--nodes 0", "--nodes, --replicas and --allowed must be at least 1, and --small not negative"},
		{"--pods 10", "--pods is 10: set at least the 20 of one ReplicaSet"},
	} {
		_, err := parseFlags(strings.Fields(tt.args))
		require.EqualError(t, err, tt.want)
	}
	assert.Equal(t, "3", quoted("3"))
	assert.Equal(t, `"10%"`, quoted("10%"))
}
