package integration_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

// TestShopTeamCannotSignThePlatform uses a team's ClusterImagePolicy for its workloads, whose scope also covers the platform's repository.
// The team then signs a release. The root of trust is the vendor's keys in the running release.
//
//threat:team-writes-clusterimagepolicy
func TestShopTeamCannotSignThePlatform(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.put(imagePolicy("shop", s.host+"/platform", s.shop.pem))

	t.Run("rejects a release signed only by the shop", func(t *testing.T) {
		message := s.rejected(s.release("1.1.0", "platform/release", s.shop))
		assert.Contains(t, message, "against "+vendorKeyring+";")
		assert.NotContains(t, message, shopPolicy(s))
	})
	t.Run("rejects a release signed only by the vendor", func(t *testing.T) {
		message := s.rejected(s.release("1.1.1", "platform/release", s.vendor))
		assert.Contains(t, message, "against "+shopPolicy(s)+";")
		assert.NotContains(t, message, vendorKeyring)
	})
	t.Run("rejects a release signed by neither", func(t *testing.T) {
		message := s.rejected(s.release("1.1.2", "platform/release"))
		assert.Contains(t, message, "against "+vendorKeyring+" and "+shopPolicy(s)+";")
	})
	t.Run("applies a wildcard scope that covers the registry", func(t *testing.T) {
		wildcard := imagePolicy("wildcard", "*."+strings.SplitN(strings.Split(s.host, ":")[0], ".", 2)[1], s.other.pem)
		s.put(wildcard)
		message := s.rejected(s.release("1.1.3", "elsewhere/release", s.other))
		assert.Contains(t, message, "against "+vendorKeyring+";")
		require.NoError(t, s.client.Delete(t.Context(), wildcard))
	})
	t.Run("applies a more specific scope in addition", func(t *testing.T) {
		specific := imagePolicy("specific", s.host+"/platform/release", s.other.pem)
		s.put(specific)
		message := s.rejected(s.release("1.1.4", "platform/release", s.vendor, s.other))
		assert.Contains(t, message, "against "+shopPolicy(s)+";", "the broader policy is still required")
		require.NoError(t, s.client.Delete(t.Context(), specific))
	})
	t.Run("ignores a policy in a payload that permits its own signer", func(t *testing.T) {
		s.brings = imagePolicy("platform", s.host+"/platform/release", s.other.pem)
		message := s.rejected(s.release("1.1.5", "platform/release", s.other))
		assert.Contains(t, message, "against "+vendorKeyring+" and "+shopPolicy(s)+";")
	})
	t.Run("accepts a release signed by both", func(*testing.T) {
		s.accepted("1.1.6", s.release("1.1.6", "platform/release", s.vendor, s.shop))
	})
	t.Run("applies the policy of an accepted release", func(t *testing.T) {
		message := s.rejected(s.release("1.1.7", "platform/release", s.vendor, s.shop))
		assert.Contains(t, message, "against ClusterImagePolicy platform, scope "+s.host+"/platform/release;")
	})
	t.Run("keeps the accepted release after a failover, although its own policy rejects it", func(t *testing.T) {
		second := s.replica()
		second.logged(t, "Attempting to acquire leader lease")
		s.leader.kill()
		second.logged(t, notAccepted) // the request for 1.1.7
		configMaps := kubernetes.NewForConfigOrDie(s.env.Config("integration")).CoreV1().ConfigMaps("tiny-a")
		require.NoError(t, configMaps.Delete(t.Context(), "settings", metav1.DeleteOptions{}))
		require.Eventually(t, func() bool {
			settings, err := configMaps.Get(t.Context(), "settings", metav1.GetOptions{})
			return err == nil && settings.Data["version"] == "1.1.6"
		}, time.Minute, 50*time.Millisecond)
		s.leader = second
	})
	t.Run("accepts a release signed by all", func(*testing.T) {
		s.accepted("1.1.8", s.release("1.1.8", "platform/release", s.vendor, s.shop, s.other))
	})
	t.Run("decides the same after a failover", func(t *testing.T) {
		s.rejected(s.release("1.1.9", "platform/release", s.shop))
		second := s.replica()
		second.logged(t, "Attempting to acquire leader lease")
		s.leader.kill()
		second.logged(t, notAccepted)
		cv := s.await("the rejection by the second replica", time.Minute, func(cv *configv1.ClusterVersion) bool {
			return strings.Contains(condition(cv, api.ReleaseAccepted), vendorKeyring)
		})
		assert.Equal(t, "1.1.8", cv.Status.History[0].Version)
		assert.Equal(t, configv1.CompletedUpdate, cv.Status.History[0].State)
	})
}

