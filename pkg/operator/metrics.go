package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/pkg/clusterversion"
)

// collector makes the metrics that existing dashboards and alerts read, and those of the rollout under way, from what
// the process knows at the moment it is asked: the caches of watches and the reconciler's memory. A scrape sends no
// request and waits for none. Only the replica that leads knows all this; the others serve none of these metrics, so
// that no series appears twice.
type collector struct {
	clock   clock.PassiveClock
	name    string
	elected <-chan struct{}
	// reader reads caches only.
	reader      client.Reader
	measured    func() clusterversion.Measured
	transitions *transitions
	installer   *installer
}

// collectTimeout bounds how long a scrape waits for caches that are still being filled.
const collectTimeout = time.Second

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range descriptions() {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	select {
	case <-c.elected:
	default:
		return
	}
	o, ok := c.observe()
	if !ok {
		return
	}
	for _, m := range o.metrics() {
		out <- m
	}
}

// observe takes a look at everything; false if a cache has nothing to tell yet.
func (c *collector) observe() (observation, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	o := observation{
		now: c.clock.Now(), measured: c.measured(), transitions: c.transitions.counts(),
	}
	o.installer, o.installerKnown = c.installer.found()
	cv := &configv1.ClusterVersion{}
	switch err := c.reader.Get(ctx, client.ObjectKey{Name: c.name}, cv); {
	case err == nil:
		o.clusterVersion = cv
	case !apierrors.IsNotFound(err):
		return o, false
	}
	list := &configv1.ClusterOperatorList{}
	if err := c.reader.List(ctx, list); err != nil {
		return o, false
	}
	o.operators = list.Items
	return o, true
}

// Bounds of what the objects of a cluster can make of metrics. Names and reasons are others' texts.
const (
	maxSeries = 5000 // of one metric
	maxLabel  = 1024 // bytes
)

// series are the metrics of one scrape. A series that would appear twice, which would spoil the whole scrape, appears
// once.
type series struct {
	list  []prometheus.Metric
	seen  map[string]bool
	count map[*prometheus.Desc]int
}

// gauge adds a series.
func (s *series) gauge(desc *prometheus.Desc, value float64, labels ...string) {
	for i, label := range labels {
		labels[i] = clip(label)
	}
	key := desc.String() + "\xff" + strings.Join(labels, "\xff")
	if s.seen[key] || s.count[desc] >= maxSeries {
		return
	}
	if s.seen == nil {
		s.seen, s.count = map[string]bool{}, map[*prometheus.Desc]int{}
	}
	s.seen[key] = true
	s.count[desc]++
	m, err := prometheus.NewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	if err != nil {
		return // a label that is no text
	}
	s.list = append(s.list, m)
}

// clip cuts a label that is longer than any name or reason should be.
func clip(label string) string {
	label = strings.ToValidUTF8(label, "\uFFFD")
	if len(label) <= maxLabel {
		return label
	}
	cut := maxLabel
	for !utf8.RuneStart(label[cut]) {
		cut--
	}
	return label[:cut]
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// seconds is a moment as metrics have it, 0 for none.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}

// latest is the newest of some moments.
func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}

// measures are the metrics of a process that are counted as things happen.
type measures struct {
	registry      prometheus.Registerer
	acceptance    *clusterversion.Metrics
	verifications *verifications
}

func newMeasures(registry prometheus.Registerer) (*measures, error) {
	m := &measures{registry: registry}
	var err error
	if m.acceptance, err = clusterversion.NewMetrics(registry); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	if m.verifications, err = newVerifications(registry); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return m, nil
}

// collect adds the metrics that are made at each scrape.
func (m *measures) collect(ctx context.Context, mgr manager.Manager, core corev1client.CoreV1Interface, options Options, reconciler *clusterversion.Reconciler) error {
	c := &collector{
		clock: clock.RealClock{}, name: options.Name, elected: mgr.Elected(), reader: mgr.GetCache(),
		measured: reconciler.Measured, transitions: newTransitions(), installer: newInstaller(core),
	}
	informer, err := mgr.GetCache().GetInformer(ctx, &configv1.ClusterOperator{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching ClusterOperators: %w", err)
	}
	if _, err := informer.AddEventHandler(c.transitions.handler()); err != nil {
		return fmt.Errorf("watching ClusterOperators: %w", err)
	}
	if err := mgr.Add(c.installer); err != nil {
		return fmt.Errorf("adding watches: %w", err)
	}
	if err := m.registry.Register(c); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}
