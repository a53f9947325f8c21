package rollout_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/ownership"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/observe"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/engine/rollout"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

func deployment(t *testing.T, place, name string) *manifest.Manifest {
	t.Helper()
	return parse(t, place, fmt.Sprintf("{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: ns, name: %s}}", name))
}

// runs sets the number of a Deployment's available pods.
func (c *cluster) runs(name string, available int32) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	d.Status = appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: available}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects[name] = d
}

// looking counts, by name, how often passes read the state of an object from its watch.
type looking struct {
	*cluster
	lock  sync.Mutex
	count map[string]int
}

func (l *looking) Look(ctx context.Context, m *manifest.Manifest, byName bool) observe.Look {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.count[m.Object.GetName()]++
	return l.cluster.Look(ctx, m, byName)
}

// podsOf stands in for the watches of pods.
type podsOf struct {
	followed []string
	findings map[string]report.PodFinding
}

func (p *podsOf) Follow(workloads []*manifest.Manifest) {
	p.followed = nil
	for _, m := range workloads {
		p.followed = append(p.followed, m.Object.GetName())
	}
}

func (p *podsOf) Find(id manifest.ID) report.PodFinding { return p.findings[id.Name] }

func TestInstallCompletesOnceWorkloadsRun(t *testing.T) {
	c := newCluster()
	plan := newPlan(t, release.Initializing,
		deployment(t, "10_a_01", "database"),
		parse(t, "10_a_02", "{apiVersion: batch/v1, kind: Job, metadata: {namespace: ns, name: migrate}}"),
		configMap(t, "10_a_03", "after"),
		deployment(t, "20_b_01", "web"),
		deployment(t, "30_c_01", "represented"), clusterOperator(t, "30_c_02", "c", "1.1.0"),
	)
	c.runs("database", 0)
	c.runs("web", 0)
	c.runs("represented", 0)
	c.finish("migrate")
	c.report("c", "True", "False", "1.1.0")
	watched := &podsOf{findings: map[string]report.PodFinding{"web": {Summary: "pod web-1: ImagePullBackOff", Text: "pod web-1 cannot pull its image"}}}
	executor := c.executor()
	executor.Pods = watched
	progress, settled, err := executor.Run(t.Context(), plan, rollout.Settled{})
	require.NoError(t, err)
	log := c.takeLog()
	for _, name := range []string{"database", "migrate", "after", "web", "represented", "c"} {
		assert.Contains(t, log, "apply "+name, "no workload delays another object")
	}
	assert.False(t, progress.Complete)
	assert.Equal(t, 4, progress.Done)
	assert.Equal(t, "database=WorkloadNotAvailable web=WorkloadNotAvailable", waitsFor(progress), "the third is represented by its ClusterOperator")
	assert.Equal(t, "Deployment ns/web has 1 of 1 replicas updated and 0 available; pod web-1 cannot pull its image", progress.Problems[1].Message)
	assert.Equal(t, "pod web-1: ImagePullBackOff", progress.Problems[1].Pod)
	assert.Equal(t, []string{"database", "web"}, watched.followed)

	c.runs("web", 1)
	progress, settled, err = executor.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.False(t, progress.Complete)
	assert.Equal(t, "database=WorkloadNotAvailable", waitsFor(progress))
	assert.Equal(t, []string{"database"}, watched.followed)

	c.runs("database", 1)
	progress, _, err = executor.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.True(t, progress.Complete)
	assert.Empty(t, watched.followed)
	assert.Empty(t, c.takeLog(), "nothing is applied again")
}

// TestInstallRepairsDriftWhileItWaits changes and deletes objects of an install after everything is applied and before it is complete.
func TestInstallRepairsDriftWhileItWaits(t *testing.T) {
	c := newCluster()
	plan := newPlan(t, release.Initializing, deployment(t, "10_a_01", "web"), configMap(t, "20_b_01", "settings"), configMap(t, "20_b_02", "more"))
	c.runs("web", 0)
	progress, settled := c.roll(t, plan, rollout.Settled{})
	assert.False(t, progress.Complete)
	c.takeLog()
	c.touch("settings", func(s *observe.State) { s.Fields, s.Writer = ownership.Hash{1}, "kubectl" })
	c.vanish("more")
	var repaired []string
	executor := c.executor()
	executor.Repaired = func(r report.Repaired) { repaired = append(repaired, r.ID.Name+" "+string(r.Reason)) }
	executor.Width = 1
	progress, settled, err := executor.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	slices.Sort(repaired)
	assert.Equal(t, []string{"more deleted", "settings changed"}, repaired)
	assert.False(t, progress.Complete)

	c.takeLog()
	c.vanish("settings")
	c.runs("web", 1)
	progress, _, err = executor.Run(t.Context(), plan, settled)
	require.NoError(t, err)
	assert.True(t, progress.Complete)
	assert.Equal(t, []string{"apply settings"}, c.takeLog())
}