// TestEditedImagePolicyIsJudgedAtOnce edits, adds and deletes ClusterImagePolicies that reject a release. The operator makes no timed attempts,
// so each change must trigger one.
//
//threat:clusterimagepolicy-edited-while
func TestEditedImagePolicyIsJudgedAtOnce(t *testing.T) {
	t.Parallel()
	s := newShopOf(t, "patient")
	policy := imagePolicy("shop", s.host+"/platform", s.shop.pem)
	s.put(policy)
	assert.Contains(t, s.rejected(s.release("1.1.0", "platform/release", s.vendor)), "against "+shopPolicy(s)+";")
	s.awaitTrigger(s.leader, policy, `{"spec":{"scopes":["`+s.host+`/platform","example.com/%d"]}}`)

	policy.Spec.Scopes[0] = configv1.ImageScope(s.host)
	require.NoError(t, s.client.Update(t.Context(), policy))
	s.await("the release to be rejected by the edited policy", patience, func(cv *configv1.ClusterVersion) bool {
		return strings.Contains(condition(cv, api.ReleaseAccepted), "against ClusterImagePolicy shop, scope "+s.host+";")
	})
	s.put(imagePolicy("second", s.host+"/platform", s.other.pem))
	s.await("the release to be rejected by both policies", patience, func(cv *configv1.ClusterVersion) bool {
		return strings.Contains(condition(cv, api.ReleaseAccepted), "ClusterImagePolicy second, scope "+s.host+"/platform")
	})
	require.NoError(t, s.client.Delete(t.Context(), imagePolicy("second", "", nil)))
	require.NoError(t, s.client.Delete(t.Context(), policy))
	s.await("1.1.0 to be accepted", patience, func(cv *configv1.ClusterVersion) bool {
		return strings.HasPrefix(condition(cv, api.ReleaseAccepted), "True|")
	})
	cv := s.await("1.1.0 to complete", time.Minute, completed("1.1.0"))
	assert.True(t, cv.Status.History[0].Verified)
}

// TestBrokenImagePolicyRejectsOnlyMatchingReleases uses a policy with a key that nothing can parse, two replicas, and a
// leader that is killed while the policy rejects a release. The policy is deleted before another replica leads.
//
//threat:clusterimagepolicy-broken
func TestBrokenImagePolicyRejectsOnlyMatchingReleases(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	broken := imagePolicy("broken", s.host+"/elsewhere", []byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"))
	s.put(broken)
	s.accepted("1.1.0", s.release("1.1.0", "platform/release", s.vendor))

	broken.Spec.Scopes[0] = configv1.ImageScope(s.host)
	require.NoError(t, s.client.Update(t.Context(), broken))
	next := s.release("1.1.1", "platform/release", s.vendor)
	s.update(configv1.Update{Image: next.ByDigest()})
	s.await("the release to be rejected by the broken policy", time.Minute, func(cv *configv1.ClusterVersion) bool {
		accepted := condition(cv, api.ReleaseAccepted)
		return strings.HasPrefix(accepted, "False|RetrievePayload|") && strings.Contains(accepted, "ClusterImagePolicy broken, scope ")
	})
	second := s.replica()
	second.logged(t, "Attempting to acquire leader lease")
	s.leader.kill()
	require.NoError(t, s.client.Delete(t.Context(), broken))
	cv := s.await("1.1.1 to complete", time.Minute, completed("1.1.1"))
	assert.True(t, cv.Status.History[0].Verified)
}

const vendorKeyring = "keyrings: verifier-public-key-platform (trust from ConfigMap openshift-config-managed/release-verification of the release)"

func shopPolicy(s *shop) string { return "ClusterImagePolicy shop, scope " + s.host + "/platform" }

// shop is a platform whose vendor signs with OpenPGP, and two teams that sign with cosign keys.
type shop struct {
	*platform
	tiny tiny
	host string
	// brings is a ClusterImagePolicy in the payload of all further releases.
	brings              *configv1.ClusterImagePolicy
	vendor, shop, other team
	// leader is the first replica of the operator; replica starts another one.
	leader  *process
	replica func() *process
}

// team is a signer with a sigstore key or with the vendor's OpenPGP key.
type team struct {
	sign func(release.Image) error
	pem  []byte
}

func newShop(t *testing.T) *shop {
	t.Helper()
	return newShopOf(t, "cvo")
}

// newShopOf returns a shop with an operator of a binary.
func newShopOf(t *testing.T, binary string) *shop {
	t.Helper()
	s := &shop{platform: newPlatform(t), tiny: newTiny(t)}
	s.host = s.registry.Host()
	s.vendor = team{sign: func(img release.Image) error {
		_, err := s.signer.WriteSignature(s.store(), img)
		return err
	}}
	for _, member := range []*team{&s.shop, &s.other} {
		key, err := fixture.NewKeySigner()
		require.NoError(t, err)
		member.pem, err = key.PublicKey()
		require.NoError(t, err)
		member.sign = func(img release.Image) error { return key.Attach(t.Context(), img) }
	}
	s.crds("config/v1", "*_clusterimagepolicies.crd.yaml")
	s.create(statusDefinition)
	first := s.release("1.0.0", "platform/release", s.vendor)
	_, err := s.run("install", "--no-operator", "--release-image", first.ByDigest(), "--trust", s.trust)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, s.files("1.0.0")))
	s.start("operators")
	s.replica = func() *process {
		return s.keep(binary, "start", "--release-image", first.ByDigest(), "--payload-dir", dir, "--listen", "", "--payload-cache", filepath.Join(s.dir, "cache"))
	}
	s.leader = s.replica()
	s.await("1.0.0 to complete", time.Minute, completed("1.0.0"))
	return s
}

