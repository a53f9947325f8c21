package risk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
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
)

// maxLocalSamples bounds the memory that the evaluation of an expression may take here.
const maxLocalSamples = 1_000_000

// Local evaluates expressions itself, with Prometheus's own engine, over metrics of this process. It knows one sample of
// each, the present one, and nothing of other processes: what needs more is an error that says so.
type Local struct {
	clock    clock.PassiveClock
	gatherer prometheus.Gatherer
	known    map[string]bool
	parser   parser.Parser
	engine   *promql.Engine
}

// NewLocal returns a source over what gatherer gathers. The metrics of known are known to have no series where none is
// gathered, such as those of a kind of object of which the cluster has none at the moment.
func NewLocal(clk clock.PassiveClock, gatherer prometheus.Gatherer, known []string) *Local {
	l := &Local{clock: clk, gatherer: gatherer, known: map[string]bool{}, parser: parser.NewParser(parser.Options{})}
	for _, name := range known {
		l.known[name] = true
	}
	l.engine = promql.NewEngine(promql.EngineOpts{MaxSamples: maxLocalSamples, Timeout: ruleTimeout, Parser: l.parser})
	return l
}

// Query implements Source.
func (l *Local) Query(ctx context.Context, expression string) ([]float64, error) {
	if len(expression) > maxExpression {
		return nil, fmt.Errorf("the query has %d bytes, more than the %d that are read", len(expression), maxExpression)
	}
	expr, err := l.parser.ParseExpr(expression)
	if err != nil {
		return nil, fmt.Errorf("reading the query: %w", onOneLine(err))
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

func (l *Local) evaluate(ctx context.Context, present *metrics, expression string, now time.Time) ([]float64, error) {
	query, err := l.engine.NewInstantQuery(ctx, present, nil, expression, now)
	if err != nil {
		return nil, fmt.Errorf("evaluating the query: %w", err)
	}
	defer query.Close()
	vector, err := query.Exec(ctx).Vector()
	if err != nil {
		return nil, fmt.Errorf("evaluating the query: %w", onOneLine(err))
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

// onOneLine is an error whose text may quote a query, fit for a condition.
func onOneLine(err error) error { return api.Reworded(err, printable(model.LabelValue(err.Error()))) }

// Alerts implements Source. Without a Prometheus there are none.
func (l *Local) Alerts(context.Context) ([]promv1.Alert, error) { return nil, nil }

// metrics are the present samples by name. They are what the engine reads, a storage.Queryable and its Querier.
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
func (l *Local) gather(now time.Time) (*metrics, error) {
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

// answers tells why an expression cannot be answered honestly from these metrics; nil if it can.
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
		why = append(why, "there is no Prometheus, and the operator itself does not know the metrics "+strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	why = append(why, slices.Sorted(maps.Keys(other))...)
	if len(why) == 0 {
		return nil
	}
	return errors.New(strings.Join(why, "; "))
}

const needsPast = "it looks at the past, which only a Prometheus remembers"

// examine adds what of a selector is not known here: metrics, and all else.
func (m *metrics) examine(selector *parser.VectorSelector, missing, other map[string]bool) {
	if selector.OriginalOffset != 0 || selector.OriginalOffsetExpr != nil || selector.Timestamp != nil || selector.StartOrEnd != 0 {
		other[needsPast] = true
	}
	name := metricName(selector.LabelMatchers)
	switch {
	case name == "":
		other["it does not name the metrics that it selects"] = true
		return
	case len(m.samples[name]) == 0 && !m.known[name]:
		missing[name] = true
		return
	}
	for _, matcher := range selector.LabelMatchers {
		if !matcher.Matches("") && matcher.Name != model.MetricNameLabel && !m.has(name, matcher.Name) {
			other[fmt.Sprintf("there is no Prometheus, and metric %s has no label %s here", name, matcher.Name)] = true
		}
	}
}

// scraped are the labels that a Prometheus adds to what it scrapes.
func scraped() []string {
	return []string{"container", "endpoint", "instance", "job", "namespace", "node", "pod", "prometheus", "service"}
}

// has tells whether a metric has a label. Of one without series it is believed, unless a Prometheus would add it.
func (m *metrics) has(metric, label string) bool {
	series := m.samples[metric]
	if len(series) == 0 {
		return !slices.Contains(scraped(), label)
	}
	return slices.ContainsFunc(series, func(s labeled) bool { return s.labels.Has(label) })
}

// metricName is the one metric that matchers select; empty if they may select more.
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

// Limits of functions that make labels of labels, each of which may make its text many times as long.
const (
	maxLabelParts = 8
	maxLabelDepth = 2
)

// multiplies tells why a call may need more memory than a query is worth; empty if it does not.
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
		return "it uses " + call.Func.Name + " more than is evaluated here"
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
			set.series = append(set.series, storage.NewListSeries(s.labels, []chunks.Sample{present{m.at, s.value}}))
		}
	}
	slices.SortFunc(set.series, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return set
}

// LabelValues implements storage.Querier. The engine does not ask for them.
func (m *metrics) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

// LabelNames implements storage.Querier. The engine does not ask for them.
func (m *metrics) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

// Close implements storage.Querier.
func (m *metrics) Close() error { return nil }

// seriesSet is a storage.SeriesSet of what was found already.
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

// present is one sample of a series, a chunks.Sample.
type present struct {
	at    int64
	value float64
}

func (p present) T() int64                      { return p.at }
func (p present) ST() int64                     { return 0 }
func (p present) F() float64                    { return p.value }
func (p present) H() *histogram.Histogram       { return nil }
func (p present) FH() *histogram.FloatHistogram { return nil }
func (p present) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p present) Copy() chunks.Sample           { return p }

// OrLocal asks a Prometheus, and a source that needs none where the cluster has no Prometheus.
func OrLocal(prometheus, local Source) Source { return orLocal{prometheus, local} }

type orLocal struct{ prometheus, local Source }

func (s orLocal) Query(ctx context.Context, expression string) ([]float64, error) {
	values, err := s.prometheus.Query(ctx, expression)
	if errors.Is(err, ErrNoPrometheus) {
		return s.local.Query(ctx, expression)
	}
	return values, err
}

func (s orLocal) Alerts(ctx context.Context) ([]promv1.Alert, error) {
	found, err := s.prometheus.Alerts(ctx)
	if errors.Is(err, ErrNoPrometheus) {
		return s.local.Alerts(ctx)
	}
	return found, err
}
