package outside

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/test/env"
	"github.com/cluster-version/cvo/test/fixture"
)

// controlPlane is shared by all tests of the package.
var controlPlane *env.Env

func TestMain(m *testing.M) {
	env.Main(m, env.Options{Audit: env.AuditNone}, func(e *env.Env) { controlPlane = e })
}

// TestRootOfTrustFollowsItsPrecedence removes the roots one by one in order of precedence. A ClusterImagePolicy is never the root; it is
// required in addition to any root.
//
//threat:policy-less-authority
func TestRootOfTrustFollowsItsPrecedence(t *testing.T) {
	cluster := trustCluster(t)
	running := &payload.Payload{Manifests: []*manifest.Manifest{releaseKeys(t, "verifier-public-key-release")}}
	file, err := policy.Parse("file.pub", publicKeyPEM(t))
	require.NoError(t, err)
	policyOf := func(options Options, running *payload.Payload) (policy.Policy, error) {
		outside, err := Open(t.Context(), nil, cluster, &configv1.ClusterVersion{}, options)
		require.NoError(t, err)
		return outside.trust(t.Context(), requested, running)
	}
	demands := func(options Options) []string {
		p, err := policyOf(options, running)
		require.NoError(t, err)
		return demanded(p)
	}

	inCluster := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: api.ConfigNamespace, Name: api.TrustConfigMap},
		Data: map[string]string{policy.DocumentKey: "apiVersion: cvo.cluster-version.github.io/v1alpha1\nkind: TrustPolicy\nspec:\n  sigstore:\n" +
			"    publicKeys:\n    - name: cluster\n      pem: |\n        " + strings.ReplaceAll(string(publicKeyPEM(t)), "\n", "\n        ")},
	}
	put(t, cluster, inCluster)
	put(t, cluster, imagePolicy("elsewhere", "registry.example/another", publicKeyPEM(t)))
	put(t, cluster, imagePolicy("shop", "registry.example/platform", publicKeyPEM(t)))
	// A copy of a release's ConfigMap. Its writers must not be able to choose the next release.
	live := releaseKeys(t, "verifier-public-key-live")
	put(t, cluster, live.Object)

	shop := "ClusterImagePolicy shop"
	assert.Equal(t, []string{"file", shop}, demands(Options{Policy: &file}), "the trust file of the process comes first")
	assert.Equal(t, []string{"cluster", shop}, demands(Options{}), "the trust policy in the cluster comes second")

	broken := inCluster.DeepCopy()
	broken.Data[policy.DocumentKey] = strings.Replace(broken.Data[policy.DocumentKey], "sigstore:", "sigstorr:", 1)
	require.NoError(t, cluster.Update(t.Context(), broken))
	_, err = policyOf(Options{}, running)
	require.ErrorContains(t, err, "unknown field", "an unreadable root is not skipped")

	require.NoError(t, cluster.Delete(t.Context(), inCluster))
	assert.Equal(t, []string{"verifier-public-key-release", shop}, demands(Options{}), "the keys come from the files of the running release, not from the ConfigMap in the cluster")

	for name, running := range map[string]*payload.Payload{"without a running release": nil, "with a running release without keys": {}} {
		_, err = policyOf(Options{}, running)
		require.ErrorIs(t, err, policy.ErrNone, name)
		require.ErrorContains(t, err, "ClusterImagePolicy shop, scope registry.example/platform only adds requirements to one", name)
		require.ErrorContains(t, err, "'cvo trust from-image-policy shop'", name)
	}

	require.NoError(t, cluster.Delete(t.Context(), imagePolicy("shop", "", nil)))
	assert.Equal(t, []string{"verifier-public-key-release"}, demands(Options{}))
	_, err = policyOf(Options{}, nil)
	require.ErrorIs(t, err, policy.ErrNone)
}

// TestEveryMatchingImagePolicyIsRequired uses policies with scopes of every width. In container runtimes, a policy with a more specific
// scope would replace the others.
//
//threat:team-writes-clusterimagepolicy
func TestEveryMatchingImagePolicyIsRequired(t *testing.T) {
	cluster := trustCluster(t)
	file, err := policy.Parse("file.pub", publicKeyPEM(t))
	require.NoError(t, err)
	for name, scope := range map[string]string{
		"wildcard": "*.example", "host": "registry.example", "repository": "registry.example/platform/release", "other": "registry.example/shop",
	} {
		put(t, cluster, imagePolicy(name, scope, publicKeyPEM(t)))
	}
	outside, err := Open(t.Context(), nil, cluster, &configv1.ClusterVersion{}, Options{Policy: &file})
	require.NoError(t, err)
	demands, err := outside.trust(t.Context(), requested, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"file", "ClusterImagePolicy repository", "ClusterImagePolicy host", "ClusterImagePolicy wildcard"}, demanded(demands))
}

