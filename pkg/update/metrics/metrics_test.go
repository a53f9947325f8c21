package metrics

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

	"github.com/cluster-version/cvo/pkg/update/metrics/local"
	"github.com/cluster-version/cvo/pkg/update/risk"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
)

// controlPlane is the control plane of all tests in this package.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

func newClient(t *testing.T) client.Client {
	t.Helper()
	c, err := client.New(controlPlane.For(t).Config("test"), client.Options{})
	require.NoError(t, err)
	return c
}

//threat:token-cluster-prometheus sends no token to a server outside the cluster
func TestSourceHasDefaults(t *testing.T) {
	for _, tc := range []struct {
		name    string
		source  Source
		url     string
		service string
		token   string
	}{
		{"uses OpenShift's address by default", Source{}, DefaultURL, "openshift-monitoring/thanos-querier", "token"},
		{"uses DNS if requested", Source{UseDNS: true}, DefaultURL, "", "token"},
		{"accepts a service in the cluster", Source{URL: "https://prom.mon.svc:9090/prefix"}, "https://prom.mon.svc:9090/prefix", "mon/prom", "token"},
		{"sends no token without TLS", Source{URL: "http://prom.mon.svc:9090"}, "http://prom.mon.svc:9090", "mon/prom", ""},
		{"sends no token to a server outside the cluster", Source{URL: "https://prometheus.example.com"}, "https://prometheus.example.com", "", ""},
		{"accepts an IP address", Source{URL: "http://127.0.0.1:9090"}, "http://127.0.0.1:9090", "", ""},
		{"accepts a service for another host name", Source{URL: "https://prometheus.example.com", Namespace: "mon", Service: "prom"}, "https://prometheus.example.com", "mon/prom", "token"},
		{"uses OpenShift's namespace by default", Source{Service: "prom"}, DefaultURL, "openshift-monitoring/prom", "token"},
		{"uses OpenShift's service by default", Source{Namespace: "mon"}, DefaultURL, "mon/thanos-querier", "token"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			options := tc.source.options(nil, filepath.Base)
			assert.Equal(t, tc.token, options.TokenFile)
			assert.Equal(t, tc.token != "" || tc.service != "", options.CAFile != "", "only services use the service CA")
			assert.Equal(t, tc.url, options.URL)
			assert.Equal(t, tc.service != "", options.Address != nil)
			if tc.service != "" {
				assert.Equal(t, tc.service, tc.source.service(options.URL).String())
			}
		})
	}
}

// TestConnectLooksUpTheService looks up services whose addresses come from a real API server.
func TestConnectLooksUpTheService(t *testing.T) {
	c := newClient(t)
	service := func(name, ip string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
			Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 9091}}},
		}
	}
	there := service("prom", "")
	for _, s := range []*corev1.Service{there, service("headless", corev1.ClusterIPNone)} {
		require.NoError(t, c.Create(t.Context(), s))
	}

	address := func(url string) (string, error) {
		return Source{URL: url}.options(c, ifPresent).Address(t.Context())
	}
	ip, err := address("https://prom.default.svc.cluster.local:9091")
	require.NoError(t, err)
	assert.Equal(t, there.Spec.ClusterIP, ip)
	assert.NotNil(t, net.ParseIP(ip))
	_, err = address("https://headless.default.svc:9091")
	require.EqualError(t, err, "looking up the Prometheus service: default/headless has no cluster IP; set --use-dns-for-services")
	_, err = address("https://nobody.default.svc:9091")
	require.ErrorContains(t, err, `services "nobody" not found`)
	require.NotErrorIs(t, err, risk.ErrNoPrometheus, "a configured service must exist")
	_, err = Source{}.options(c, ifPresent).Address(t.Context())
	require.ErrorIs(t, err, risk.ErrNoPrometheus)
}

// TestEvaluatorFallsBackToOwnMetrics covers a cluster without and with a Prometheus.
func TestEvaluatorFallsBackToOwnMetrics(t *testing.T) {
	own := prometheus.NewRegistry()
	up := prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_operator_up"})
	up.Set(1)
	require.NoError(t, own.Register(up))
	server := fixture.StartQueryAPI(t)
	server.Answer("cluster_operator_up", 0)
	server.Answer("up", 1)
	evaluate := func(source Source) map[string]metav1.Condition {
		server, err := source.Connect(newClient(t))
		require.NoError(t, err)
		e := local.NewEvaluator(clock.RealClock{}, server, own, []string{"cluster_version"})
		var risks []configv1.ConditionalUpdateRisk
		for _, expression := range []string{"cluster_operator_up", "up", "absent(cluster_version)"} {
			risks = append(risks, configv1.ConditionalUpdateRisk{Name: expression, MatchingRules: []configv1.ClusterCondition{
				{Type: "PromQL", PromQL: &configv1.PromQLClusterCondition{PromQL: expression}},
			}})
		}
		return e.Evaluate(t.Context(), risks).Applies
	}
	without := evaluate(Source{})
	assert.Equal(t, metav1.ConditionTrue, without["cluster_operator_up"].Status)
	assert.Equal(t, metav1.ConditionTrue, without["absent(cluster_version)"].Status)
	assert.Contains(t, without["up"].Message, "(without a Prometheus, the operator does not have the metrics up)")
	with := evaluate(Source{URL: server.URL()})
	assert.Equal(t, metav1.ConditionFalse, with["cluster_operator_up"].Status)
	assert.Equal(t, metav1.ConditionTrue, with["up"].Status)

	_, err := Source{URL: "prometheus"}.Connect(nil)
	require.Error(t, err)
}
