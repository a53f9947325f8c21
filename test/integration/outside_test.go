package integration_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/test/fixture"
)

// source is where the releases of this test are said to be; nobody answers there.
const source = "registry.example.invalid/platform"

// TestOutside updates a cluster to releases that it reaches and verifies only by what its own configuration says:
// mirrors, a pull secret, trust policies of both kinds, and the signatures that were kept of what it ran before.
func TestOutside(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	o.operatorFromFolder()
	o.await("1.0.0 to complete", time.Minute, completed("1.0.0"))

	o.mirrored()
	o.trusts(o.trust)
	t.Run("a trust policy in the cluster", o.testTrustPolicy)
	t.Run("evidence that is kept", o.testEvidence)
	o.distrusts()
	t.Run("a ClusterImagePolicy", o.testClusterImagePolicy)
	o.trusts(o.trust)
	t.Run("an older release, properly signed", o.testReplay)
	o.distrusts()
	t.Run("signatures that are kept", o.testKeptSignatures)
}

type outside struct {
	*platform
	mirror string
	images map[string]release.Image
	keys   string
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{platform: newPlatform(t), images: map[string]release.Image{}}
	o.mirror = guarded(t, o.registry, "cluster", "secret")
	o.keys = filepath.Join(o.dir, "keys")
	_, err := o.run("release", "keygen", "--out", o.keys)
	require.NoError(t, err)
	o.trust = filepath.Join(o.keys, "trust.yaml")
	for version, folder := range map[string]string{"1.0.0": "1.0.0", "1.1.0": "1.1.0", "1.2.0": "1.1.0", "1.3.0": "1.1.0", "1.3.1": "1.1.0"} {
		tag := o.registry.Host() + "/mirrored/release:" + version
		out, err := o.run("release", "new", "--from-dir", filepath.Join("../../examples/platform", folder), "--name", version,
			"--previous", "1.0.0,1.1.0,1.2.0,1.3.0", "--created", "2026-01-01T00:00:00Z", "--to-image", tag)
		require.NoError(t, err)
		digest, _, _ := strings.Cut(out, " ")
		o.images[version] = release.Image{Pullspec: source + "/release:" + version, Digest: release.Digest(digest)}
		_, err = o.run("release", "sign", tag, "--key", filepath.Join(o.keys, "private.pem"), "--reference", source+"/release")
		require.NoError(t, err)
	}
	_, err = o.run("install", "--no-operator", "--release-image", o.registry.Host()+"/mirrored/release:1.0.0", "--trust", o.trust)
	require.NoError(t, err)
	o.crds("config/v1", "*_imagedigestmirrorsets.crd.yaml", "*_clusterimagepolicies.crd.yaml")
	require.NoError(t, configv1.Install(o.client.Scheme()))
	require.NoError(t, corev1.AddToScheme(o.client.Scheme()))
	require.NoError(t, operatorv1alpha1.Install(o.client.Scheme()))
	return o
}

// guarded is the address of a registry that lets nobody in without a password.
func guarded(t *testing.T, registry *fixture.Registry, user, password string) string {
	t.Helper()
	inner, err := url.Parse(registry.URL())
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(inner)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); !ok || u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// crds creates CustomResourceDefinitions of the API module.
func (o *outside) crds(folder string, patterns ...string) {
	o.t.Helper()
	dir, err := exec.CommandContext(o.t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api").Output()
	require.NoError(o.t, err)
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), folder, "zz_generated.crd-manifests", pattern))
		require.NoError(o.t, err)
		require.NotEmpty(o.t, files)
		o.create(files[0])
	}
}