// files returns the files of a release with the vendor's keyring.
func (s *shop) files(version string) fs.FS {
	s.t.Helper()
	files := fstest.MapFS{}
	maps.Copy(files, s.tiny.files(version).(fstest.MapFS))
	keys, err := s.signer.Trust("file://" + s.store())
	require.NoError(s.t, err)
	files["release-manifests/0000_90_keys_configmap.yaml"] = &fstest.MapFile{Data: keys}
	files["release-manifests/0000_05_keys_namespace.yaml"] = &fstest.MapFile{Data: []byte("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: " +
		api.ConfigManagedNamespace + "\n  annotations:\n    include.release.openshift.io/self-managed-high-availability: \"true\"\n")}
	if s.brings != nil {
		policy := s.brings.DeepCopy()
		policy.TypeMeta = metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(), Kind: "ClusterImagePolicy"}
		policy.Annotations = map[string]string{"include.release.openshift.io/self-managed-high-availability": "true"}
		data, err := yaml.Marshal(policy)
		require.NoError(s.t, err)
		files["release-manifests/0000_90_policy.yaml"] = &fstest.MapFile{Data: data}
	}
	return files
}

// release pushes a release with the signatures of signers.
func (s *shop) release(version, repository string, signers ...team) release.Image {
	s.t.Helper()
	img, err := fixture.PushRelease(s.t.Context(), s.registry, s.files(version), repository+":"+version)
	require.NoError(s.t, err)
	for _, signer := range signers {
		require.NoError(s.t, signer.sign(img))
	}
	return img
}

// rejected requests a release and returns the reason for its rejection.
func (s *shop) rejected(img release.Image) string {
	s.t.Helper()
	s.update(configv1.Update{Image: img.ByDigest()})
	cv := s.await("the release to be rejected", time.Minute, func(cv *configv1.ClusterVersion) bool {
		accepted := condition(cv, api.ReleaseAccepted)
		return strings.HasPrefix(accepted, "False|RetrievePayload|") && strings.Contains(accepted, img.ByDigest())
	})
	message := condition(cv, api.ReleaseAccepted)
	assert.Contains(s.t, message, "The update cannot be verified: unable to verify "+string(img.Digest)+" against ")
	return message
}

func (s *shop) accepted(version string, img release.Image) {
	s.t.Helper()
	s.update(configv1.Update{Image: img.ByDigest()})
	cv := s.await(version+" to complete", time.Minute, completed(version))
	assert.True(s.t, cv.Status.History[0].Verified)
}

// imagePolicy returns a ClusterImagePolicy with one scope and one public key.
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
