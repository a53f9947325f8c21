package local_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/update/metrics/local"
	"github.com/cluster-version/cvo/pkg/update/metrics/source"
	"github.com/cluster-version/cvo/pkg/update/risk"
	"github.com/cluster-version/cvo/test/fixture"
)

func operatorMetrics(t testing.TB) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewRegistry()
	up := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "cluster_operator_up"}, []string{"name", "version"})
	up.WithLabelValues("dns", "4.2.1").Set(1)
	up.WithLabelValues("etcd", "4.2.1").Set(0)
	waits := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "waits_seconds", Buckets: []float64{1, 2}})
	waits.Observe(1.5)
	for _, c := range []prometheus.Collector{up, waits} {
		require.NoError(t, registry.Register(c))
	}
	return registry
}

//threat:query-overloads-operator bounds the number of labels
//threat:query-overloads-operator bounds the length of a label
//threat:query-overloads-operator stops reading endless metrics
//threat:risk-counts-applying does not treat a missing metric as absent
func TestLocalEvaluatesTheOperatorsOwnMetrics(t *testing.T) {
	const unknown = "without a Prometheus, the operator does not have the metrics "
	const past = "the query needs past values, which only a Prometheus has"
	own := local.New(clock.RealClock{}, operatorMetrics(t), []string{"cluster_version_risk"})
	for _, tc := range []struct {
		name, query string
		values      []float64
		err         string
	}{
		{"selects series", `cluster_operator_up{name="dns"}`, []float64{1}, ""},
		{"selects by pattern and by missing labels", `cluster_operator_up{_id="",name=~"e.*",version!="4.2.2"}`, []float64{0}, ""},
		{"selects nothing", `cluster_operator_up{name="nobody"}`, []float64{}, ""},
		{"evaluates classifying queries of real risks", `group by (name) (cluster_operator_up{name="aro"}) or 0 * group by (version) (cluster_operator_up)`, []float64{0}, ""},
		{"evaluates inverted classifying queries", `max(cluster_operator_up{name="dns"} == bool 1)`, []float64{1}, ""},
		{"reads parts of histograms", `waits_seconds_bucket{le="1"} or on() vector(7)`, []float64{0}, ""},
		{"replaces labels", `label_replace(cluster_operator_up{name="dns"}, "x", "$1", "name", "(.*)")`, []float64{1}, ""},
		{"evaluates queries without metrics", `vector(1)`, []float64{1}, ""},
		{"treats a known metric without series as absent", `absent(cluster_version_risk)`, []float64{1}, ""},
		{"names the missing metrics", `max(b_metric) or cluster_operator_up or a_metric`, nil, unknown + "a_metric, b_metric"},
		{"does not treat a missing metric as absent", `absent(up)`, nil, unknown + "up"},
		{"finds all missing metrics in the query", `sum by (x) (topk(1, cluster_operator_up * on() group_left() up)) unless -ALERTS`, nil, unknown + "ALERTS, up"},
		{"keeps no state between queries", `max_over_time(cluster_operator_up[1h])`, nil, past},
		{"rejects subqueries", `max_over_time((cluster_operator_up)[1h:1m])`, nil, past},
		{"rejects offsets", `cluster_operator_up offset 1h`, nil, past},
		{"rejects @ modifiers", `cluster_operator_up @ 1600000000`, nil, past},
		{"reports all reasons at once", `rate(up[5m])`, nil, unknown + "up; " + past},
		{"rejects selectors without a name", `{name="dns"}`, nil, "the query does not name the metrics that it selects"},
		{"rejects selectors with several names", `{__name__=~"cluster_.*"}`, nil, "the query does not name the metrics that it selects"},
		{"rejects labels of a scrape", `cluster_operator_up{job="cvo"}`, nil, "without a Prometheus, metric cluster_operator_up has no label job"},
		{"has no labels of a scrape for metrics without series", `cluster_version_risk{namespace="x"}`, nil, "without a Prometheus, metric cluster_version_risk has no label namespace"},
		{"rejects a scalar", `1`, nil, "the result of the query is a scalar, not a vector"},
		{"rejects a string", `"1"`, nil, "the result of the query is a string, not a vector"},
		{"rejects a matrix", `cluster_operator_up[5m]`, nil, "the result of the query is a matrix, not a vector"},
		{"reports syntax errors", `max(`, nil, "parsing the query: 1:5: parse error: unclosed left parenthesis"},
		{"reports execution errors", `cluster_operator_up * on() cluster_operator_up`, nil, "evaluating the query: "},
		{"bounds the number of labels", strings.Repeat(`label_join(`, 30) + "cluster_operator_up" + strings.Repeat(`, "name", "", "name", "name")`, 30), nil, "the query uses label_join too often"},
		{"bounds the length of a label", `label_replace(cluster_operator_up, "name", "` + strings.Repeat("$1", 5000) + `", "name", "(.*)")`, nil, "the query uses label_replace too often"},
		{"stops reading endless metrics", "vector(" + strings.Repeat("1+", 10_000) + "1)", nil, "the query has 20009 bytes, but the limit is 16384"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			values, err := own.Query(t.Context(), tc.query)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tc.values, values)
		})
	}
	found, err := own.Alerts(t.Context())
	require.NoError(t, err)
	assert.Empty(t, found)
}

