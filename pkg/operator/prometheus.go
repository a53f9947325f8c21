package operator

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/risk"
)

// Where an OpenShift cluster has its metrics, and what a pod may show for them.
const (
	DefaultMetricsURL  = "https://thanos-querier.openshift-monitoring.svc.cluster.local:9091"
	defaultMetricsCA   = "/etc/tls/service-ca/service-ca.crt"
	defaultMetricsAuth = "/var/run/secrets/kubernetes.io/serviceaccount/token"
)

// MetricsSource says how the Prometheus is reached against which update risks are evaluated.
type MetricsSource struct {
	// URL of its API; default DefaultMetricsURL. Where that service is not there, risks are evaluated over the operator's
	// own metrics.
	URL string
	// CAFile has the authorities of its certificate; default those of the system, or for a service of the cluster the
	// service authority of OpenShift if there is a file of it.
	CAFile string
	// TokenFile has the token to show; default none, or for a service of the cluster over https the pod's if it has one.
	// That token may do everything, so nobody else gets it without being named.
	TokenFile string
	// Namespace and Service of it, whose cluster IP is used, because a pod of the host's network may have no DNS for
	// services. If one of them is set, the other is OpenShift's; if none is, they are those that the host of URL names,
	// SERVICE.NAMESPACE.svc.
	Namespace, Service string
	// UseDNS finds the host of URL by DNS all the same.
	UseDNS bool
}

// newEvaluator returns what evaluates update risks. The metrics of known are those that the operator exports, even if
// they have no series at the moment.
func newEvaluator(clk clock.PassiveClock, reader client.Reader, own prometheus.Gatherer, known []string, source MetricsSource) (*risk.Evaluator, error) {
	server, err := risk.NewPrometheus(source.options(reader, ifPresent))
	if err != nil {
		return nil, err
	}
	return risk.New(clk, risk.OrLocal(server, risk.NewLocal(clk, own, known)), risk.Options{}), nil
}

// options are those of a client; present returns the name of a file if it is there, else nothing.
func (s MetricsSource) options(reader client.Reader, present func(string) string) risk.PrometheusOptions {
	options := risk.PrometheusOptions{URL: cmp.Or(s.URL, DefaultMetricsURL), CAFile: s.CAFile, TokenFile: s.TokenFile}
	service := s.service(options.URL)
	if service.Name == "" {
		return options
	}
	options.CAFile = cmp.Or(options.CAFile, present(defaultMetricsCA))
	if options.TokenFile == "" && strings.HasPrefix(options.URL, "https:") {
		options.TokenFile = present(defaultMetricsAuth)
	}
	if !s.UseDNS {
		options.Address = func(ctx context.Context) (string, error) {
			return clusterIP(ctx, reader, service, s.URL == "" && s.Namespace == "" && s.Service == "")
		}
	}
	return options
}

func ifPresent(file string) string {
	if _, err := os.Stat(file); err != nil {
		return ""
	}
	return file
}

// service is the service to look up; none if the URL does not name one of a cluster.
func (s MetricsSource) service(address string) client.ObjectKey {
	if s.Service != "" || s.Namespace != "" {
		return client.ObjectKey{Namespace: cmp.Or(s.Namespace, "openshift-monitoring"), Name: cmp.Or(s.Service, "thanos-querier")}
	}
	target, err := url.Parse(address)
	if err != nil {
		return client.ObjectKey{}
	}
	parts := strings.Split(target.Hostname(), ".")
	if len(parts) < 3 || parts[2] != "svc" {
		return client.ObjectKey{}
	}
	return client.ObjectKey{Namespace: parts[1], Name: parts[0]}
}

// clusterIP looks up the address of a service. If nobody has asked for this very one, its absence means that the cluster
// has no Prometheus.
func clusterIP(ctx context.Context, reader client.Reader, key client.ObjectKey, assumed bool) (string, error) {
	service := &corev1.Service{}
	switch err := reader.Get(ctx, key, service); {
	case apierrors.IsNotFound(err) && assumed:
		return "", risk.ErrNoPrometheus
	case err != nil:
		return "", fmt.Errorf("looking up the service of Prometheus: %w", err)
	case net.ParseIP(service.Spec.ClusterIP) == nil:
		return "", fmt.Errorf("looking up the service of Prometheus: %s has no cluster IP: set --use-dns-for-services", key)
	}
	return service.Spec.ClusterIP, nil
}