// TestInstallUsesNoWatchesUntilEverythingIsApplied counts the states that passes read from watches.
func TestInstallUsesNoWatchesUntilEverythingIsApplied(t *testing.T) {
	c := newCluster()
	c.report("a", "True", "False", "1.1.0")
	seen := &looking{cluster: c, count: map[string]int{}}
	pass := func(plan *rollout.Plan, settled rollout.Settled) (report.Progress, rollout.Settled) {
		executor := c.executor()
		executor.Observer = seen
		progress, next, err := executor.Run(t.Context(), plan, settled)
		require.NoError(t, err)
		return progress, next
	}
	progress, _ := pass(newPlan(t, release.Initializing, configMap(t, "10_a_01", "x"), clusterOperator(t, "10_a_02", "a", "1.1.0")), rollout.Settled{})
	assert.True(t, progress.Complete)
	assert.Empty(t, seen.count, "an install that completes at once never reads them")

	plan := newPlan(t, release.Initializing, configMap(t, "10_a_01", "x"),
		parse(t, "10_a_02", "{apiVersion: batch/v1, kind: Job, metadata: {namespace: ns, name: migrate}}"), deployment(t, "10_a_03", "web"))
	c.runs("web", 0)
	progress, settled := pass(plan, rollout.Settled{})
	assert.Empty(t, seen.count, "the Job delays the Deployment")
	assert.Equal(t, gate.Waiting, progress.Problems[0].State)
	c.finish("migrate")
	progress, settled = pass(plan, settled)
	assert.Equal(t, map[string]int{"x": 1, "migrate": 1, "web": 1}, seen.count, "the same run starts the watches")
	assert.Equal(t, "web=WorkloadNotAvailable", waitsFor(progress))
	_, _ = pass(plan, settled)
	assert.Equal(t, map[string]int{"x": 2, "migrate": 2, "web": 2}, seen.count)
}

// TestInstallWaitsForTheEndOfADeletion installs while another client is still deleting a Namespace, for example of an earlier platform.
func TestInstallWaitsForTheEndOfADeletion(t *testing.T) {
	c := newCluster()
	c.answers["a"] = apply.Change{Action: apply.Applied, UID: "1", ResourceVersion: "1", Deleting: true}
	c.touch("a", func(s *observe.State) { s.UID, s.Deleting, s.Finalizers = "1", true, []string{"kubernetes"} })
	c.live["a"] = map[string]any{"status": map[string]any{"conditions": []any{
		map[string]any{"status": "True", "message": "Some resources are remaining"},
	}}}
	plan := newPlan(t, release.Initializing, parse(t, "10_a_01", "{apiVersion: v1, kind: Namespace, metadata: {name: a}}"))
	progress, settled := c.roll(t, plan, rollout.Settled{})
	assert.Equal(t, []string{"apply a"}, c.takeLog())
	for range 3 {
		progress, settled = c.roll(t, plan, settled)
		assert.Equal(t, "a="+api.ReasonDeleting, waitsFor(progress))
		assert.Contains(t, progress.Problems[0].Message, "waits for its finalizers kubernetes (Some resources are remaining)")
	}
	assert.Equal(t, []string{"read a"}, c.takeLog(), "passes send no requests while the Namespace does not change")
	c.touch("a", func(*observe.State) {})
	_, settled = c.roll(t, plan, settled)
	assert.Equal(t, []string{"read a"}, c.takeLog())

	c.vanish("a")
	delete(c.answers, "a")
	progress, _ = c.roll(t, plan, settled)
	assert.Equal(t, []string{"apply a"}, c.takeLog())
	assert.True(t, progress.Complete)
}
