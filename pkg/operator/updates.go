package operator

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/clusterversion"
	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/updategraph"
)

// UpdateService says which update service is asked, and how.
type UpdateService struct {
	// URL is asked in place of spec.upstream, Default where neither is set.
	URL, Default string
	// UserAgent is how the service sees us; default "ClusterVersionOperator".
	UserAgent string
}

// leastUpdatesInterval is the least time between two questions to the update service, and its double the most: operators
// that were started together do not ask together.
const leastUpdatesInterval = 2 * time.Minute

// newUpdates returns what tells which updates there are.
func newUpdates(clk clock.PassiveClock, reader client.Reader, own prometheus.Gatherer, options Options) (clusterversion.Updates, error) {
	known := slices.Sorted(maps.Keys(descriptions()))
	risks, err := newEvaluator(clk, reader, own, known, options.Metrics)
	if err != nil {
		return clusterversion.Updates{}, err
	}
	random := rand.New(rand.NewPCG(options.Seed, 1)) //nolint:gosec // spreads requests; not a secret
	return clusterversion.Updates{
		Ask: asker{reader, options}.ask, Risks: risks,
		Service: options.UpdateService.URL, Default: options.UpdateService.Default,
		Interval: leastUpdatesInterval + time.Duration(random.Int64N(int64(leastUpdatesInterval))),
	}, nil
}

// asker asks update services as the cluster's configuration has it: its proxy, the certificates that it trusts.
type asker struct {
	reader  client.Reader
	options Options
}

func (a asker) ask(ctx context.Context, q updategraph.Query, before updategraph.Answer) (updategraph.Answer, error) {
	reading, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	e, err := readNetwork(reading, a.reader, a.options.Access)
	if err != nil {
		return updategraph.Answer{}, fmt.Errorf("reading how the cluster reaches the outside: %w", err)
	}
	agent := a.options.UpdateService.UserAgent
	if agent == "" {
		agent = "ClusterVersionOperator"
	}
	web := &updategraph.Client{HTTP: registry.New(e.Options).RetryingWebClient(), UserAgent: agent}
	return web.Ask(ctx, q, before)
}
