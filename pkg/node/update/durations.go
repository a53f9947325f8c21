package update

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

const (
	// minSamples is the number of updates from which the duration of the next one is known well enough.
	minSamples = 5
	// maxSamples is the number of updates that are remembered of each pool. The definition of NodeRolloutPolicies has the same limit.
	maxSamples = 20
	// durationStep is the precision of a duration. A coarse one changes rarely, and each change is a write.
	durationStep = 30 * time.Second
)

// durations measures the updates of nodes by the clock of this process, from the assignment of a config to the report of the daemon. The status of a
// NodeRolloutPolicy keeps the results for the next process. The zero value has none.
type durations struct {
	// begun has the nodes whose update is in progress, by name.
	begun map[string]begun
	// samples has the durations of updates that are done, by pool, the newest last.
	samples map[string][]time.Duration
	// restored has the pools whose policy has been read.
	restored map[string]bool
}

// restore adds the results of former processes to those of a pool, once.
func (d *durations) restore(pool string, seconds []int32) {
	if d.restored[pool] {
		return
	}
	own := d.samples[pool]
	delete(d.samples, pool)
	for _, s := range seconds {
		d.add(pool, time.Duration(s)*time.Second)
	}
	for _, took := range own {
		d.add(pool, took)
	}
	if d.restored == nil {
		d.restored = map[string]bool{}
	}
	d.restored[pool] = true
}

// seconds returns the results of a pool for its policy.
func (d *durations) seconds(pool string) []int32 {
	var seconds []int32
	for _, took := range d.samples[pool] {
		seconds = append(seconds, int32(took/time.Second))
	}
	return seconds
}

type begun struct {
	config string
	at     time.Time
}

// begin records that a node gets a config. A node that gets another config during its update continues. A node that joins, or returns to the config
// that it runs, has nothing to do and is not measured.
func (d *durations) begin(n *corev1.Node, config string, now time.Time) {
	if current := n.Annotations[api.CurrentConfigAnnotation]; current == "" || current == config {
		return
	}
	if d.begun == nil {
		d.begun = map[string]begun{}
	}
	if before, ok := d.begun[n.Name]; ok {
		now = before.at
	}
	d.begun[n.Name] = begun{config, now}
}

// observe records the nodes that are done. It forgets nodes that failed, have another target or do not exist anymore.
func (d *durations) observe(rollouts []*rollout, now time.Time) {
	if len(d.begun) == 0 {
		return
	}
	pending := map[string]begun{}
	for _, o := range rollouts {
		for _, n := range o.nodes {
			b, ok := d.begun[n.Name]
			switch {
			case !ok || n.Annotations[api.DesiredConfigAnnotation] != b.config || pool.IsDegraded(n):
			case !pool.IsDone(n):
				pending[n.Name] = b
			default:
				d.add(o.pool.Name, now.Sub(b.at))
			}
		}
	}
	d.begun = pending
}

func (d *durations) add(pool string, took time.Duration) {
	if d.samples == nil {
		d.samples = map[string][]time.Duration{}
	}
	d.samples[pool] = append(d.samples[pool], took.Round(time.Second))
	d.samples[pool] = d.samples[pool][max(len(d.samples[pool])-maxSamples, 0):]
}

// of returns the time within which nine of ten updates of a pool were done, rounded up; 0 if too few are known.
func (d *durations) of(pool string) time.Duration {
	sorted := slices.Sorted(slices.Values(d.samples[pool]))
	if len(sorted) < minSamples {
		return 0
	}
	p90 := sorted[(len(sorted)*9+9)/10-1]
	return max((p90 + durationStep - 1).Truncate(durationStep), durationStep)
}
