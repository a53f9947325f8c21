package operator

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"

	configv1 "github.com/openshift/api/config/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"golang.org/x/net/http/httpproxy"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/registry"
)

// egress is how the outside is reached: as the process was told by its flags and, where those say nothing, as the
// cluster's configuration has it. What the cluster does not have adds nothing.
type egress struct {
	registry.Options
}

// readEgress reads the cluster's proxy, the certificates that it trusts, its pull secret and its mirrors.
func readEgress(ctx context.Context, reader client.Reader, told registry.Options) (egress, error) {
	e, err := readNetwork(ctx, reader, told)
	if err != nil {
		return e, err
	}
	if err := e.pullSecret(ctx, reader); err != nil {
		return e, err
	}
	return e, e.mirrors(ctx, reader)
}

// readNetwork reads the cluster's proxy and the certificates that it trusts.
func readNetwork(ctx context.Context, reader client.Reader, told registry.Options) (egress, error) {
	e := egress{told}
	proxy, err := configuration(ctx, reader, &configv1.Proxy{})
	if err != nil {
		return e, err
	}
	if proxy == nil {
		proxy = &configv1.Proxy{}
	}
	e.proxy(proxy)
	return e, e.authorities(ctx, reader, proxy)
}

// proxy follows the status of Proxy cluster, which is what the network operator has checked; a cluster without one has
// it in the spec alone.
func (e *egress) proxy(proxy *configv1.Proxy) {
	config := httpproxy.Config{HTTPProxy: proxy.Status.HTTPProxy, HTTPSProxy: proxy.Status.HTTPSProxy, NoProxy: proxy.Status.NoProxy}
	if config == (httpproxy.Config{}) {
		config = httpproxy.Config{HTTPProxy: proxy.Spec.HTTPProxy, HTTPSProxy: proxy.Spec.HTTPSProxy, NoProxy: proxy.Spec.NoProxy}
	}
	if e.Proxy != nil || config.HTTPProxy == "" && config.HTTPSProxy == "" {
		return // the environment decides
	}
	choose := config.ProxyFunc()
	e.Proxy = func(req *http.Request) (*url.URL, error) { return choose(req.URL) }
}

// authorities adds the certificates of the cluster to those that are trusted anyway: the bundle that the network
// operator puts together, and the administrator's own that Proxy cluster names.
func (e *egress) authorities(ctx context.Context, reader client.Reader, proxy *configv1.Proxy) error {
	places := []client.ObjectKey{{Namespace: api.ConfigManagedNamespace, Name: api.TrustedCABundle}}
	if name := proxy.Spec.TrustedCA.Name; name != "" {
		places = append(places, client.ObjectKey{Namespace: api.ConfigNamespace, Name: name})
	}
	for _, place := range places {
		data, err := configMapData(ctx, reader, place)
		if err != nil {
			return err
		}
		bundle := data[api.CABundleKey]
		if bundle == "" {
			continue
		}
		pool := e.Authorities
		if pool == nil {
			if pool, err = x509.SystemCertPool(); err != nil {
				return fmt.Errorf("reading the system's certificates: %w", err)
			}
		}
		pool = pool.Clone()
		if !pool.AppendCertsFromPEM([]byte(bundle)) {
			return fmt.Errorf("ConfigMap %s: key %s holds no PEM certificate", place, api.CABundleKey)
		}
		e.Authorities = pool
	}
	return nil
}

// pullSecret has the cluster's credentials asked after those that the process was told, and before those of the user
// that it runs as.
func (e *egress) pullSecret(ctx context.Context, reader client.Reader) error {
	key := client.ObjectKey{Namespace: api.ConfigNamespace, Name: api.PullSecret}
	secret := &corev1.Secret{}
	switch err := reader.Get(ctx, key, secret); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading the pull secret: %w", err)
	}
	credentials, err := registry.ParsePullSecret(secret.Data[corev1.DockerConfigJsonKey])
	if err != nil {
		return fmt.Errorf("reading the pull secret %s: key %s: %w", key, corev1.DockerConfigJsonKey, err)
	}
	e.Keychain = registry.Keychains(e.Keychain, credentials, registry.DefaultKeychain())
	return nil
}

// mirrors reads the cluster's mirror sets, unless the process was told others.
func (e *egress) mirrors(ctx context.Context, reader client.Reader) error {
	if !e.Mirrors.Empty() {
		return nil
	}
	lists := []client.ObjectList{
		&configv1.ImageDigestMirrorSetList{}, &configv1.ImageTagMirrorSetList{}, &operatorv1alpha1.ImageContentSourcePolicyList{},
	}
	// The first to ask for a kind whose definition is new waits a second for the API server's cache of it.
	group, ctx := errgroup.WithContext(ctx)
	for _, list := range lists {
		group.Go(func() error {
			if err := reader.List(ctx, list); !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
				return err
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("reading the cluster's mirrors: %w", err)
	}
	var sets []runtime.Object
	for _, list := range lists {
		items, err := meta.ExtractList(list)
		if err != nil {
			return fmt.Errorf("reading the cluster's mirrors: %w", err)
		}
		sets = append(sets, items...)
	}
	var err error
	if e.Mirrors, err = registry.NewMirrors(sets...); err != nil {
		return fmt.Errorf("reading the cluster's mirrors: %w", err)
	}
	return nil
}

// configMapData is the data of a ConfigMap, empty if there is none.
func configMapData(ctx context.Context, reader client.Reader, key client.ObjectKey) (map[string]string, error) {
	cm := &corev1.ConfigMap{}
	if err := reader.Get(ctx, key, cm); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", key, err)
	}
	return cm.Data, nil
}
