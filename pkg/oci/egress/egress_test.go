package egress_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	configv1 "github.com/openshift/api/config/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/oci/egress"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/oci/registry/credentials"
	"github.com/cluster-version/cvo/pkg/oci/registry/mirrorset"
)

// cluster returns a reader of a cluster with the given objects.
func cluster(t *testing.T, objects ...client.Object) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, configv1.Install, operatorv1alpha1.Install} {
		require.NoError(t, add(scheme))
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func mirrorSet() *configv1.ImageDigestMirrorSet {
	set := &configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "mirrors"}}
	set.Spec.ImageDigestMirrors = []configv1.ImageDigestMirrors{{Source: "quay.example", Mirrors: []configv1.ImageMirror{"mirror.example"}}}
	return set
}

func configMap(namespace, name, bundle string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{api.CABundleKey: bundle}}
}

func pullSecret(content string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: api.ConfigNamespace, Name: api.PullSecret},
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: []byte(content)},
	}
}

func proxyOf(t *testing.T, options registry.Options, target string) string {
	t.Helper()
	if options.Proxy == nil {
		return "environment"
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody)
	require.NoError(t, err)
	proxy, err := options.Proxy(req)
	require.NoError(t, err)
	if proxy == nil {
		return ""
	}
	return proxy.Host
}

func TestProxyOfTheClusterIsUsed(t *testing.T) {
	object := func(status, spec string) *configv1.Proxy {
		p := &configv1.Proxy{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
		p.Status.HTTPSProxy, p.Spec.HTTPSProxy = status, spec
		if status != "" {
			p.Status.NoProxy = "inside.example"
		}
		return p
	}
	fixed := func(*http.Request) (*url.URL, error) { return &url.URL{Scheme: "http", Host: "flag.example"}, nil }
	for _, tt := range []struct {
		name         string
		objects      []client.Object
		given        registry.Options
		target, want string
	}{
		{"it uses the environment if there is no Proxy", nil, registry.Options{}, "https://quay.example", "environment"},
		{"it uses the environment if the Proxy is empty", []client.Object{object("", "")}, registry.Options{}, "https://quay.example", "environment"},
		{"it uses the validated settings in the status", []client.Object{object("http://status.example", "http://spec.example")}, registry.Options{}, "https://quay.example", "status.example"},
		{"it uses the spec if the status is empty", []client.Object{object("", "http://spec.example")}, registry.Options{}, "https://quay.example", "spec.example"},
		{"it uses no proxy for excluded hosts", []client.Object{object("http://status.example", "")}, registry.Options{}, "https://inside.example", ""},
		{"it prefers the proxy from flags", []client.Object{object("http://status.example", "")}, registry.Options{Proxy: fixed}, "https://quay.example", "flag.example"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			options, err := egress.ReadNetwork(t.Context(), cluster(t, tt.objects...), tt.given)
			require.NoError(t, err)
			assert.Equal(t, tt.want, proxyOf(t, options, tt.target))
		})
	}
}

func TestAuthoritiesOfTheClusterAreTrusted(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	bundle := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	proxy := &configv1.Proxy{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	proxy.Spec.TrustedCA.Name = "user-ca-bundle"
	for _, tt := range []struct {
		name    string
		objects []client.Object
		trusted bool
	}{
		{"it trusts the network operator's bundle", []client.Object{configMap(api.ConfigManagedNamespace, api.TrustedCABundle, bundle)}, true},
		{"it trusts the administrator's bundle", []client.Object{proxy, configMap(api.ConfigNamespace, "user-ca-bundle", bundle)}, true},
		{"it ignores a bundle that no Proxy references", []client.Object{configMap(api.ConfigNamespace, "user-ca-bundle", bundle)}, false},
		{"it ignores an empty bundle", []client.Object{configMap(api.ConfigManagedNamespace, api.TrustedCABundle, "")}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			options, err := egress.ReadNetwork(t.Context(), cluster(t, tt.objects...), registry.Options{})
			require.NoError(t, err)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
			require.NoError(t, err)
			resp, err := registry.New(options).WebClient().Do(req)
			if tt.trusted {
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			} else {
				require.ErrorContains(t, err, "certificate")
			}
		})
	}
	_, err := egress.ReadNetwork(t.Context(), cluster(t, configMap(api.ConfigManagedNamespace, api.TrustedCABundle, "no PEM")), registry.Options{})
	assert.EqualError(t, err, "ConfigMap openshift-config-managed/trusted-ca-bundle: key ca-bundle.crt contains no PEM certificate")
}

func TestCredentialsAndMirrorsOfTheClusterAreUsed(t *testing.T) {
	t.Setenv("REGISTRY_AUTH_FILE", t.TempDir()+"/none")
	const secret = `{"auths": {"quay.example": {"username": "cluster", "password": "x"}, "other.example": {"username": "cluster", "password": "x"}}}`
	flag, err := credentials.ParsePullSecret([]byte(`{"auths": {"quay.example": {"username": "flag", "password": "x"}}}`))
	require.NoError(t, err)
	user := func(t *testing.T, options registry.Options, repository string) string {
		t.Helper()
		repo, err := name.NewRepository(repository)
		require.NoError(t, err)
		if options.Keychain == nil {
			return ""
		}
		found, err := authn.Resolve(t.Context(), options.Keychain, repo)
		require.NoError(t, err)
		config, err := authn.Authorization(t.Context(), found)
		require.NoError(t, err)
		return config.Username
	}

	t.Run("it prefers credentials from flags over the pull secret", func(t *testing.T) {
		options, err := egress.Read(t.Context(), cluster(t, pullSecret(secret)), registry.Options{Keychain: flag})
		require.NoError(t, err)
		assert.Equal(t, "flag", user(t, options, "quay.example/a"))
		assert.Equal(t, "cluster", user(t, options, "other.example/a"))
	})
	t.Run("it does not leak a malformed pull secret", func(t *testing.T) {
		_, err := egress.Read(t.Context(), cluster(t, pullSecret(`{"auths": hunter2}`)), registry.Options{})
		require.ErrorContains(t, err, "reading the pull secret openshift-config/pull-secret: key .dockerconfigjson: not JSON")
		assert.NotContains(t, err.Error(), "hunter2")
	})
	t.Run("it uses the cluster's mirror sets", func(t *testing.T) {
		options, err := egress.Read(t.Context(), cluster(t, mirrorSet()), registry.Options{})
		require.NoError(t, err)
		assert.True(t, options.Mirrors.Serves("mirror.example"))
	})
	t.Run("it prefers mirror sets from flags", func(t *testing.T) {
		set := mirrorSet()
		set.Spec.ImageDigestMirrors[0].Mirrors[0] = "flag.example"
		flags, err := mirrorset.New(set)
		require.NoError(t, err)
		options, err := egress.Read(t.Context(), cluster(t, mirrorSet()), registry.Options{Mirrors: flags})
		require.NoError(t, err)
		assert.True(t, options.Mirrors.Serves("flag.example"))
		assert.False(t, options.Mirrors.Serves("mirror.example"))
	})
	t.Run("it changes nothing in an empty cluster", func(t *testing.T) {
		options, err := egress.Read(t.Context(), cluster(t), registry.Options{})
		require.NoError(t, err)
		assert.Nil(t, options.Keychain)
		assert.Nil(t, options.Proxy)
		assert.Nil(t, options.Authorities)
		assert.True(t, options.Mirrors.Empty())
	})
}
