package pool_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

func condition(t *testing.T, s mcfgv1.MachineConfigPoolStatus, kind mcfgv1.MachineConfigPoolConditionType) mcfgv1.MachineConfigPoolCondition {
	t.Helper()
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	require.Fail(t, "no condition "+string(kind))
	return mcfgv1.MachineConfigPoolCondition{}
}

func TestStatusCountsNodes(t *testing.T) {
	for _, tt := range []struct {
		name, nodes  string
		paused       bool
		waitForReady bool
		counts       string // machines, updated, ready, unavailable, degraded
		conditions   string // Updated, Updating, Degraded, NodesUnavailable
	}{
		{"updating before the first node", "a:v0→v0 b:v0→v0 c:v0→v0", false, true, "3/0/0/0/0", "False True False False"},
		{"updating with one node in progress", "a:v0→v1 b:v0→v0 c:v0→v0", false, true, "3/0/0/1/0", "False True False False"},
		{"not updating while paused", "a:v0→v1 b:v0→v0 c:v0→v0", true, true, "3/0/0/1/0", "False False False False"},
		{"degraded by a failed node that is not ready", "a:v0→v1/Degraded! b:v0→v0 c:v0→v0", false, true, "3/0/0/1/1", "False True True False"},
		{"names an updated node that is not ready", "a:v1→v1! b:v0→v0 c:v0→v0", false, true, "3/1/0/1/0", "False True False True"},
		{"updating until the last node", "a:v1→v1 b:v0→v1 c:v0→v1", false, true, "3/1/1/2/0", "False True False False"},
		{"updated with all nodes", "a:v1→v1 b:v1→v1 c:v1→v1", false, true, "3/3/3/0/0", "True False False False"},
		{"updating while a node is cordoned, as in OpenShift", "a:v1→v1 b:v1→v1 c:v1→v1^", false, true, "3/3/2/1/0", "False True False True"},
		{"updated although a node is cordoned", "a:v1→v1 b:v1→v1 c:v1→v1^", false, false, "3/3/2/1/0", "True False False True"},
		{"updated without nodes", "", false, true, "0/0/0/0/0", "True False False False"},
		{"degraded by a failed node that is ready", "a:v0→v1/Degraded b:v0→v0 c:v0→v0", false, true, "3/0/0/0/1", "False True True False"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := poolAt("v1")
			p.Spec.Paused = tt.paused
			p.Status.Configuration.Name = "v0"

			s := pool.Status(p, parseNodes(t, tt.nodes), pool.StatusOptions{WaitForReady: tt.waitForReady}, epoch)

			assert.Equal(t, tt.counts, fmt.Sprintf("%d/%d/%d/%d/%d", s.MachineCount, s.UpdatedMachineCount, s.ReadyMachineCount,
				s.UnavailableMachineCount, s.DegradedMachineCount))
			updated := condition(t, s, mcfgv1.MachineConfigPoolUpdated)
			assert.Equal(t, tt.conditions, fmt.Sprint(updated.Status, " ", condition(t, s, mcfgv1.MachineConfigPoolUpdating).Status, " ",
				condition(t, s, mcfgv1.MachineConfigPoolDegraded).Status, " ", condition(t, s, pool.NodesUnavailable).Status))
			want := "v0"
			if updated.Status == corev1.ConditionTrue {
				want = "v1"
			}
			assert.Equal(t, want, s.Configuration.Name, "the config of the last complete rollout")
			assert.EqualValues(t, 3, s.ObservedGeneration)
		})
	}
}

