package integration_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
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
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/store"
	"github.com/cluster-version/cvo/test/fixture"
)

// source is the official location of the releases of this test. No server responds there.
const source = "registry.example.invalid/platform"

// TestUpdateUsesTheClustersOwnConfiguration updates a cluster to releases that it can reach and verify only with its own configuration:
// mirrors, a pull secret, trust policies of both kinds, and the stored signatures of earlier releases.
//
//threat:clusterimagepolicy-only-policy requires more than a ClusterImagePolicy
func TestUpdateUsesTheClustersOwnConfiguration(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	o.operatorFromFolder()
	o.await("1.0.0 to complete", time.Minute, completed("1.0.0"))

	o.mirrored()
	o.setTrust(o.trust)
	t.Run("uses the trust policy in the cluster", o.testTrustPolicy)
	t.Run("stores the evidence", o.testEvidence)
	o.removeTrust()
	t.Run("requires more than a ClusterImagePolicy", o.testClusterImagePolicy)
	o.setTrust(o.trust)
	t.Run("rejects a properly signed older release", o.testReplay)
	o.removeTrust()
	t.Run("uses stored signatures", o.testKeptSignatures)
}

type outside struct {
	*platform
	// mirror is the host of the mirror, and repository its counterpart of source.
	mirror, repository string
	images             map[string]release.Image
	keys               string
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{platform: newPlatform(t), repository: "mirrored", images: map[string]release.Image{}}
	o.mirror = guarded(t, o.registry, "cluster", "secret")
	o.keys = filepath.Join(o.dir, "keys")
	_, err := o.run("release", "keygen", "--out", o.keys)
	require.NoError(t, err)
	o.trust = filepath.Join(o.keys, "trust.yaml")
	for version, folder := range map[string]string{"1.0.0": "1.0.0", "1.1.0": "1.1.0", "1.2.0": "1.1.0", "1.3.0": "1.1.0", "1.3.1": "1.1.0"} {
		tag := o.registry.Host() + "/mirrored/release:" + version
		out, err := o.run("release", "new", "--from-dir", filepath.Join("../../examples/platform", folder), "--name", version,
			"--previous", "1.0.0,1.1.0,1.2.0,1.3.0", "--no-operator", "--created", "2026-01-01T00:00:00Z", "--to-image", tag)
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

// guarded returns the address of a registry that requires a password.
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

// operatorFromFolder starts the operator without a trust policy, as in a pod of its own release.
func (o *outside) operatorFromFolder() {
	o.t.Helper()
	dir := filepath.Join(o.t.TempDir(), "release")
	_, err := o.run("release", "extract", o.registry.Host()+"/mirrored/release:1.0.0", "--layout", "image", "--to", dir)
	require.NoError(o.t, err)
	o.start("operators")
	o.keep("cvo", "start", "--release-image", o.images["1.0.0"].ByDigest(), "--payload-dir", dir, "--listen", "",
		"--payload-cache", filepath.Join(o.dir, "cache"))
}

// mirrored configures the cluster to use the mirror of the source, with its credentials.
func (o *outside) mirrored() {
	o.t.Helper()
	auths, err := json.Marshal(map[string]any{"auths": map[string]any{o.mirror + "/" + o.repository: map[string]string{"username": "cluster", "password": "secret"}}})
	require.NoError(o.t, err)
	o.put(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: api.ConfigNamespace, Name: api.PullSecret}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: auths},
	})
	o.put(&configv1.ImageDigestMirrorSet{
		ObjectMeta: metav1.ObjectMeta{Name: "platform"},
		Spec: configv1.ImageDigestMirrorSetSpec{ImageDigestMirrors: []configv1.ImageDigestMirrors{{
			Source: source, Mirrors: []configv1.ImageMirror{configv1.ImageMirror(o.mirror + "/" + o.repository)},
		}}},
	})
}

// setTrust stores a trust file in the cluster: a document under its key, or the keys of a ConfigMap unchanged.
func (o *outside) setTrust(file string) {
	o.t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(o.t, err)
	cm := &corev1.ConfigMap{}
	require.NoError(o.t, yaml.Unmarshal(data, cm))
	if cm.Kind != "ConfigMap" {
		cm.Data = map[string]string{policy.DocumentKey: string(data)}
	}
	cm.ObjectMeta = metav1.ObjectMeta{Namespace: api.ConfigNamespace, Name: api.TrustConfigMap}
	o.put(cm)
}

func (o *outside) removeTrust() {
	o.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: api.ConfigNamespace, Name: api.TrustConfigMap}}
	require.NoError(o.t, client.IgnoreNotFound(o.client.Delete(o.t.Context(), cm)))
}

// requestUpdate requests an update by the source's name, which the mirrors replace.
func (o *outside) requestUpdate(version string) {
	o.t.Helper()
	o.update(configv1.Update{Version: version, Image: o.images[version].ByDigest()})
}

