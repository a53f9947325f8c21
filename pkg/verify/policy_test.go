package verify_test

import (
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/openpgp"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
	"github.com/cluster-version/cvo/pkg/verify/store"
)

func TestNewRejectsUnusablePolicies(t *testing.T) {
	key, err := sigstore.NewPublicKey("team", pemKey(t))
	require.NoError(t, err)
	alice := keyring(t, "vendor", newEntity(t, "alice"))
	for _, test := range []struct {
		name  string
		trust policy.Policy
		want  string
	}{
		{"a policy without signers", policy.Policy{}, "no image is accepted"},
		{"a named policy without signers", policy.Policy{Name: "x"}, "trust policy x lists no key"},
		{"keyrings without stores", policy.Policy{Keyrings: []openpgp.Keyring{alice}}, "add a URL to spec.openpgp.stores"},
		{"public keys without a registry", policy.Policy{SigstoreKeys: []sigstore.PublicKey{key}}, "the image's registry cannot be searched"},
		{"a zero keyring", policy.Policy{Keyrings: []openpgp.Keyring{{Name: "a"}}, Stores: []string{"https://x"}}, "create it with NewKeyring"},
		{"a zero public key", policy.Policy{SigstoreKeys: []sigstore.PublicKey{{Name: "a"}}}, "create it with NewPublicKey"},
		{"two roots of one name", policy.Policy{Keyrings: []openpgp.Keyring{alice, alice}, Stores: []string{"https://x"}}, "two keys named"},
	} {
		t.Run("it rejects "+test.name, func(t *testing.T) {
			v, err := verify.New(test.trust, verify.Sources{}, nil)
			assert.Nil(t, v)
			require.ErrorContains(t, err, test.want)
			if test.trust.Empty() {
				assert.ErrorIs(t, err, policy.ErrNone)
			}
		})
	}
}

//threat:policy-less-authority
func TestZeroVerifierAcceptsNothing(t *testing.T) {
	for _, v := range []*verify.Verifier{nil, {}} {
		_, err := v.Verify(t.Context(), image())
		require.ErrorIs(t, err, policy.ErrNone)
	}
}

//threat:force
func TestForceUnsafeRecordsTheSkippedError(t *testing.T) {
	forced := verify.ForceUnsafe(image(), verify.ErrUnverified)
	assert.Equal(t, release.Verified{Image: image(), Forced: verify.ErrUnverified}, forced)
	assert.Error(t, verify.ForceUnsafe(image(), nil).Forced)
}

//threat:team-writes-clusterimagepolicy
func TestAdditionalPoliciesMustBeSatisfiedToo(t *testing.T) {
	vendor, shop, platform := newEntity(t, "vendor"), newKey(t, "P-256"), newKey(t, "P-256")
	root := policy.Policy{Name: "the release", Keyrings: []openpgp.Keyring{keyring(t, "vendor", vendor)}}
	shopPolicy := policy.Policy{Name: "ClusterImagePolicy shop, scope *.example", SigstoreKeys: []sigstore.PublicKey{publicKey(t, "key", shop)}}
	platformPolicy := policy.Policy{Name: "ClusterImagePolicy platform, scope registry.example", SigstoreKeys: []sigstore.PublicKey{publicKey(t, "key", platform)}}
	threshold := policy.Policy{
		Name: "trust.yaml", SigstoreKeys: []sigstore.PublicKey{publicKey(t, "key", platform), publicKey(t, "spare", newKey(t, "P-256"))},
		Thresholds: []policy.Threshold{{Name: "one-of-two", Required: 1, Members: []string{"key", "spare"}}},
	}
	byVendor := sign(t, vendor, claim(digest))
	byShop, byPlatform := tagged(t, shop, simpleSigning(digest)), tagged(t, platform, simpleSigning(digest))
	with := func(p policy.Policy, additional ...policy.Policy) policy.Policy {
		p.Additional = additional
		return p
	}
	for _, test := range []struct {
		name    string
		trust   policy.Policy
		message []byte
		found   []release.Attachment
		refusal string
	}{
		{"it accepts the root and the policy", with(root, shopPolicy), byVendor, []release.Attachment{byShop}, ""},
		{"it accepts the root and both policies, even if their keys have the same name", with(root, shopPolicy, platformPolicy), byVendor, []release.Attachment{byShop, byPlatform}, ""},
		{"it accepts one signature for the root and the policy", with(platformPolicy, threshold), nil, []release.Attachment{byPlatform}, ""},
		{"it rejects the policy alone", with(root, shopPolicy), nil, []release.Attachment{byShop}, "against keyrings: vendor (trust from the release);"},
		{"it rejects the root alone", with(root, shopPolicy), byVendor, nil, "against ClusterImagePolicy shop, scope *.example;"},
		{"it rejects an unsigned image", with(root, shopPolicy), nil, nil, "against keyrings: vendor (trust from the release) and ClusterImagePolicy shop, scope *.example;"},
		{"it rejects the root and one of two policies", with(root, shopPolicy, platformPolicy), byVendor, []release.Attachment{byPlatform}, "against ClusterImagePolicy shop, scope *.example;"},
		{"it does not count a policy's key for a threshold of the root", with(threshold, shopPolicy), nil, []release.Attachment{byShop}, "against threshold one-of-two: 0 of 1 signers, missing from key, spare (trust from trust.yaml);"},
		{"it does not count a root's key of the same name for a policy", with(threshold, shopPolicy), nil, []release.Attachment{byPlatform}, "against ClusterImagePolicy shop, scope *.example;"},
	} {
		t.Run(test.name, func(t *testing.T) {
			local := memory{name: "memory"}
			if test.message != nil {
				local.messages = [][]byte{test.message}
			}
			verifier := newVerifier(t, test.trust, verify.Sources{Attachments: attachments{found: test.found}, Local: []store.Store{local}})
			_, err := verifier.Verify(t.Context(), image())
			if test.refusal == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, verify.ErrUnverified)
			require.ErrorContains(t, err, test.refusal)
		})
	}
}

