package operator

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
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
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/test/fixture"
)

// TestWhoseTrustHolds takes away one policy after the other, from what is most the administrator's to what is least, and
// looks whose keys are asked for then.
func TestWhoseTrustHolds(t *testing.T) {
	cluster := trustCluster(t)
	asked := release.Image{Pullspec: "registry.example/platform/release:2", Digest: release.Digest("sha256:" + strings.Repeat("ab", 32))}
	running := &payload.Payload{Manifests: []*manifest.Manifest{releaseKeys(t, "verifier-public-key-release")}}
	told, err := verify.ParseTrust("told.pub", publicKeyPEM(t))
	require.NoError(t, err)
	holds := func(options Options, running *payload.Payload) (verify.Policy, error) {
		outside, err := OpenOutside(t.Context(), nil, cluster, &configv1.ClusterVersion{}, options)
		require.NoError(t, err)
		return outside.policy(t.Context(), asked, running)
	}
	roots := func(options Options) []string {
		policy, err := holds(options, running)
		require.NoError(t, err)
		var names []string
		for _, k := range policy.Keyrings {
			names = append(names, k.Name)
		}
		for _, k := range policy.SigstoreKeys {
			names = append(names, k.Name)
		}
		for _, a := range policy.Authorities {
			names = append(names, a.Name)
		}
		return names
	}

	inCluster := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: api.ConfigNamespace, Name: api.TrustConfigMap},
		Data: map[string]string{verify.TrustPolicyKey: "apiVersion: cvo.cluster-version.github.io/v1alpha1\nkind: TrustPolicy\nspec:\n  sigstore:\n" +
			"    publicKeys:\n    - name: cluster\n      pem: |\n        " + strings.ReplaceAll(string(publicKeyPEM(t)), "\n", "\n        ")},
	}
	put(t, cluster, inCluster)
	put(t, cluster, imagePolicy("elsewhere", "registry.example/another", publicKeyPEM(t)))
	put(t, cluster, imagePolicy("platform", "registry.example/platform", publicKeyPEM(t)))
	// Whoever may write this one must not choose the next release: it is a copy of what a release brought.
	live := releaseKeys(t, "verifier-public-key-live")
	put(t, cluster, live.Object)

	assert.Equal(t, []string{"told"}, roots(Options{Policy: &told}), "the file that the process was told")
	assert.Equal(t, []string{"cluster"}, roots(Options{}), "the trust policy in the cluster")

	broken := inCluster.DeepCopy()
	broken.Data[verify.TrustPolicyKey] = strings.Replace(broken.Data[verify.TrustPolicyKey], "sigstore:", "sigstorr:", 1)
	require.NoError(t, cluster.Update(t.Context(), broken))
	_, err = holds(Options{}, running)
	require.ErrorContains(t, err, "unknown field", "one that cannot be read does not make room for others")

	require.NoError(t, cluster.Delete(t.Context(), inCluster))
	assert.Equal(t, []string{"ClusterImagePolicy platform"}, roots(Options{}), "the ClusterImagePolicy whose scope is the image's")

	require.NoError(t, cluster.Delete(t.Context(), imagePolicy("platform", "", nil)))
	assert.Equal(t, []string{"verifier-public-key-release"}, roots(Options{}), "the keys in the files of the running release, not those of its object")

	_, err = holds(Options{}, nil)
	require.ErrorIs(t, err, verify.ErrNoPolicy)
	_, err = holds(Options{}, &payload.Payload{})
	require.ErrorIs(t, err, verify.ErrNoPolicy, "and nobody else's")
}

// TestNobodyIsAskedWhomTheClusterRefuses has a cluster that does not let the operator read who is trusted.
func TestNobodyIsAskedWhomTheClusterRefuses(t *testing.T) {
	trustCluster(t)
	blind, err := client.New(userNamed(t, "blind-operator"), client.Options{Scheme: trustScheme(t)})
	require.NoError(t, err)
	running := &payload.Payload{Manifests: []*manifest.Manifest{releaseKeys(t, "verifier-public-key-release")}}
	_, err = (&Outside{reader: blind}).policy(t.Context(), release.Image{Pullspec: "registry.example/platform/release:2"}, running)
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

// trustCluster is the shared control plane with what policies of trust need.
func trustCluster(t *testing.T) client.Client {
	t.Helper()
	serveKind(t, "0000_10_config-operator_01_clusterimagepolicies.crd.yaml")
	cluster, err := client.New(controlPlane.Config("test"), client.Options{Scheme: trustScheme(t)})
	require.NoError(t, err)
	for _, name := range []string{api.ConfigNamespace, api.ConfigManagedNamespace} {
		err := cluster.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		require.True(t, err == nil || apierrors.IsAlreadyExists(err), "%v", err)
	}
	return cluster
}

// put creates an object for the time of the test.
func put(t *testing.T, cluster client.Client, object client.Object) {
	t.Helper()
	require.NoError(t, cluster.Create(t.Context(), object))
	t.Cleanup(func() { _ = cluster.Delete(t.Context(), object) })
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

// releaseKeys is the ConfigMap with which a release brings its keyring.
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
	return pemOf("PUBLIC KEY", der)
}