// TestStatusKeepsWhatIsNotKnown has a pool whose selector becomes invalid during an update.
func TestStatusKeepsWhatIsNotKnown(t *testing.T) {
	p := poolAt("v1")
	p.Status.Configuration.Name = "v0"
	p.Status = pool.Status(p, parseNodes(t, "a:v0→v1/Degraded b:v1→v1^ c:v1→v1"), pool.StatusOptions{}, epoch)
	before := p.Status
	unknown := pool.StatusOptions{NodesUnknown: true, SpecError: "spec.nodeSelector is invalid"}

	p.Status = pool.Status(p, nil, unknown, epoch)

	assert.Equal(t, "v0", p.Status.Configuration.Name)
	for _, s := range []*mcfgv1.MachineConfigPoolStatus{&before, &p.Status} {
		assert.Equal(t, "3/2/1/1/1", fmt.Sprintf("%d/%d/%d/%d/%d", s.MachineCount, s.UpdatedMachineCount, s.ReadyMachineCount,
			s.UnavailableMachineCount, s.DegradedMachineCount))
	}
	for _, kind := range []mcfgv1.MachineConfigPoolConditionType{mcfgv1.MachineConfigPoolNodeDegraded, pool.NodesUnavailable} {
		assert.Equal(t, condition(t, before, kind), condition(t, p.Status, kind))
	}
	for _, kind := range []mcfgv1.MachineConfigPoolConditionType{mcfgv1.MachineConfigPoolUpdated, mcfgv1.MachineConfigPoolUpdating} {
		assert.Equal(t, corev1.ConditionFalse, condition(t, p.Status, kind).Status)
	}
	assert.Contains(t, pool.Message(p, mcfgv1.MachineConfigPoolDegraded), "spec.nodeSelector is invalid; Node a is reporting")
	first := pool.Status(poolAt("v1"), nil, unknown, epoch)
	assert.Equal(t, "spec.nodeSelector is invalid", condition(t, first, mcfgv1.MachineConfigPoolDegraded).Message)
	assert.Empty(t, first.Configuration.Name)
}

func TestStatusExplainsFailures(t *testing.T) {
	p := poolAt("v1")
	nodes := parseNodes(t, "a:v0→v1/Degraded b:v1→v1^")
	nodes[0].Annotations[api.NodeReasonAnnotation] = "no space left on device"
	render := "MachineConfig 50-shop: spec.config.storage.files[0].path: invalid"

	s := pool.Status(p, nodes, pool.StatusOptions{RenderError: render}, epoch)

	c := condition(t, s, mcfgv1.MachineConfigPoolNodeDegraded)
	assert.Equal(t, "1 nodes are reporting degraded status on sync", c.Reason)
	assert.Equal(t, `Node a is reporting: "no space left on device"`, c.Message)
	assert.Equal(t, c.Message, condition(t, s, mcfgv1.MachineConfigPoolDegraded).Message)
	assert.Equal(t, render, condition(t, s, mcfgv1.MachineConfigPoolRenderDegraded).Message)
	assert.Equal(t, "Cordoned or not ready: b", condition(t, s, pool.NodesUnavailable).Message)
	assert.Equal(t, "All nodes are updating to MachineConfig v1", condition(t, s, mcfgv1.MachineConfigPoolUpdating).Message)

	s = pool.Status(p, nodes, pool.StatusOptions{SpecError: "spec.maxUnavailable is wrong"}, epoch)
	assert.Equal(t, `spec.maxUnavailable is wrong; Node a is reporting: "no space left on device"`, condition(t, s, mcfgv1.MachineConfigPoolDegraded).Message)
	s = pool.Status(p, nil, pool.StatusOptions{SpecError: "spec.maxUnavailable is wrong"}, epoch)
	assert.Equal(t, corev1.ConditionTrue, condition(t, s, mcfgv1.MachineConfigPoolDegraded).Status)
	assert.Equal(t, "spec.maxUnavailable is wrong", condition(t, s, mcfgv1.MachineConfigPoolDegraded).Message)
}

func TestStatusNamesAtMostTenUnavailableNodes(t *testing.T) {
	var nodes strings.Builder
	for i := range 12 {
		fmt.Fprintf(&nodes, "n%02d:v1→v1^ ", i)
	}

	s := pool.Status(poolAt("v1"), parseNodes(t, strings.TrimSpace(nodes.String())), pool.StatusOptions{}, epoch)

	assert.Equal(t, "Cordoned or not ready: n00, n01, n02, n03, n04, n05, n06, n07, n08, n09 and 2 more", condition(t, s, pool.NodesUnavailable).Message)
}

func TestTransitionTimesChangeOnlyWithTheStatus(t *testing.T) {
	p := poolAt("v1")
	p.Status = pool.Status(p, parseNodes(t, "a:v0→v1"), pool.StatusOptions{}, epoch)
	later := epoch.Add(time.Hour)

	s := pool.Status(p, parseNodes(t, "a:v0→v1"), pool.StatusOptions{}, later)
	assert.Equal(t, p.Status, s)

	s = pool.Status(p, parseNodes(t, "a:v1→v1"), pool.StatusOptions{}, later)
	assert.Equal(t, later, condition(t, s, mcfgv1.MachineConfigPoolUpdated).LastTransitionTime.Time)
	assert.Equal(t, epoch, condition(t, s, mcfgv1.MachineConfigPoolRenderDegraded).LastTransitionTime.Time)
}
