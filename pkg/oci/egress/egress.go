// Package egress reads a cluster's settings for access to external servers: its proxy, trusted certificates, pull secret, mirrors and
// insecure registries. It starts from the settings in a process's flags and fills in the missing ones. If the cluster lacks a setting, it
// stays unset.
package egress

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

	"github.com/cluster-version/cvo/internal/clusterconfig"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/oci/registry/credentials"
	"github.com/cluster-version/cvo/pkg/oci/registry/mirrorset"
)

// egress holds the settings while they are collected.
type egress struct {
	registry.Options
}

// Read fills in all settings for access to registries. given contains the settings from flags. With these settings, no credentials go over
// plain HTTP, except to loopback addresses.
func Read(ctx context.Context, reader client.Reader, given registry.Options) (registry.Options, error) {
	e := egress{given}
	if err := e.network(ctx, reader); err != nil {
		return e.Options, err
	}
	if err := e.pullSecret(ctx, reader); err != nil {
		return e.Options, err
	}
	insecure, mirrorSets, err := clusterRegistries(ctx, reader)
	if err != nil {
		return e.Options, err
	}
	e.Insecure, e.PlainCredentials = union(e.Insecure, insecure), false
	return e.Options, e.mirrors(ctx, reader, mirrorSets)
}

// ReadNetwork fills in the proxy and the trusted certificates.
func ReadNetwork(ctx context.Context, reader client.Reader, given registry.Options) (registry.Options, error) {
	e := egress{given}
	err := e.network(ctx, reader)
	return e.Options, err
}

func (e *egress) network(ctx context.Context, reader client.Reader) error {
	proxy, err := clusterconfig.Get(ctx, reader, &configv1.Proxy{})
	if err != nil {
		return err
	}
	if proxy == nil {
		proxy = &configv1.Proxy{}
	}
	e.proxy(proxy)
	return e.authorities(ctx, reader, proxy)
}

// proxy uses the status of Proxy cluster, which the network operator has validated. In clusters without that operator, only the spec has
// the settings.
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

// authorities adds the cluster's certificates to the trusted certificates: the network operator's bundle, and the
// administrator's certificates from Proxy cluster.
func (e *egress) authorities(ctx context.Context, reader client.Reader, proxy *configv1.Proxy) error {
	places := []client.ObjectKey{{Namespace: api.ConfigManagedNamespace, Name: api.TrustedCABundle}}
	if name := proxy.Spec.TrustedCA.Name; name != "" {
		places = append(places, client.ObjectKey{Namespace: api.ConfigNamespace, Name: name})
	}
	for _, place := range places {
		data, err := ConfigMapData(ctx, reader, place)
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
			return fmt.Errorf("ConfigMap %s: key %s contains no PEM certificate", place, api.CABundleKey)
		}
		e.Authorities = pool
	}
	return nil
}

// pullSecret adds the cluster's credentials. Credentials from flags take precedence over the cluster's, and the cluster's over those of
// the user that runs the process.
func (e *egress) pullSecret(ctx context.Context, reader client.Reader) error {
	key := client.ObjectKey{Namespace: api.ConfigNamespace, Name: api.PullSecret}
	secret := &corev1.Secret{}
	switch err := reader.Get(ctx, key, secret); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading the pull secret: %w", err)
	}
	found, err := credentials.ParsePullSecret(secret.Data[corev1.DockerConfigJsonKey])
	if err != nil {
		return fmt.Errorf("reading the pull secret %s: key %s: %w", key, corev1.DockerConfigJsonKey, err)
	}
	e.Keychain = credentials.First(e.Keychain, found, credentials.Default())
	return nil
}

// mirrors reads the cluster's mirror sets, unless flags specify mirror sets. sets are the mirror sets in the ConfigMap with the registries.
func (e *egress) mirrors(ctx context.Context, reader client.Reader, sets []runtime.Object) error {
	if !e.Mirrors.Empty() {
		return nil
	}
	lists := []client.ObjectList{
		&configv1.ImageDigestMirrorSetList{}, &configv1.ImageTagMirrorSetList{}, &operatorv1alpha1.ImageContentSourcePolicyList{},
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, list := range lists {
		group.Go(func() error { return clusterconfig.List(ctx, reader, list) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("reading the cluster's mirrors: %w", err)
	}
	for _, list := range lists {
		items, err := meta.ExtractList(list)
		if err != nil {
			return fmt.Errorf("reading the cluster's mirrors: %w", err)
		}
		sets = append(sets, items...)
	}
	var err error
	if e.Mirrors, err = mirrorset.New(sets...); err != nil {
		return fmt.Errorf("reading the cluster's mirrors: %w", err)
	}
	return nil
}

// ConfigMapData returns the data of a ConfigMap, empty if there is none.
func ConfigMapData(ctx context.Context, reader client.Reader, key client.ObjectKey) (map[string]string, error) {
	cm := &corev1.ConfigMap{}
	if err := reader.Get(ctx, key, cm); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", key, err)
	}
	return cm.Data, nil
}