// TestManyImagePoliciesAreReadInPages creates more policies of other repositories than a page has, one of them large, and
// then too many for the requested one.
//
//threat:clusterimagepolicy-flood
func TestManyImagePoliciesAreReadInPages(t *testing.T) {
	cluster := trustCluster(t)
	key := publicKeyPEM(t)
	for i := range 2*imagePolicyPage + 5 {
		put(t, cluster, imagePolicy(fmt.Sprint("shop-", i), "registry.example/shop", key))
	}
	large := imagePolicy("z-large", "registry.example/platform", key)
	large.Annotations = map[string]string{"a": strings.Repeat("x", 200_000)}
	put(t, cluster, large)
	matching, err := MatchingImagePolicies(t.Context(), cluster, requested.Pullspec)
	require.NoError(t, err)
	require.Len(t, matching, 1)
	assert.Equal(t, "ClusterImagePolicy z-large, scope registry.example/platform", matching[0].Name)

	for i := range maxMatchingImagePolicies {
		put(t, cluster, imagePolicy(fmt.Sprint("flood-", i), "registry.example", key))
	}
	_, err = MatchingImagePolicies(t.Context(), cluster, requested.Pullspec)
	require.ErrorContains(t, err, "more than 100 match registry.example/platform/release:2: delete some, or narrow their scopes")
}

var requested = release.Image{Pullspec: "registry.example/platform/release:2", Digest: release.Digest("sha256:" + strings.Repeat("ab", 32))}

// demanded returns the names of a policy's roots and of its additional policies.
func demanded(p policy.Policy) []string {
	var names []string
	for _, k := range p.Keyrings {
		names = append(names, k.Name)
	}
	for _, k := range p.SigstoreKeys {
		names = append(names, k.Name)
	}
	for _, a := range p.Authorities {
		names = append(names, a.Name)
	}
	for _, a := range p.Additional {
		names = append(names, demanded(a)...)
	}
	return names
}

// TestForbiddenTrustPoliciesAreAnError uses a cluster in which the operator may not read the trust policies.
//
//threat:policy-less-authority
func TestForbiddenTrustPoliciesAreAnError(t *testing.T) {
	trustCluster(t)
	unknown, err := controlPlane.For(t).User("blind-operator")
	require.NoError(t, err)
	blind, err := client.New(unknown, client.Options{Scheme: trustScheme(t)})
	require.NoError(t, err)
	running := &payload.Payload{Manifests: []*manifest.Manifest{releaseKeys(t, "verifier-public-key-release")}}
	_, err = (&Outside{reader: blind}).trust(t.Context(), release.Image{Pullspec: "registry.example/platform/release:2"}, running)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}

func trustScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, configv1.Install, operatorv1alpha1.Install, apiextensionsv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	return scheme
}

// trustCluster is the shared control plane with the definitions and namespaces for trust policies.
func trustCluster(t *testing.T) client.Client {
	t.Helper()
	controlPlane.For(t).Serve(t, "0000_10_config-operator_01_clusterimagepolicies.crd.yaml")
	cluster, err := client.New(controlPlane.For(t).Config("test"), client.Options{Scheme: trustScheme(t)})
	require.NoError(t, err)
	for _, name := range []string{api.ConfigNamespace, api.ConfigManagedNamespace} {
		err := cluster.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		require.True(t, err == nil || apierrors.IsAlreadyExists(err), "%v", err)
	}
	return cluster
}

// put creates an object for the duration of the test.
func put(t *testing.T, cluster client.Client, object client.Object) {
	t.Helper()
	require.NoError(t, cluster.Create(t.Context(), object))
	ctx := context.WithoutCancel(t.Context()) // it ends before the cleanup
	t.Cleanup(func() { _ = cluster.Delete(ctx, object) })
}

func imagePolicy(name, scope string, key []byte) *configv1.ClusterImagePolicy {
	return &configv1.ClusterImagePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: configv1.ClusterImagePolicySpec{
			Scopes: []configv1.ImageScope{configv1.ImageScope(scope)},
			Policy: configv1.ImageSigstoreVerificationPolicy{RootOfTrust: configv1.PolicyRootOfTrust{
				PolicyType: configv1.PublicKeyRootOfTrust, PublicKey: &configv1.ImagePolicyPublicKeyRootOfTrust{KeyData: key},
			}},
		},
	}
}

// releaseKeys returns the ConfigMap with the keyring of a release.
func releaseKeys(t *testing.T, key string) *manifest.Manifest {
	t.Helper()
	signer, err := fixture.NewSigner("vendor", fixture.SignerOptions{})
	require.NoError(t, err)
	keyring, err := signer.PublicKey()
	require.NoError(t, err)
	data, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"namespace": api.ConfigManagedNamespace, "name": "release-verification",
			"annotations": map[string]string{api.VerificationAnnotation: ""},
		},
		"data": map[string]string{key: string(keyring), "store-a": "https://signatures.example/a"},
	})
	require.NoError(t, err)
	object := &unstructured.Unstructured{}
	require.NoError(t, object.UnmarshalJSON(data))
	return &manifest.Manifest{File: "0000_90_keys_configmap.yaml", Document: 1, Object: object}
}

func publicKeyPEM(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}
