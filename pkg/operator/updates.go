package operator

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/clusterversion/updates"
	"github.com/cluster-version/cvo/pkg/operator/clustermetrics"
	"github.com/cluster-version/cvo/pkg/update/metrics/local"
	"github.com/cluster-version/cvo/pkg/update/service"
)

// leastUpdatesInterval is the shortest interval between requests to the update service, and twice that is the longest. A random interval in
// between spreads the requests of operators that started together.
const leastUpdatesInterval = 2 * time.Minute

// newUpdates returns the source of available updates for the reconciler.
func newUpdates(clk clock.PassiveClock, reader client.Reader, own prometheus.Gatherer, options Options) (updates.Options, error) {
	server, err := options.Metrics.Connect(reader)
	if err != nil {
		return updates.Options{}, err
	}
	known := slices.Sorted(maps.Keys(clustermetrics.Descriptions()))
	risks := local.NewEvaluator(clk, server, own, known)
	random := rand.New(rand.NewPCG(options.Seed, 1))
	return updates.Options{
		Ask: service.NewAsker(reader, options.Outside.Access, options.UpdateService).Ask, Risks: risks,
		Service: options.UpdateService.URL, Default: options.UpdateService.Default,
		Interval: leastUpdatesInterval + time.Duration(random.Int64N(int64(leastUpdatesInterval))),
	}, nil
}
