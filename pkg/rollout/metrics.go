package rollout

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what rollouts do.
type Metrics struct{ drift *prometheus.CounterVec }

// NewMetrics registers the metrics of rollouts.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{drift: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cvo_apply_drift_total",
		Help: "Repairs of objects that differed from their manifest, by API group, kind, and in what way they differed.",
	}, []string{"group", "kind", "reason"})}
	return m, registry.Register(m.drift)
}

func (m *Metrics) repaired(r Repaired) {
	m.drift.WithLabelValues(r.ID.Group, r.ID.Kind, string(r.Reason)).Inc()
}
