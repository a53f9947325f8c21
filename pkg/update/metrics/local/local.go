// Package local answers the queries in the rules of update risks with the metrics of this process, which Prometheus's own engine evaluates. It takes the
// metrics. Package source queries a Prometheus instead, without the engine.
package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/update/firing"
	"github.com/cluster-version/cvo/pkg/update/metrics/source"
	"github.com/cluster-version/cvo/pkg/update/risk"
)

// maxLocalSamples limits the memory for the local evaluation of an expression.
const maxLocalSamples = 1_000_000

// evaluationTimeout bounds the local evaluation of an expression.
const evaluationTimeout = time.Minute

// Source evaluates expressions in this process with Prometheus's own engine and the process's own metrics. It knows only the current sample
// of each metric, and no metrics of other processes. It returns an error for an expression that needs more.
type Source struct {
	clock    clock.PassiveClock
	gatherer prometheus.Gatherer
	known    map[string]bool
	parser   parser.Parser
	engine   *promql.Engine
}

// New returns a source for the metrics of gatherer. known contains metrics that may have no series, for example because the cluster
// currently has no object of a kind.
func New(clk clock.PassiveClock, gatherer prometheus.Gatherer, known []string) *Source {
	l := &Source{clock: clk, gatherer: gatherer, known: map[string]bool{}, parser: parser.NewParser(parser.Options{})}
	for _, name := range known {
		l.known[name] = true
	}
	l.engine = promql.NewEngine(promql.EngineOpts{MaxSamples: maxLocalSamples, Timeout: evaluationTimeout, Parser: l.parser})
	return l
}

// Query implements risk.Source.
func (l *Source) Query(ctx context.Context, expression string) ([]float64, error) {
	if len(expression) > source.MaxExpression {
		return nil, fmt.Errorf("the query has %d bytes, but the limit is %d", len(expression), source.MaxExpression)
	}
	expr, err := l.parser.ParseExpr(expression)
	if err != nil {
		return nil, fmt.Errorf("parsing the query: %w", singleLine(err))
	}
	if expr.Type() != parser.ValueTypeVector {
		return nil, fmt.Errorf("the result of the query is a %s, not a vector", expr.Type())
	}
	now := l.clock.Now()
	present, err := l.gather(now)
	if err != nil {
		return nil, err
	}
	if err := present.answers(expr); err != nil {
		return nil, err
	}
	return l.evaluate(ctx, present, expression, now)
}

func (l *Source) evaluate(ctx context.Context, present *metrics, expression string, now time.Time) ([]float64, error) {
	query, err := l.engine.NewInstantQuery(ctx, present, nil, expression, now)
	if err != nil {
		return nil, fmt.Errorf("evaluating the query: %w", err)
	}
	defer query.Close()
	vector, err := query.Exec(ctx).Vector()
	if err != nil {
		return nil, fmt.Errorf("evaluating the query: %w", singleLine(err))
	}
	values := make([]float64, len(vector))
	for i, sample := range vector {
		if sample.H != nil {
			return nil, errors.New("the result of the query is a histogram, not a number")
		}
		values[i] = sample.F
	}
	return values, nil
}

// singleLine makes the error's text safe for a condition, because it may quote a query.
func singleLine(err error) error { return api.Reworded(err, firing.Line(err.Error())) }

// Alerts implements risk.Source. Without a Prometheus there are no alerts.
func (l *Source) Alerts(context.Context) ([]firing.Alert, error) { return nil, nil }

// metrics contains the current samples by name. The engine reads them as a storage.Queryable and its storage.Querier.
type metrics struct {
	known   map[string]bool
	at      int64
	samples map[string][]labeled
}

type labeled struct {
	labels labels.Labels
	value  float64
}

// gather reads all metrics of the process.
func (l *Source) gather(now time.Time) (*metrics, error) {
	families, err := l.gatherer.Gather()
	if err != nil {
		return nil, fmt.Errorf("gathering the operator's own metrics: %w", err)
	}
	vector, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.TimeFromUnixNano(now.UnixNano())}, families...)
	if err != nil {
		return nil, fmt.Errorf("reading the operator's own metrics: %w", err)
	}
	m := &metrics{known: l.known, at: now.UnixMilli(), samples: map[string][]labeled{}}
	builder := labels.NewScratchBuilder(0)
	for _, sample := range vector {
		builder.Reset()
		for name, value := range sample.Metric {
			builder.Add(string(name), string(value))
		}
		builder.Sort()
		name := string(sample.Metric[model.MetricNameLabel])
		m.samples[name] = append(m.samples[name], labeled{builder.Labels(), float64(sample.Value)})
	}
	return m, nil
}

