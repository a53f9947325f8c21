package operator

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/update/service"
)

func TestUpdatesAreRequestedAtARandomInterval(t *testing.T) {
	options := Options{Seed: 7, UpdateService: service.Options{URL: "https://told", Default: "https://default"}}
	updates, err := newUpdates(clock.RealClock{}, nil, prometheus.NewRegistry(), options)
	require.NoError(t, err)
	assert.Equal(t, "https://told", updates.Service)
	assert.Equal(t, "https://default", updates.Default)
	assert.GreaterOrEqual(t, updates.Interval, 2*time.Minute)
	assert.LessOrEqual(t, updates.Interval, 4*time.Minute)
}
