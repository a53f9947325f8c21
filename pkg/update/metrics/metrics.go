// Package metrics connects to the Prometheus of a cluster, and finds the credentials for it. It takes the settings of a process and returns the source
// that answers queries.
package metrics

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/update/metrics/source"
	"github.com/cluster-version/cvo/pkg/update/risk"
)

// Location of the metrics in an OpenShift cluster, and a pod's credentials for them.
const (
	DefaultURL   = "https://thanos-querier.openshift-monitoring.svc.cluster.local:9091"
	defaultCA    = "/etc/tls/service-ca/service-ca.crt"
	defaultToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"
)

// Source configures access to a Prometheus. The zero value uses the defaults.
type Source struct {
	// URL is the URL of the Prometheus API; DefaultURL by default.
	URL string
	// CAFile contains the CAs of the server's certificate. By default these are the CAs of the system, or OpenShift's service CA for a
	// service in the cluster, if that CA's file exists.
	CAFile string
	// TokenFile contains the bearer token. By default there is none, except for a service in the cluster with https, which gets the pod's
	// token. That token has all permissions, so other servers must not get it by default.
	TokenFile string
	// Namespace and Service identify the Service of the Prometheus. Its cluster IP is used, because a pod in the host network may be unable
	// to resolve services. If only one is set, the other has OpenShift's default. If neither is set, they come from a host
	// SERVICE.NAMESPACE.svc in URL.
	Namespace, Service string
	// UseDNS resolves the host in URL by DNS instead of using the cluster IP.
	UseDNS bool
}

// Connect returns the source of the answers. It sends no request. Queries fail with risk.ErrNoPrometheus if the default service does not exist. reader may
// be nil with UseDNS.
func (s Source) Connect(reader client.Reader) (*source.Prometheus, error) {
	return source.NewPrometheus(s.options(reader, ifPresent))
}

// options returns the client's options. present returns the name of a file if it exists, otherwise "".
func (s Source) options(reader client.Reader, present func(string) string) source.PrometheusOptions {
	options := source.PrometheusOptions{URL: cmp.Or(s.URL, DefaultURL), CAFile: s.CAFile, TokenFile: s.TokenFile}
	service := s.service(options.URL)
	if service.Name == "" {
		return options
	}
	options.CAFile = cmp.Or(options.CAFile, present(defaultCA))
	if options.TokenFile == "" && strings.HasPrefix(options.URL, "https:") {
		options.TokenFile = present(defaultToken)
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

// service returns the Service to look up; empty if the URL does not refer to a Service in the cluster.
func (s Source) service(address string) client.ObjectKey {
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

// clusterIP returns the cluster IP of a service. If the service is only the default and does not exist, the cluster has no Prometheus.
func clusterIP(ctx context.Context, reader client.Reader, key client.ObjectKey, assumed bool) (string, error) {
	service := &corev1.Service{}
	switch err := reader.Get(ctx, key, service); {
	case apierrors.IsNotFound(err) && assumed:
		return "", risk.ErrNoPrometheus
	case err != nil:
		return "", fmt.Errorf("looking up the Prometheus service: %w", err)
	case net.ParseIP(service.Spec.ClusterIP) == nil:
		return "", fmt.Errorf("looking up the Prometheus service: %s has no cluster IP; set --use-dns-for-services", key)
	}
	return service.Spec.ClusterIP, nil
}
