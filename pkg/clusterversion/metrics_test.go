package clusterversion

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
	updategraph "github.com/cluster-version/cvo/pkg/update/graph"
)

func TestMetricsCountAcceptances(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m, err := NewMetrics(registry)
	require.NoError(t, err)
	_, err = NewMetrics(registry)
	require.Error(t, err, "metrics cannot be registered twice")

	m.answered(acceptedRelease("1.0.0"))
	m.answered(accept.Acceptance{Step: "LoadPayload"}) // under way
	m.answered(accept.Acceptance{Step: "LoadPayload", Err: errors.New("no")})
	m.answered(accept.Acceptance{Step: "LoadPayload", Err: errors.New("still no")})
	m.fetched(nil)
	m.fetched(fmt.Errorf("asking: %w", &updategraph.Error{Reason: updategraph.ReasonRemoteFailed, Err: errors.New("no")}))
	m.fetched(errors.New("what"))
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP cvo_clusterversion_acceptances_total Attempts to accept a release, by last step and result.
# TYPE cvo_clusterversion_acceptances_total counter
cvo_clusterversion_acceptances_total{result="accepted",step="PayloadLoaded"} 1
cvo_clusterversion_acceptances_total{result="refused",step="LoadPayload"} 2
# HELP cvo_updategraph_fetches_total Requests to the update service, by result: retrieved, or the reason of the failure.
# TYPE cvo_updategraph_fetches_total counter
cvo_updategraph_fetches_total{result="RemoteFailed"} 1
cvo_updategraph_fetches_total{result="Unknown"} 1
cvo_updategraph_fetches_total{result="retrieved"} 1
`)))
	var none *Metrics
	none.answered(acceptedRelease("1.0.0"))
	none.fetched(nil)
}

func TestMeasuredReportsReleaseAndProgress(t *testing.T) {
	s := newScribe(t)
	assert.Equal(t, Measured{}, s.Measured())
	s.reconcile(t)
	a := acceptedRelease("1.0.0")
	a.Payload.Created = now.Add(-time.Hour)
	s.accepts(a)
	s.reconcile(t)
	s.progresses(progressOf("1.0.0", 1, 2))
	got := s.Measured()
	assert.Equal(t, "1.0.0", got.Running.Version)
	assert.Equal(t, imageOf("1.0.0"), got.Running.Image)
	assert.Equal(t, a.Payload.Created, got.Created)
	assert.Equal(t, 1, got.Progress.Done)
}