func TestLocalReportsABrokenCollector(t *testing.T) {
	broken := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return nil, errors.New("collector broke") })
	_, err := local.New(clock.RealClock{}, broken, nil).Query(t.Context(), "up")
	require.EqualError(t, err, "gathering the operator's own metrics: collector broke")
}

// TestOrLocalFallsBackOnlyWithoutAPrometheus checks that the operator's own metrics are used only if there is no Prometheus.
func TestOrLocalFallsBackOnlyWithoutAPrometheus(t *testing.T) {
	own := local.New(clock.RealClock{}, operatorMetrics(t), nil)
	server := fixture.StartQueryAPI(t)
	at, err := url.Parse(server.URL())
	require.NoError(t, err)
	var where error
	p, err := source.NewPrometheus(source.PrometheusOptions{URL: server.URL(), Address: func(context.Context) (string, error) { return at.Hostname(), where }})
	require.NoError(t, err)
	server.AddFault(fixture.Fault{Status: http.StatusInternalServerError})
	_, err = local.OrLocal(p, own).Query(t.Context(), `cluster_operator_up{name="dns"}`)
	require.ErrorContains(t, err, "server error: 500")
	_, err = local.OrLocal(p, own).Alerts(t.Context())
	require.ErrorContains(t, err, "server error: 500")

	where = risk.ErrNoPrometheus
	p, err = source.NewPrometheus(source.PrometheusOptions{URL: server.URL(), Address: func(context.Context) (string, error) { return at.Hostname(), where }})
	require.NoError(t, err)
	values, err := local.OrLocal(p, own).Query(t.Context(), `cluster_operator_up{name="dns"}`)
	require.NoError(t, err)
	assert.Equal(t, []float64{1}, values)
	_, err = local.OrLocal(p, own).Query(t.Context(), "up")
	require.EqualError(t, err, "without a Prometheus, the operator does not have the metrics up")
	_, err = local.OrLocal(p, own).Alerts(t.Context())
	require.NoError(t, err)
}

// FuzzLocal evaluates arbitrary queries.
//
//threat:queries-update-risks
func FuzzLocal(f *testing.F) {
	for _, seed := range []string{
		`group by (name) (cluster_operator_up{name="aro"}) or 0 * group by (version) (cluster_operator_up)`,
		`label_replace(cluster_operator_up, "x", "$1$1", "name", "(.*)")`, `histogram_quantile(0.9, waits_seconds_bucket)`,
		`rate(cluster_operator_up[5m:1m] @ end() offset -1h)`, `vector(1) == bool on(a,b) group_left(c) vector(time())`,
		`count_values("name", cluster_operator_up)`, `quantile(NaN, cluster_operator_up) ^ -Inf`, `{"a b"}`, "sort_desc(absent(x))", `-"\x00"`,
		`sum(cluster_operator_up) / scalar(sum(waits_seconds_sum) % 0)`, `topk(9e99, cluster_operator_up)`,
	} {
		f.Add(seed)
	}
	own := local.New(clock.RealClock{}, operatorMetrics(f), []string{"cluster_version_risk"})
	f.Fuzz(func(t *testing.T, query string) {
		values, err := own.Query(t.Context(), query)
		if err != nil {
			assert.Empty(t, values)
			assert.Less(t, len(err.Error()), 40<<10)
		}
	})
}