func (o *outside) testTrustPolicy(t *testing.T) {
	o.requestUpdate("1.1.0")
	cv := o.await("1.1.0 to complete", time.Minute, completed("1.1.0"))
	assert.True(t, cv.Status.History[0].Verified)
	assert.Equal(t, o.images["1.1.0"].ByDigest(), cv.Status.Desired.Image)
}

func (o *outside) testEvidence(t *testing.T) {
	var status api.ReleaseStatusStatus
	require.Eventually(t, func() bool {
		out, err := o.run("status", "--signatures", "-o", "json")
		return err == nil && json.Unmarshal([]byte(out), &status) == nil && status.Releases[0].Version == "1.1.0"
	}, patience, 100*time.Millisecond)
	require.Len(t, status.Releases, 2)
	newest := status.Releases[0]
	assert.Equal(t, o.images["1.1.0"].ByDigest(), newest.Image)
	require.Len(t, newest.Evidence, 1)
	assert.Equal(t, verify.MethodSigstore, newest.Evidence[0].Method)
	assert.Contains(t, newest.Evidence[0].Store, o.mirror+"/mirrored/release", "the evidence names the store")
	assert.Len(t, newest.Evidence[0].KeyID, 64)
	assert.Empty(t, status.Releases[1].Evidence, "no signature store was contacted for the operator's own release")
	assert.Equal(t, api.OperatorNamespace, status.Inventory.Namespace)

	out, err := o.run("status", "--signatures")
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^1\.1\.0 .*sigstore +`+newest.Evidence[0].KeyID[:16], out)
	assert.Regexp(t, `(?m)^1\.0\.0 .*none`, out)
}

// testReplay offers an older release with a valid signature. Verification proves the signer, not the age.
func (o *outside) testReplay(t *testing.T) {
	o.requestUpdate("1.1.0")
	cv := o.await("1.1.0 to be rejected", time.Minute, func(cv *configv1.ClusterVersion) bool {
		return strings.HasPrefix(condition(cv, api.ReleaseAccepted), "False|PreconditionChecks|")
	})
	assert.Contains(t, condition(cv, api.ReleaseAccepted), "1.1.0 is less than the current target 1.2.0")
}

// testClusterImagePolicy has only a ClusterImagePolicy, which is not a root of trust, until a trust policy is created from it.
func (o *outside) testClusterImagePolicy(t *testing.T) {
	key, err := os.ReadFile(filepath.Join(o.keys, "public.pem"))
	require.NoError(t, err)
	policy := imagePolicy("platform", source, key)
	o.put(policy)
	o.requestUpdate("1.2.0")
	cv := o.await("1.2.0 to be rejected", time.Minute, func(cv *configv1.ClusterVersion) bool {
		accepted := condition(cv, api.ReleaseAccepted)
		return strings.HasPrefix(accepted, "False|RetrievePayload|") && strings.Contains(accepted, o.images["1.2.0"].ByDigest())
	})
	assert.Contains(t, condition(cv, api.ReleaseAccepted), "no root of trust is configured: ClusterImagePolicy platform, scope "+source+" only adds requirements to one")
	assert.Contains(t, condition(cv, api.ReleaseAccepted), "'cvo trust from-image-policy platform'")

	printed, err := o.run("trust", "from-image-policy", "platform")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "trust.yaml")
	require.NoError(t, os.WriteFile(file, []byte(printed), 0o600))
	o.setTrust(file)
	cv = o.await("1.2.0 to complete", 2*time.Minute, completed("1.2.0"))
	assert.True(t, cv.Status.History[0].Verified)
	require.NoError(t, o.client.Delete(t.Context(), policy))
	o.removeTrust()
}

// testKeptSignatures verifies a release whose signature store no longer exists when the cluster returns to it.
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
	o.setTrust(file)
	for _, version := range []string{"1.3.0", "1.3.1"} {
		o.requestUpdate(version)
		cv := o.await(version+" to complete", time.Minute, completed(version))
		assert.True(t, cv.Status.History[0].Verified)
	}
	var kept *unstructured.Unstructured
	require.Eventually(t, func() bool {
		kept = o.object("v1", "ConfigMap", api.ConfigManagedNamespace, store.ManagedName)
		if kept == nil {
			return false
		}
		data, _, _ := unstructured.NestedMap(kept.Object, "binaryData")
		return len(data) == 2
	}, patience, 100*time.Millisecond)
	assert.Contains(t, kept.GetLabels(), api.VerificationSignatureLabel)

	stores.Close()
	o.requestUpdate("1.3.0")
	cv := o.await("1.3.0 to complete again", time.Minute, completed("1.3.0"))
	assert.True(t, cv.Status.History[0].Verified, "verified with the stored signature")
}
