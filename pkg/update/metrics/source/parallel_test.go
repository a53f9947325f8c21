package source_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/update/metrics/source"
	"github.com/cluster-version/cvo/test/fixture"
)

// TestPrometheusAnswersParallelQueries checks that parallel queries of one source share no mutable URL. Each gets its own response from the
// current address.
func TestPrometheusAnswersParallelQueries(t *testing.T) {
	server := fixture.StartQueryAPI(t)
	const queries = 32
	for i := range queries {
		server.Answer(fmt.Sprint("q", i), float64(i))
	}
	source := prometheusAt(t, source.PrometheusOptions{
		URL: server.URL(), Address: func(context.Context) (string, error) { return "127.0.0.1", nil },
	})
	var all sync.WaitGroup
	for i := range queries {
		all.Go(func() {
			values, err := source.Query(t.Context(), fmt.Sprint("q", i))
			assert.Equal(t, []float64{float64(i)}, values, "%v", err)
		})
		all.Go(func() {
			_, err := source.Alerts(t.Context())
			assert.NoError(t, err)
		})
	}
	all.Wait()
	paths := map[string]int{}
	for _, request := range server.Requests() {
		paths[request.Path]++
	}
	assert.Equal(t, map[string]int{"/api/v1/query": queries, "/api/v1/alerts": queries}, paths)
}
