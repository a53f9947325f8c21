package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/insight"
)

const (
	configOperatorNamespace = "openshift-machine-config-operator"
	configOperatorName      = "machine-config-operator"

	monitoringNamespace = "openshift-monitoring"
	monitoringRoute     = "thanos-querier"
	// alertBytes bounds the answer about alerts, alertTime how long it may take.
	alertBytes = 32 << 20
	alertTime  = 30 * time.Second
	// listPage is how many objects are asked for at once.
	listPage = 500
)

// updateReader reads from a cluster what tells how an update goes.
type updateReader struct {
	clock  clock.PassiveClock
	client client.Client
}

func newUpdateReader(cfg *rest.Config, clock clock.PassiveClock) (*updateReader, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		configv1.Install, mcfgv1.Install, corev1.AddToScheme, appsv1.AddToScheme, metav1.AddMetaToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	return &updateReader{clock: clock, client: c}, nil
}

// read needs the ClusterVersion; of the rest it notes what is not there.
func (r *updateReader) read(ctx context.Context, name string) (insight.Input, error) {
	in := insight.Input{Now: r.clock.Now(), ClusterVersion: &configv1.ClusterVersion{}}
	err := r.client.Get(ctx, client.ObjectKey{Name: name}, in.ClusterVersion)
	switch {
	case meta.IsNoMatchError(err):
		return in, errors.New("this cluster has no ClusterVersions: it is not installed from a release")
	case apierrors.IsNotFound(err):
		return in, fmt.Errorf("there is no ClusterVersion %q: is it another --name, or another --context?", name)
	case err != nil:
		return in, fmt.Errorf("reading ClusterVersion %q: %w", name, err)
	}
	in.Rollout = r.rollout(ctx, name)
	s := sections{in: &in}
	in.Operators, err = listed[configv1.ClusterOperator](ctx, r.client, &configv1.ClusterOperatorList{})
	s.note(r.explain("ClusterOperators", err), insight.SectionOperators)
	in.Pools, err = listed[mcfgv1.MachineConfigPool](ctx, r.client, &mcfgv1.MachineConfigPoolList{})
	s.note(r.explain("MachineConfigPools", err), insight.SectionControlNodes, insight.SectionWorkers)
	if err != nil {
		return in, nil //nolint:nilerr // noted above; without pools nodes mean nothing
	}
	in.Nodes, err = listed[corev1.Node](ctx, r.client, &corev1.NodeList{})
	s.note(r.explain("nodes", err), insight.SectionControlNodes, insight.SectionWorkers)
	// Of the MachineConfigs, which have megabytes of files, one annotation counts.
	configs := &metav1.PartialObjectMetadataList{}
	configs.SetGroupVersionKind(mcfgv1.GroupVersion.WithKind("MachineConfigList"))
	metadata, err := listed[metav1.PartialObjectMetadata](ctx, r.client, configs)
	s.note(r.explain("MachineConfigs", err), insight.SectionWorkers)
	in.Releases = releasesOf(metadata)
	if needsConfigOperatorImage(in.Operators) {
		var deployment appsv1.Deployment
		err := r.client.Get(ctx, client.ObjectKey{Namespace: configOperatorNamespace, Name: configOperatorName}, &deployment)
		s.note(r.explain("the Deployment of the machine config operator", err), insight.SectionConfigOperator)
		if err == nil {
			in.ConfigOperatorImage = configOperatorImage(&deployment)
		}
	}
	return in, nil
}

// rollout is what the operator tells beside the ClusterVersion; nil where it does not, as other version operators do.
func (r *updateReader) rollout(ctx context.Context, name string) *api.ReleaseRollout {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(api.ReleaseRolloutVersion.WithKind(api.ReleaseRolloutKind))
	if err := r.client.Get(ctx, client.ObjectKey{Name: name}, object); err != nil {
		return nil
	}
	told := &api.ReleaseRollout{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, told); err != nil {
		return nil
	}
	return told
}

// errAbsent is about kinds that only some platforms have.
var errAbsent = errors.New("this cluster has no")

func (r *updateReader) explain(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%w %s", errAbsent, what)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("reading %s: %w: ask for a role that lets you, such as cluster-reader", what, err)
	}
	return fmt.Errorf("reading %s: %w", what, err)
}

// listed reads all objects of a kind, page by page.
func listed[T any](ctx context.Context, c client.Client, list client.ObjectList) ([]T, error) {
	var all []T
	for next := ""; ; {
		if err := c.List(ctx, list, client.Limit(listPage), client.Continue(next)); err != nil {
			return nil, err
		}
		err := meta.EachListItem(list, func(object runtime.Object) error {
			item, ok := object.(any).(*T)
			if !ok {
				return fmt.Errorf("unexpected %T in the list", object)
			}
			all = append(all, *item)
			return nil
		})
		if err != nil {
			return nil, err
		}
		if next = list.GetContinue(); next == "" {
			return all, nil
		}
	}
}

// needsConfigOperatorImage reports whether the machine config operator says which image it has updated to; otherwise
// its version tells all.
func needsConfigOperatorImage(operators []configv1.ClusterOperator) bool {
	return slices.ContainsFunc(operators, func(operator configv1.ClusterOperator) bool {
		return operator.Name == insight.ConfigOperator && slices.ContainsFunc(operator.Status.Versions, func(v configv1.OperandVersion) bool {
			return v.Name == insight.ConfigOperatorImage
		})
	})
}

func configOperatorImage(deployment *appsv1.Deployment) *string {
	for _, container := range deployment.Spec.Template.Spec.Containers {
		if container.Name == configOperatorName {
			return &container.Image
		}
	}
	return nil
}

// readAlerts asks the cluster's Prometheus, by its route, with the token of the kubeconfig's user. The certificate must
// be one that this host trusts or the cluster's own for routes: the token is worth as much as the user.
func readAlerts(ctx context.Context, cfg *rest.Config) ([]insight.Alert, error) {
	if cfg.BearerToken == "" && cfg.BearerTokenFile == "" && cfg.ExecProvider == nil && cfg.AuthProvider == nil {
		return nil, errors.New("the kubeconfig has no token, which Prometheus asks for: log in as a user who has one")
	}
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
	// The transport would show the token to whoever it is sent on to.
	asker := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := asker.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("https://%s/api/v1/alerts answers %s: the role cluster-monitoring-view lets you", host, response.Status)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, alertBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > alertBytes {
		return nil, fmt.Errorf("https://%s/api/v1/alerts answers more than %d MiB", host, alertBytes>>20)
	}
	return parseAlerts(data)
}

func alertHost(ctx context.Context, c client.Client) (string, error) {
	route := &unstructured.Unstructured{}
	route.SetGroupVersionKind(schema.GroupVersionKind{Group: "route.openshift.io", Version: "v1", Kind: "Route"})
	err := c.Get(ctx, client.ObjectKey{Namespace: monitoringNamespace, Name: monitoringRoute}, route)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return "", fmt.Errorf("this cluster has no Route %s/%s to its Prometheus", monitoringNamespace, monitoringRoute)
	}
	if err != nil {
		return "", fmt.Errorf("looking for Prometheus: %w", err)
	}
	host, _, _ := unstructured.NestedString(route.Object, "spec", "host")
	if host == "" {
		return "", fmt.Errorf("Route %s/%s has no host", monitoringNamespace, monitoringRoute) //nolint:staticcheck // a kind's name
	}
	return host, nil
}

// routeRoots are the authorities that this host trusts, and the cluster's own for its routes.
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