// TestInvalidPoliciesDoNotHideOtherRequirements stores policies that an older definition of ClusterImagePolicy accepts.
//
//threat:clusterimagepolicy-broken
func TestInvalidPoliciesDoNotHideOtherRequirements(t *testing.T) {
	object := func(name string, key []byte, match configv1.IdentityMatchPolicy) configv1.ClusterImagePolicy {
		return configv1.ClusterImagePolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: configv1.ClusterImagePolicySpec{
			Scopes: []configv1.ImageScope{"registry.example"},
			Policy: configv1.ImageSigstoreVerificationPolicy{
				RootOfTrust:    configv1.PolicyRootOfTrust{PolicyType: configv1.PublicKeyRootOfTrust, PublicKey: &configv1.ImagePolicyPublicKeyRootOfTrust{KeyData: key}},
				SignedIdentity: &configv1.PolicyIdentity{MatchPolicy: match},
			},
		}}
	}
	shop := newKey(t, "P-256")
	matching, err := policy.ClusterImagePolicies{
		object("b1", pemKey(t), "Bogus"), object("b2", []byte("x"), "MatchRepository"), object("u1", pemKey(t), "MatchRepository"),
	}.Matching("registry.example/platform/release:1")
	require.NoError(t, err)
	root := policy.Policy{Name: "trust.yaml", SigstoreKeys: []sigstore.PublicKey{publicKey(t, "release", shop)}, Additional: matching}
	refusal := func(found ...release.Attachment) string {
		_, err := newVerifier(t, root, verify.Sources{Attachments: attachments{found: found}}).Verify(t.Context(), image())
		require.ErrorIs(t, err, verify.ErrUnverified)
		return err.Error()
	}
	const invalid = `ClusterImagePolicy b1, scope registry.example (invalid: trust policy ClusterImagePolicy b1: public key "ClusterImagePolicy b1": signedIdentity: matchPolicy "Bogus" is unknown`
	unsigned := refusal()
	assert.Contains(t, unsigned, "against public keys: release (trust from trust.yaml) and "+invalid)
	assert.Contains(t, unsigned, "and ClusterImagePolicy b2, scope registry.example (invalid: ")
	assert.Contains(t, unsigned, "and ClusterImagePolicy u1, scope registry.example;")

	root.Additional = matching[:1]
	assert.Contains(t, refusal(tagged(t, shop, simpleSigning(digest))), "against "+invalid, "a signature of the root does not satisfy the invalid policy")
	_, err = verify.New(matching[0], verify.Sources{Attachments: attachments{}}, nil)
	require.ErrorContains(t, err, "is unknown", "it cannot be a root of trust")
	_, err = policy.Require(policy.Policy{}, policy.ErrNone, matching)
	require.ErrorIs(t, err, policy.ErrNone)
}

//threat:clusterimagepolicy-only-policy
func TestAdditionalPoliciesAreNoRootOfTrust(t *testing.T) {
	shop := policy.Policy{Name: "ClusterImagePolicy shop, scope registry.example", Object: "shop", SigstoreKeys: []sigstore.PublicKey{publicKey(t, "ClusterImagePolicy shop", newKey(t, "P-256"))}}
	_, err := verify.New(policy.Policy{Additional: []policy.Policy{shop}}, verify.Sources{Attachments: attachments{}}, nil)
	require.ErrorIs(t, err, policy.ErrNone)

	_, err = policy.Require(policy.Policy{}, policy.ErrNone, []policy.Policy{shop})
	require.ErrorIs(t, err, policy.ErrNone)
	assert.Equal(t, "no image is accepted, because no root of trust is configured: ClusterImagePolicy shop, scope registry.example only adds requirements to one. "+
		"If its signer may sign every release of this cluster, apply the trust policy that 'cvo trust from-image-policy shop' prints", err.Error())
	_, err = policy.Require(policy.Policy{}, policy.ErrNone, nil)
	assert.Equal(t, policy.ErrNone, err)

	unreadable := policy.Policy{Name: "ClusterImagePolicy broken, scope registry.example"}
	key, err := policy.Parse("key.pub", pemKey(t))
	require.NoError(t, err)
	key.Additional = []policy.Policy{unreadable}
	_, err = verify.New(key, verify.Sources{Attachments: attachments{}}, nil)
	require.Error(t, err, "a policy without requirements is an error and not always satisfied")
}
