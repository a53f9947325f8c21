package collect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/update/firing"
)

// Alerts queries the cluster's Prometheus through its Route, with the token of the kubeconfig's user. The token has all permissions of the
// user, so this host or the cluster's CA for Routes must trust the server's certificate. Without that Route, the error is ErrAbsent.
func Alerts(ctx context.Context, cfg *rest.Config) ([]firing.Alert, error) {
	ctx, cancel := context.WithTimeout(ctx, alertTime)
	defer cancel()
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return nil, err
	}
	host, err := alertHost(ctx, c)
	if err != nil {
		return nil, err
	}
	if cfg.BearerToken == "" && cfg.BearerTokenFile == "" && cfg.ExecProvider == nil && cfg.AuthProvider == nil {
		return nil, errors.New("the kubeconfig has no token for Prometheus: log in as a user with a token")
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.TLSClientConfig = &tls.Config{RootCAs: routeRoots(ctx, c), MinVersion: tls.VersionTLS12}
	defer base.CloseIdleConnections()
	transport, err := rest.HTTPWrappersForConfig(cfg, base)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, (&url.URL{Scheme: "https", Host: host, Path: "/api/v1/alerts"}).String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	// The transport would send the token to the target of a redirect.
	prometheus := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := prometheus.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("https://%s/api/v1/alerts returned %s: ask an administrator for ClusterRole cluster-monitoring-view", host, response.Status)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, alertBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > alertBytes {
		return nil, fmt.Errorf("https://%s/api/v1/alerts returned more than %d MiB", host, alertBytes>>20)
	}
	return ParseAlerts(data)
}

func alertHost(ctx context.Context, c client.Client) (string, error) {
	route := &unstructured.Unstructured{}
	route.SetGroupVersionKind(schema.GroupVersionKind{Group: "route.openshift.io", Version: "v1", Kind: "Route"})
	err := c.Get(ctx, client.ObjectKey{Namespace: monitoringNamespace, Name: monitoringRoute}, route)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return "", fmt.Errorf("%w Route %s/%s to its Prometheus", ErrAbsent, monitoringNamespace, monitoringRoute)
	}
	if err != nil {
		return "", fmt.Errorf("finding Prometheus: %w", err)
	}
	host, _, _ := unstructured.NestedString(route.Object, "spec", "host")
	if host == "" {
		return "", fmt.Errorf("Route %s/%s has no host", monitoringNamespace, monitoringRoute) //nolint:staticcheck // a kind's name
	}
	return host, nil
}

// routeRoots returns the CAs that this host trusts, and the cluster's own CA for Routes.
func routeRoots(ctx context.Context, c client.Client) *x509.CertPool {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	var authorities corev1.ConfigMap
	if err := c.Get(ctx, client.ObjectKey{Namespace: "openshift-config-managed", Name: "default-ingress-cert"}, &authorities); err == nil {
		roots.AppendCertsFromPEM([]byte(authorities.Data["ca-bundle.crt"]))
	}
	return roots
}
