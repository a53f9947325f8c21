package metrics

import (
	"context"
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/internal/pointers"
)

// collectTimeout is how long a scrape waits for caches that are still being filled.
const collectTimeout = time.Second

// collector creates the metrics of a scrape. The replicas that do not lead serve none, so that no series appears twice. They count the ends of
// phases as well: the counts of the next leader then continue those of the leader before.
type collector struct {
	clock   clock.PassiveClock
	elected <-chan struct{}
	// reader only reads caches.
	reader       client.Reader
	descriptions descriptions
	phases       *prometheus.HistogramVec
}

// Add registers the metrics. The manager's scheme is one that cluster.NewScheme returned, and its controllers watch the same kinds.
func Add(ctx context.Context, mgr manager.Manager, clk clock.PassiveClock, registry prometheus.Registerer) error {
	c := &collector{clock: clk, elected: mgr.Elected(), reader: mgr.GetCache(), descriptions: describe(), phases: NewPhases()}
	informer, err := mgr.GetCache().GetInformer(ctx, &mcfgv1.MachineConfigNode{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching MachineConfigNodes: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		old, wasNode := before.(*mcfgv1.MachineConfigNode)
		current, isNode := after.(*mcfgv1.MachineConfigNode)
		if wasNode && isNode {
			observe(c.phases, old, current)
		}
	}})
	if err != nil {
		return fmt.Errorf("watching MachineConfigNodes: %w", err)
	}
	if err := registry.Register(c); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range Descriptions() {
		out <- d
	}
	c.phases.Describe(out)
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	select {
	case <-c.elected:
	default:
		return
	}
	c.phases.Collect(out)
	s, ok := c.state()
	if !ok {
		return
	}
	for _, m := range s.metrics(c.descriptions, c.clock.Now()) {
		out <- m
	}
}

// state reads the caches. It returns false if one is not filled yet.
func (c *collector) state() (s state, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	var pools mcfgv1.MachineConfigPoolList
	var configs mcfgv1.MachineConfigList
	var nodes corev1.NodeList
	for _, list := range []client.ObjectList{&pools, &configs, &nodes} {
		if err := c.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return state{}, false
		}
	}
	s = state{pools: pointers.To(pools.Items), nodes: pointers.To(nodes.Items), isOverridden: map[string]bool{}}
	for i := range configs.Items {
		s.isOverridden[configs.Items[i].Name] = isOverridden(&configs.Items[i])
	}
	return s, true
}
