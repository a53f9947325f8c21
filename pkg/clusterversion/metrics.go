package clusterversion

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
	"github.com/cluster-version/cvo/pkg/updategraph"
)

// Metrics counts what becomes of releases that the cluster is asked to run, and of questions which there are.
type Metrics struct{ acceptances, fetches *prometheus.CounterVec }

// Results of an acceptance, as a label.
const (
	resultAccepted = "accepted"
	resultRefused  = "refused"
)

// resultRetrieved is that of an update service that answered; other results are the reasons of updategraph.Error.
const resultRetrieved = "retrieved"

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{acceptances: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cvo_clusterversion_acceptances_total",
		Help: "Attempts to accept a release, by the step that the attempt ended with and by what it came to.",
	}, []string{"step", "result"})}
	m.fetches = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cvo_updategraph_fetches_total",
		Help: "Questions to the update service, by what they came to: retrieved, or the reason why not.",
	}, []string{"result"})
	if err := registry.Register(m.acceptances); err != nil {
		return nil, err
	}
	return m, registry.Register(m.fetches)
}

// fetched counts a question to the update service; nil counts nothing.
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

// answered counts an attempt that has come to an end; nil counts nothing.
func (m *Metrics) answered(a Acceptance) {
	switch {
	case m == nil:
	case a.Done:
		m.acceptances.WithLabelValues(a.Step, resultAccepted).Inc()
	case a.Err != nil:
		m.acceptances.WithLabelValues(a.Step, resultRefused).Inc()
	}
}

// Measured is what metrics are made of that the ClusterVersion does not say.
type Measured struct {
	// Running is the release that is rolled out, by the image that status names, and Created is when it was assembled;
	// empty and zero before the first was accepted.
	Running release.Release
	Created time.Time
	// Progress is that of the rollout under way, nil if there is none.
	Progress *rollout.Progress
	// Retrieved is when updates were last retrieved, or the question changed; zero for never. UpdateService is what the
	// process was told to ask in place of the ClusterVersion's upstream.
	Retrieved     time.Time
	UpdateService string
}

// Measured returns what there is to measure now. It never waits.
func (c *Reconciler) Measured() Measured {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := Measured{Progress: c.memory.progress, Retrieved: c.memory.updates.since, UpdateService: c.options.Updates.Service}
	if a := c.memory.accepted; a != nil {
		m.Running, m.Created = a.Payload.Release, a.Payload.Created
		m.Running.Image = a.Image()
	}
	return m
}
