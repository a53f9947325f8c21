// Package clustermetrics provides the metrics of a cluster's versions and operators that existing dashboards and alerts read, and the
// metrics of the current rollout. Each scrape creates them from the current state of the process: the caches of its watches and the
// reconciler's memory. A scrape sends no request and waits for none.
package clustermetrics

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
	"github.com/cluster-version/cvo/pkg/clusterversion/accept"
)

// collector creates the metrics from the current state of the process: the caches of its watches and the reconciler's memory. Only the
// leader has this data. The other replicas serve none of these metrics, so that no series appears twice.
type collector struct {
	clock   clock.PassiveClock
	name    string
	elected <-chan struct{}
	// reader only reads caches.
	reader      client.Reader
	measured    func() clusterversion.Measured
	transitions *transitions
	installer   *installer
}

// collectTimeout is how long a scrape waits for caches that are still being filled.
const collectTimeout = time.Second

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range Descriptions() {
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

// observe collects the current state. It returns false if a cache is not filled yet.
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

// Limits for the metrics of cluster objects, because other clients determine their names and reasons.
const (
	maxSeries = 5000 // of one metric
	maxLabel  = 1024 // bytes
)

// series are the metrics of a scrape. It drops duplicate series, which would invalidate the whole scrape.
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
		return // the label is invalid
	}
	s.list = append(s.list, m)
}

// clip shortens a label that is longer than names and reasons usually are.
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

// seconds returns a time as a metric value: Unix seconds, 0 for the zero time.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}

// latest returns the latest of the given times.
func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}

// Measures are the metrics of a process.
type Measures struct {
	registry prometheus.Registerer
	// Acceptance counts the accepted releases.
	Acceptance    *clusterversion.Metrics
	verifications *verifications
}

// New registers the metrics that count events as they happen.
func New(registry prometheus.Registerer) (*Measures, error) {
	m := &Measures{registry: registry}
	var err error
	if m.Acceptance, err = clusterversion.NewMetrics(registry); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	if m.verifications, err = newVerifications(registry); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return m, nil
}

// CountVerifications returns an Outside that counts its verifications.
func (m *Measures) CountVerifications(o accept.Outside) accept.Outside {
	return m.verifications.outside(o)
}

// Collect adds the metrics that each scrape creates. name is the name of the ClusterVersion.
func (m *Measures) Collect(
	ctx context.Context, mgr manager.Manager, core corev1client.CoreV1Interface, name string, measured func() clusterversion.Measured,
) error {
	c := &collector{
		clock: clock.RealClock{}, name: name, elected: mgr.Elected(), reader: mgr.GetCache(),
		measured: measured, transitions: newTransitions(), installer: newInstaller(core),
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
