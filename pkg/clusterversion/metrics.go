package clusterversion

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/release"
	updategraph "github.com/cluster-version/cvo/pkg/update/graph"
)

// Metrics counts the results of acceptances and of requests to the update service.
type Metrics struct{ acceptances, fetches *prometheus.CounterVec }

// Results of an acceptance, used as label values.
const (
	resultAccepted = "accepted"
	resultRefused  = "refused"
)

// resultRetrieved is the result of a request that the update service answered. The other results are the reasons of updategraph.Error.
const resultRetrieved = "retrieved"

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{acceptances: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cvo_clusterversion_acceptances_total",
		Help: "Attempts to accept a release, by last step and result.",
	}, []string{"step", "result"})}
	m.fetches = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cvo_updategraph_fetches_total",
		Help: "Requests to the update service, by result: retrieved, or the reason of the failure.",
	}, []string{"result"})
	if err := registry.Register(m.acceptances); err != nil {
		return nil, err
	}
	return m, registry.Register(m.fetches)
}

// fetched counts a request to the update service. A nil Metrics counts nothing.
func (m *Metrics) fetched(err error) {
	if m == nil {
		return
	}
	result := resultRetrieved
	if failure, ok := errors.AsType[*updategraph.Error](err); ok {
		result = failure.Reason
	} else if err != nil {
		result = updategraph.ReasonUnknown
	}
	m.fetches.WithLabelValues(result).Inc()
}

// answered counts a completed attempt to accept a release. A nil Metrics counts nothing.
func (m *Metrics) answered(a accept.Acceptance) {
	switch {
	case m == nil:
	case a.Done:
		m.acceptances.WithLabelValues(a.Step, resultAccepted).Inc()
	case a.Err != nil:
		m.acceptances.WithLabelValues(a.Step, resultRefused).Inc()
	}
}

// Measured holds values for metrics that are not in the ClusterVersion.
type Measured struct {
	// Running is the release that is rolled out, with the image in status. Created is the time when it was assembled. Both are zero before
	// the first acceptance.
	Running release.Release
	Created time.Time
	// Progress is the progress of the rollout under way, nil if there is none.
	Progress *report.Progress
	// Retrieved is the time when updates were last retrieved or the query changed; zero for never. UpdateService is the configured service
	// that overrides the ClusterVersion's upstream, empty for none.
	Retrieved     time.Time
	UpdateService string
}

// Measured returns the current values without blocking on I/O.
func (c *Reconciler) Measured() Measured {
	m := Measured{Progress: c.control.Estimated(c.underway.snapshot().progress), Retrieved: c.updates.Retrieved(), UpdateService: c.options.Updates.Service}
	if a := c.acceptance.snapshot().Accepted; a != nil {
		m.Running, m.Created = a.Payload.Release, a.Payload.Created
		m.Running.Image = a.Image()
	}
	return m
}