// operatorFromFolder starts the operator as in a pod of its own release, which it is not told whom to trust.
func (o *outside) operatorFromFolder() {
	o.t.Helper()
	dir := filepath.Join(o.t.TempDir(), "release")
	_, err := o.run("release", "extract", o.registry.Host()+"/mirrored/release:1.0.0", "--layout", "image", "--to", dir)
	require.NoError(o.t, err)
	o.start("operators")
	o.start("cvo", "start", "--release-image", o.images["1.0.0"].ByDigest(), "--payload-dir", dir, "--listen", "",
		"--payload-cache", filepath.Join(o.dir, "cache"))
}

func (o *outside) put(object client.Object) {
	o.t.Helper()
	require.NoError(o.t, o.client.Create(o.t.Context(), object))
}

// mirrored configures the cluster to find the source at the mirror, and to be let in there.
func (o *outside) mirrored() {
	o.t.Helper()
	auths, err := json.Marshal(map[string]any{"auths": map[string]any{o.mirror + "/mirrored": map[string]string{"username": "cluster", "password": "secret"}}})
	require.NoError(o.t, err)
	o.put(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: api.ConfigNamespace, Name: api.PullSecret}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: auths},
	})
	o.put(&configv1.ImageDigestMirrorSet{
		ObjectMeta: metav1.ObjectMeta{Name: "platform"},
		Spec: configv1.ImageDigestMirrorSetSpec{ImageDigestMirrors: []configv1.ImageDigestMirrors{{
			Source: source, Mirrors: []configv1.ImageMirror{configv1.ImageMirror(o.mirror + "/mirrored")},
		}}},
	})
}

// trusts puts a trust file into the cluster: a document under its key, or the keys of a ConfigMap as they are.
func (o *outside) trusts(file string) {
	o.t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(o.t, err)
	cm := &corev1.ConfigMap{}
	require.NoError(o.t, yaml.Unmarshal(data, cm))
	if cm.Kind != "ConfigMap" {
		cm.Data = map[string]string{verify.TrustPolicyKey: string(data)}
	}
	cm.ObjectMeta = metav1.ObjectMeta{Namespace: api.ConfigNamespace, Name: api.TrustConfigMap}
	o.put(cm)
}

func (o *outside) distrusts() {
	o.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: api.ConfigNamespace, Name: api.TrustConfigMap}}
	require.NoError(o.t, client.IgnoreNotFound(o.client.Delete(o.t.Context(), cm)))
}

// asks asks for an update by the name that the mirrors stand in for.
func (o *outside) asks(version string) {
	o.t.Helper()
	o.update(configv1.Update{Version: version, Image: o.images[version].ByDigest()})
}

func (o *outside) testTrustPolicy(t *testing.T) {
	o.asks("1.1.0")
	cv := o.await("1.1.0 to complete", time.Minute, completed("1.1.0"))
	assert.True(t, cv.Status.History[0].Verified)
	assert.Equal(t, o.images["1.1.0"].ByDigest(), cv.Status.Desired.Image)
}

