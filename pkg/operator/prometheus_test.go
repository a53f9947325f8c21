package operator

import (
	"net"
	"path/filepath"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/risk"
	"github.com/cluster-version/cvo/test/fixture"
)

func TestMetricsSource(t *testing.T) {
	for _, tc := range []struct {
		name    string
		source  MetricsSource
		url     string
		service string
		token   string
	}{
		{"is OpenShift's", MetricsSource{}, DefaultMetricsURL, "openshift-monitoring/thanos-querier", "token"},
		{"is found by DNS if told so", MetricsSource{UseDNS: true}, DefaultMetricsURL, "", "token"},
		{"is a service of the cluster", MetricsSource{URL: "https://prom.mon.svc:9090/prefix"}, "https://prom.mon.svc:9090/prefix", "mon/prom", "token"},
		{"gets no token in the clear", MetricsSource{URL: "http://prom.mon.svc:9090"}, "http://prom.mon.svc:9090", "mon/prom", ""},
		{"is a server elsewhere", MetricsSource{URL: "https://prometheus.example.com"}, "https://prometheus.example.com", "", ""},
		{"is at an address", MetricsSource{URL: "http://127.0.0.1:9090"}, "http://127.0.0.1:9090", "", ""},
		{"has a service of another name", MetricsSource{URL: "https://prometheus.example.com", Namespace: "mon", Service: "prom"}, "https://prometheus.example.com", "mon/prom", "token"},
		{"has OpenShift's namespace", MetricsSource{Service: "prom"}, DefaultMetricsURL, "openshift-monitoring/prom", "token"},
		{"has OpenShift's name", MetricsSource{Namespace: "mon"}, DefaultMetricsURL, "mon/thanos-querier", "token"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			options := tc.source.options(nil, filepath.Base)
			assert.Equal(t, tc.token, options.TokenFile)
			assert.Equal(t, tc.token != "" || tc.service != "", options.CAFile != "", "the service authority is for services")
			assert.Equal(t, tc.url, options.URL)
			assert.Equal(t, tc.service != "", options.Address != nil)
			if tc.service != "" {
				assert.Equal(t, tc.service, tc.source.service(options.URL).String())
			}
		})
	}
}

// TestMetricsService looks services up that an API server has given their addresses.
func TestMetricsService(t *testing.T) {
	cluster := trustCluster(t)
	service := func(name, ip string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
			Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 9091}}},
		}
	}
	there := service("prom", "")
	put(t, cluster, there)
	put(t, cluster, service("headless", corev1.ClusterIPNone))

	address := func(url string) (string, error) {
		return MetricsSource{URL: url}.options(cluster, ifPresent).Address(t.Context())
	}
	ip, err := address("https://prom.default.svc.cluster.local:9091")
	require.NoError(t, err)
	assert.Equal(t, there.Spec.ClusterIP, ip)
	assert.NotNil(t, net.ParseIP(ip))
	_, err = address("https://headless.default.svc:9091")
	require.EqualError(t, err, "looking up the service of Prometheus: default/headless has no cluster IP: set --use-dns-for-services")
	_, err = address("https://nobody.default.svc:9091")
	require.ErrorContains(t, err, `services "nobody" not found`)
	require.NotErrorIs(t, err, risk.ErrNoPrometheus, "one that was asked for is missed")
	_, err = MetricsSource{}.options(cluster, ifPresent).Address(t.Context())
	require.ErrorIs(t, err, risk.ErrNoPrometheus)
}

// TestEvaluator has a cluster without a Prometheus, and one with.
func TestEvaluator(t *testing.T) {
	own := prometheus.NewRegistry()
	up := prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_operator_up"})
	up.Set(1)
	require.NoError(t, own.Register(up))
	server := fixture.StartQueryAPI(t)
	server.Answer("cluster_operator_up", 0)
	server.Answer("up", 1)
	evaluate := func(source MetricsSource) map[string]metav1.Condition {
		e, err := newEvaluator(clock.RealClock{}, trustCluster(t), own, []string{"cluster_version"}, source)
		require.NoError(t, err)
		var risks []configv1.ConditionalUpdateRisk
		for _, expression := range []string{"cluster_operator_up", "up", "absent(cluster_version)"} {
			risks = append(risks, configv1.ConditionalUpdateRisk{Name: expression, MatchingRules: []configv1.ClusterCondition{
				{Type: "PromQL", PromQL: &configv1.PromQLClusterCondition{PromQL: expression}},
			}})
		}
		return e.Evaluate(t.Context(), risks).Applies
	}
	without := evaluate(MetricsSource{})
	assert.Equal(t, metav1.ConditionTrue, without["cluster_operator_up"].Status)
	assert.Equal(t, metav1.ConditionTrue, without["absent(cluster_version)"].Status)
	assert.Contains(t, without["up"].Message, "(there is no Prometheus, and the operator itself does not know the metrics up)")
	with := evaluate(MetricsSource{URL: server.URL()})
	assert.Equal(t, metav1.ConditionFalse, with["cluster_operator_up"].Status)
	assert.Equal(t, metav1.ConditionTrue, with["up"].Status)

	_, err := newEvaluator(clock.RealClock{}, client.Reader(nil), own, nil, MetricsSource{URL: "prometheus"})
	require.Error(t, err)
}