// answers returns the reason why these metrics cannot answer an expression correctly, or nil if they can.
func (m *metrics) answers(expr parser.Expr) error {
	missing, other := map[string]bool{}, map[string]bool{}
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			m.examine(node, missing, other)
		case *parser.MatrixSelector, *parser.SubqueryExpr:
			other[needsPast] = true
		case *parser.Call:
			if why := multiplies(node, path); why != "" {
				other[why] = true
			}
		}
		return nil
	})
	var why []string
	if len(missing) > 0 {
		why = append(why, "without a Prometheus, the operator does not have the metrics "+strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	why = append(why, slices.Sorted(maps.Keys(other))...)
	if len(why) == 0 {
		return nil
	}
	return errors.New(strings.Join(why, "; "))
}

const needsPast = "the query needs past values, which only a Prometheus has"

// examine adds a selector's unknown metric to missing, and other reasons against a local evaluation to other.
func (m *metrics) examine(selector *parser.VectorSelector, missing, other map[string]bool) {
	if selector.OriginalOffset != 0 || selector.OriginalOffsetExpr != nil || selector.Timestamp != nil || selector.StartOrEnd != 0 {
		other[needsPast] = true
	}
	name := metricName(selector.LabelMatchers)
	switch {
	case name == "":
		other["the query does not name the metrics that it selects"] = true
		return
	case len(m.samples[name]) == 0 && !m.known[name]:
		missing[name] = true
		return
	}
	for _, matcher := range selector.LabelMatchers {
		if !matcher.Matches("") && matcher.Name != model.MetricNameLabel && !m.has(name, matcher.Name) {
			other[fmt.Sprintf("without a Prometheus, metric %s has no label %s", name, matcher.Name)] = true
		}
	}
}

// scraped returns the labels that a Prometheus adds to scraped metrics.
func scraped() []string {
	return []string{"container", "endpoint", "instance", "job", "namespace", "node", "pod", "prometheus", "service"}
}

// has reports whether a metric has a label. A metric without series is assumed to have all labels except those that a Prometheus adds.
func (m *metrics) has(metric, label string) bool {
	series := m.samples[metric]
	if len(series) == 0 {
		return !slices.Contains(scraped(), label)
	}
	return slices.ContainsFunc(series, func(s labeled) bool { return s.labels.Has(label) })
}

// metricName returns the only metric that the matchers select, or "" if they may select several.
func metricName(matchers []*labels.Matcher) string {
	var name string
	for _, matcher := range matchers {
		if matcher.Name != model.MetricNameLabel {
			continue
		}
		if matcher.Type != labels.MatchEqual || name != "" {
			return ""
		}
		name = matcher.Value
	}
	return name
}

// Limits for functions that create labels from labels, because each call may multiply the length of the text.
const (
	maxLabelParts = 8
	maxLabelDepth = 2
)

// multiplies returns the reason why a call may exceed the memory for one query, or "" if it cannot.
func multiplies(call *parser.Call, path []parser.Node) string {
	if !makesLabels(call) {
		return ""
	}
	depth, parts := 1, len(call.Args)
	for _, node := range path {
		if outer, ok := node.(*parser.Call); ok && makesLabels(outer) {
			depth++
		}
	}
	for _, arg := range call.Args {
		if text, ok := arg.(*parser.StringLiteral); ok {
			parts += strings.Count(text.Val, "$")
		}
	}
	if depth > maxLabelDepth || parts > maxLabelParts+4 {
		return "the query uses " + call.Func.Name + " too often"
	}
	return ""
}

func makesLabels(call *parser.Call) bool {
	return call.Func.Name == "label_replace" || call.Func.Name == "label_join"
}

// Querier implements storage.Queryable.
func (m *metrics) Querier(int64, int64) (storage.Querier, error) { return m, nil }

// Select implements storage.Querier.
func (m *metrics) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &seriesSet{next: -1}
	for _, s := range m.samples[metricName(matchers)] {
		if !slices.ContainsFunc(matchers, func(matcher *labels.Matcher) bool { return !matcher.Matches(s.labels.Get(matcher.Name)) }) {
			set.series = append(set.series, storage.NewListSeries(s.labels, []chunks.Sample{sample{m.at, s.value}}))
		}
	}
	slices.SortFunc(set.series, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return set
}

// LabelValues implements storage.Querier. The engine does not call it.
func (m *metrics) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

// LabelNames implements storage.Querier. The engine does not call it.
func (m *metrics) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

// Close implements storage.Querier.
func (m *metrics) Close() error { return nil }

// seriesSet is a storage.SeriesSet of series in memory.
type seriesSet struct {
	series []storage.Series
	next   int
}

func (s *seriesSet) Next() bool {
	s.next++
	return s.next < len(s.series)
}
func (s *seriesSet) At() storage.Series                { return s.series[s.next] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// sample is one sample of a series, a chunks.Sample.
type sample struct {
	at    int64
	value float64
}

func (p sample) T() int64                      { return p.at }
func (p sample) ST() int64                     { return 0 }
func (p sample) F() float64                    { return p.value }
func (p sample) H() *histogram.Histogram       { return nil }
func (p sample) FH() *histogram.FloatHistogram { return nil }
func (p sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p sample) Copy() chunks.Sample           { return p }

// NewEvaluator returns an evaluator of update risks that queries a Prometheus, or the metrics of this process if the cluster has no Prometheus. gatherer and known
// are those of New.
func NewEvaluator(clk clock.PassiveClock, server risk.Source, gatherer prometheus.Gatherer, known []string) *risk.Evaluator {
	return risk.New(clk, OrLocal(server, New(clk, gatherer, known)), risk.Options{})
}

// OrLocal returns a source that queries prometheus, or local if the cluster has no Prometheus.
func OrLocal(prometheus, local risk.Source) risk.Source { return orLocal{prometheus, local} }

type orLocal struct{ prometheus, local risk.Source }

func (s orLocal) Query(ctx context.Context, expression string) ([]float64, error) {
	values, err := s.prometheus.Query(ctx, expression)
	if errors.Is(err, risk.ErrNoPrometheus) {
		return s.local.Query(ctx, expression)
	}
	return values, err
}

func (s orLocal) Alerts(ctx context.Context) ([]firing.Alert, error) {
	found, err := s.prometheus.Alerts(ctx)
	if errors.Is(err, risk.ErrNoPrometheus) {
		return s.local.Alerts(ctx)
	}
	return found, err
}
