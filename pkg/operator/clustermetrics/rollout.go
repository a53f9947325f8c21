package clustermetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/release"
)

// rollout adds the metrics of the current rollout.
func (o observation) rollout(desc map[string]*prometheus.Desc, s *series) {
	p := o.measured.Progress
	if p == nil {
		return
	}
	done, pending := float64(p.Done), float64(p.Total-p.Done)
	s.gauge(desc[metricPayload], done, p.Release.Version, "applied")
	s.gauge(desc[metricPayload], pending, p.Release.Version, "pending")
	s.gauge(desc[metricManifests], done, "settled")
	s.gauge(desc[metricManifests], pending, "pending")
	if open := p.FirstOpen(); open >= 0 {
		s.gauge(desc[metricRunlevel], float64(open))
	}
	for _, mode := range []release.Mode{release.Initializing, release.Updating, release.Reconciling} {
		s.gauge(desc[metricMode], boolean(p.Mode == mode), string(mode))
	}
	s.gauge(desc[metricComplete], boolean(p.Complete))
	s.gauge(desc[metricPaused], boolean(p.Paused != nil))
	if e := p.Estimate; e != nil {
		s.gauge(desc[metricRemaining], e.Low.Seconds(), "low")
		s.gauge(desc[metricRemaining], e.High.Seconds(), "high")
	}
	heldBack := 0
	for _, problem := range p.Problems {
		if problem.Reason == api.ReasonFight {
			heldBack++
		}
		if p.Mode != release.Reconciling && problem.IsClusterOperator() && problem.State != gate.Settled && !problem.Since.IsZero() {
			s.gauge(desc[metricGateWaiting], max(o.now.Sub(problem.Since).Seconds(), 0), problem.ID.Name)
		}
	}
	s.gauge(desc[metricHeldBack], float64(heldBack))
}