func (o *outside) testEvidence(t *testing.T) {
	var status api.ReleaseStatusStatus
	require.Eventually(t, func() bool {
		out, err := o.run("status", "--signatures", "-o", "json")
		return err == nil && json.Unmarshal([]byte(out), &status) == nil && status.Releases[0].Version == "1.1.0"
	}, 30*time.Second, 100*time.Millisecond)
	require.Len(t, status.Releases, 2)
	newest := status.Releases[0]
	assert.Equal(t, o.images["1.1.0"].ByDigest(), newest.Image)
	require.Len(t, newest.Evidence, 1)
	assert.Equal(t, verify.MethodSigstore, newest.Evidence[0].Method)
	assert.Contains(t, newest.Evidence[0].Store, o.mirror+"/mirrored/release", "the place where it was found")
	assert.Len(t, newest.Evidence[0].KeyID, 64)
	assert.Empty(t, status.Releases[1].Evidence, "nobody was asked who signed what the operator was started from")
	assert.Equal(t, api.OperatorNamespace, status.Inventory.Namespace)

	out, err := o.run("status", "--signatures")
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^1\.1\.0 .*sigstore +`+newest.Evidence[0].KeyID[:16], out)
	assert.Regexp(t, `(?m)^1\.0\.0 .*none`, out)
}

// testReplay offers a release that was properly signed, and is older. Verification says who signed, not how old.
func (o *outside) testReplay(t *testing.T) {
	o.asks("1.1.0")
	cv := o.await("1.1.0 to be weighed", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return strings.HasPrefix(condition(cv, api.ReleaseAccepted), "False|PreconditionChecks|")
	})
	assert.Contains(t, condition(cv, api.ReleaseAccepted), "1.1.0 is less than the current target 1.2.0")
}

func (o *outside) testClusterImagePolicy(t *testing.T) {
	other := filepath.Join(o.dir, "other")
	_, err := o.run("release", "keygen", "--out", other)
	require.NoError(t, err)
	key := func(dir string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, "public.pem"))
		require.NoError(t, err)
		return data
	}
	policy := &configv1.ClusterImagePolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "platform"},
		Spec: configv1.ClusterImagePolicySpec{
			Scopes: []configv1.ImageScope{source},
			Policy: configv1.ImageSigstoreVerificationPolicy{RootOfTrust: configv1.PolicyRootOfTrust{
				PolicyType: configv1.PublicKeyRootOfTrust, PublicKey: &configv1.ImagePolicyPublicKeyRootOfTrust{KeyData: key(other)},
			}},
		},
	}
	o.put(policy)
	o.asks("1.2.0")
	o.await("1.2.0 to be refused", time.Minute, func(cv *configv1.ClusterVersion) bool {
		accepted := condition(cv, api.ReleaseAccepted)
		return strings.HasPrefix(accepted, "False|RetrievePayload|") && strings.Contains(accepted, string(o.images["1.2.0"].Digest))
	})

	patch := client.MergeFrom(policy.DeepCopy())
	policy.Spec.Policy.RootOfTrust.PublicKey.KeyData = key(o.keys)
	require.NoError(t, o.client.Patch(t.Context(), policy, patch))
	cv := o.await("1.2.0 to complete", 2*time.Minute, completed("1.2.0"))
	assert.True(t, cv.Status.History[0].Verified)
	require.NoError(t, o.client.Delete(t.Context(), policy))
}

// testKeptSignatures verifies a release by a store that is gone when the cluster goes back to it.
func (o *outside) testKeptSignatures(t *testing.T) {
	for _, version := range []string{"1.3.0", "1.3.1"} {
		_, err := o.signer.WriteSignature(o.store(), o.images[version])
		require.NoError(t, err)
	}
	stores := httptest.NewServer(http.FileServer(http.Dir(o.store())))
	defer stores.Close()
	policy, err := o.signer.Trust(stores.URL)
	require.NoError(t, err)
	file := filepath.Join(o.dir, "openpgp.yaml")
	require.NoError(t, os.WriteFile(file, policy, 0o600))
	o.trusts(file)
	for _, version := range []string{"1.3.0", "1.3.1"} {
		o.asks(version)
		cv := o.await(version+" to complete", time.Minute, completed(version))
		assert.True(t, cv.Status.History[0].Verified)
	}
	var kept *unstructured.Unstructured
	require.Eventually(t, func() bool {
		kept = o.object("v1", "ConfigMap", api.ConfigManagedNamespace, verify.ManagedName)
		if kept == nil {
			return false
		}
		data, _, _ := unstructured.NestedMap(kept.Object, "binaryData")
		return len(data) == 2
	}, 30*time.Second, 100*time.Millisecond)
	assert.Contains(t, kept.GetLabels(), api.VerificationSignatureLabel)

	stores.Close()
	o.asks("1.3.0")
	cv := o.await("1.3.0 to complete again", time.Minute, completed("1.3.0"))
	assert.True(t, cv.Status.History[0].Verified, "verified by the signature that was kept")
}
