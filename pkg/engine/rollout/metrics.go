package rollout

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cluster-version/cvo/pkg/engine/report"
)

// Metrics contains the metrics of rollouts. Label values come from closed sets, or from the manifests of accepted releases.
type Metrics struct {
	drift    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	failures *prometheus.GaugeVec
}

// NewMetrics registers the metrics of rollouts.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		drift: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cvo_apply_drift_total",
			Help: "Repairs of objects that differed from their manifest, by API group, kind and reason.",
		}, []string{"group", "kind", "reason"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "cvo_apply_duration_seconds",
			Help: "Time to make one object match its manifest, including all requests, by result.",
			// The buckets range from an immediate response to the longest request timeout.
			Buckets: prometheus.ExponentialBuckets(0.005, 3, 9),
		}, []string{"result"}),
		// This gauge only grows. Existing dashboards expect this name and type.
		failures: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cluster_operator_payload_errors",
			Help: "Report the number of errors encountered applying the payload.",
		}, []string{"version"}),
	}
	for _, c := range []prometheus.Collector{m.drift, m.duration, m.failures} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) repaired(r report.Repaired) {
	m.drift.WithLabelValues(r.ID.Group, r.ID.Kind, string(r.Reason)).Inc()
}

// applied records an attempt to make an object match its manifest.
func (m *Metrics) applied(result report.Result, took time.Duration) {
	m.duration.WithLabelValues(string(result)).Observe(took.Seconds())
}

// failed records a failed attempt.
func (m *Metrics) failed(version string) { m.failures.WithLabelValues(version).Inc() }
