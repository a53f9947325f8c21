package verify_test

import (
	"crypto"
	"testing"
	"time"

	pgp "github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/openpgp"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
	"github.com/cluster-version/cvo/pkg/verify/store"
	"github.com/cluster-version/cvo/test/fixture/sigstoretest"
)

//threat:fewer-signers-threshold it rejects one of three
//threat:fewer-signers-threshold it counts a signer once
func TestThresholdIsReachedByEnoughMembers(t *testing.T) {
	a, b, c := newKey(t, "P-256"), newKey(t, "P-256"), newKey(t, "Ed25519")
	keys := []sigstore.PublicKey{publicKey(t, "a", a), publicKey(t, "b", b), publicKey(t, "c", c)}
	vendor := newEntity(t, "vendor")
	signed := func(signers ...release.Attachment) verify.Sources {
		return verify.Sources{Attachments: attachments{found: signers}, Local: []store.Store{memory{name: "memory"}}}
	}
	byA, byB, byC := tagged(t, a, simpleSigning(digest)), tagged(t, b, simpleSigning(digest)), tagged(t, c, simpleSigning(digest))
	elsewhere := tagged(t, b, simpleSigning(otherDigest))
	twoOfThree := policy.Threshold{Name: "two-of-three", Required: 2, Members: []string{"a", "b", "c"}}
	trust := policy.Policy{SigstoreKeys: keys, Thresholds: []policy.Threshold{twoOfThree}}
	withVendor := trust
	withVendor.Keyrings = []openpgp.Keyring{keyring(t, "vendor", vendor)}
	vendorToo := withVendor
	vendorToo.Thresholds = []policy.Threshold{{Name: "two-of-four", Required: 2, Members: []string{"a", "b", "c", "vendor"}}}
	byVendor := signed(byA, byC)
	byVendor.Local = []store.Store{memory{name: "memory", messages: [][]byte{sign(t, vendor, claim(digest))}}}
	onlyVendorAndA := byVendor
	onlyVendorAndA.Attachments = attachments{found: []release.Attachment{byA}}
	three := trust
	three.Thresholds = []policy.Threshold{{Name: "all", Required: 3, Members: twoOfThree.Members}}
	pair := trust
	pair.Thresholds = []policy.Threshold{{Name: "a-or-b", Required: 1, Members: []string{"a", "b"}}}

	for _, test := range []struct {
		name    string
		trust   policy.Policy
		sources verify.Sources
		roots   []string
		refusal string
	}{
		{"it accepts two of three", trust, signed(byC, byA), []string{"a", "c"}, ""},
		{"it accepts three of three", three, signed(byC, byA, byB), []string{"a", "b", "c"}, ""},
		{"it rejects one of three", trust, signed(byA), nil, "against threshold two-of-three: 1 of 2 signers, missing from b, c;"},
		{"it rejects none of three", trust, signed(), nil, "against threshold two-of-three: 0 of 2 signers, missing from a, b, c;"},
		{"it counts a signer once", trust, signed(byA, byA, tagged(t, a, claim(digest))), nil, "1 of 2 signers"},
		{"it does not count a signature of another digest", trust, signed(byA, elsewhere), nil, "1 of 2 signers"},
		{"it requires roots outside the threshold as well", pair, signed(byB), nil, "against public keys: c;"},
		{"it accepts one of two and the root outside the threshold", pair, signed(byB, byC), []string{"b", "c"}, ""},
		{"it requires a keyring as well", withVendor, signed(byA, byC), nil, "against keyrings: vendor;"},
		{"it accepts a threshold and a keyring", withVendor, byVendor, []string{"vendor", "a", "c"}, ""},
		{"it counts keyrings and keys together", vendorToo, onlyVendorAndA, []string{"vendor", "a"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			evidence, err := newVerifier(t, test.trust, test.sources).Verify(t.Context(), image())
			if test.refusal != "" {
				require.ErrorIs(t, err, verify.ErrUnverified)
				require.ErrorContains(t, err, test.refusal)
				return
			}
			require.NoError(t, err)
			var roots []string
			for _, e := range evidence {
				roots = append(roots, e.Root)
			}
			assert.Equal(t, test.roots, roots)
		})
	}

	_, err := newVerifier(t, trust, signed(byA)).Verify(t.Context(), image())
	var refused *verify.UnverifiedError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, []verify.MissedThreshold{{Name: "two-of-three", Required: 2, Found: 1}}, refused.Thresholds)
	evidence, err := newVerifier(t, pair, signed(byB, byC)).Verify(t.Context(), image())
	require.NoError(t, err)
	assert.Equal(t, "a-or-b", evidence[0].Threshold)
	assert.Empty(t, evidence[1].Threshold)
}

// TestThresholdsCountSignersNotMembers checks that members who share a signer still need two signers, and that members count in order.
//
//threat:fewer-signers-threshold
func TestThresholdsCountSignersNotMembers(t *testing.T) {
	s := newSigstore(t)
	signed := attached(t)
	document := []byte(simpleSigning(digest))
	byAlice := signed(s.Classic(issue(t, s, sigstoretest.Subject{Email: alice, Issuer: accounts}), document, sigstoretest.Form{}))
	againByAlice := signed(s.Classic(issue(t, s, sigstoretest.Subject{Email: alice, Issuer: accounts}), document, sigstoretest.Form{}))
	byBob := signed(s.Classic(issue(t, s, sigstoretest.Subject{Email: "bob@example.com", Issuer: accounts}), document, sigstoretest.Form{}))
	root := trustIn(t, s)
	anyone := sigstore.Authority{Name: "anyone", TrustRoot: root, Identities: []sigstore.Identity{{Issuer: accounts, SubjectRegexp: ".*@example.com"}}}
	onlyAlice := sigstore.Authority{Name: "alice", TrustRoot: root, Identities: []sigstore.Identity{{Issuer: accounts, Email: alice}}}
	trust := policy.Policy{
		Authorities: []sigstore.Authority{anyone, onlyAlice},
		Thresholds:  []policy.Threshold{{Name: "two", Required: 2, Members: []string{"anyone", "alice"}}},
	}
	check := func(found ...release.Attachment) error {
		_, err := newVerifier(t, trust, verify.Sources{Attachments: attachments{found: found}}).Verify(t.Context(), image())
		return err
	}
	require.ErrorContains(t, check(byAlice), "1 of 2 signers")
	require.ErrorContains(t, check(byAlice, againByAlice), "1 of 2 signers", "a second certificate does not make her a second signer")
	require.ErrorContains(t, check(byBob), "1 of 2 signers")
	require.NoError(t, check(byBob, byAlice))
	require.ErrorContains(t, check(byAlice, byBob), "1 of 2 signers", "her signature counts for the member listed first")
	trust.Thresholds[0].Members = []string{"alice", "anyone"}
	require.NoError(t, check(byAlice, byBob), "the narrower member is listed first")
	require.NoError(t, check(byBob, byAlice))
	require.ErrorContains(t, check(byAlice, againByAlice), "1 of 2 signers")

	// The key of her certificate is also trusted as a bare key.
	signer := issue(t, s, sigstoretest.Subject{Email: alice, Issuer: accounts})
	key, err := sigstore.NewPublicKey("key", signer.PublicKey())
	require.NoError(t, err)
	trust.SigstoreKeys, trust.Authorities = []sigstore.PublicKey{key}, []sigstore.Authority{onlyAlice}
	trust.Thresholds[0].Members = []string{"key", "alice"}
	require.ErrorContains(t, check(signed(s.Classic(signer, document, sigstoretest.Form{}))), "1 of 2 signers")
}

// adopt makes a signing subkey of one key also a subkey of another, which requires both private keys.
func adopt(t testing.TB, e *pgp.Entity, sub pgp.Subkey) {
	t.Helper()
	config := &packet.Config{Time: func() time.Time { return today }}
	binding := func(kind packet.SignatureType, by *packet.PrivateKey) *packet.Signature {
		return &packet.Signature{
			Version: by.Version, CreationTime: today, SigType: kind, PubKeyAlgo: by.PubKeyAlgo, Hash: crypto.SHA256, IssuerKeyId: &by.KeyId,
		}
	}
	sub.Sig = binding(packet.SigTypeSubkeyBinding, e.PrivateKey)
	sub.Sig.FlagsValid, sub.Sig.FlagSign = true, true
	sub.Sig.EmbeddedSignature = binding(packet.SigTypePrimaryKeyBinding, sub.PrivateKey)
	require.NoError(t, sub.Sig.EmbeddedSignature.CrossSignKey(sub.PublicKey, e.PrimaryKey, sub.PrivateKey, config))
	require.NoError(t, sub.Sig.SignKey(sub.PublicKey, e.PrivateKey, config))
	e.Subkeys = append(e.Subkeys, sub)
}

func TestThresholdsCountASharedSubkeyOnce(t *testing.T) {
	one, two := newEntity(t, "one"), newEntity(t, "two")
	require.NoError(t, one.AddSigningSubkey(&packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, Time: func() time.Time { return today }}))
	adopt(t, two, one.Subkeys[len(one.Subkeys)-1])
	trust := policy.Policy{
		Keyrings:   []openpgp.Keyring{keyring(t, "one", one), keyring(t, "two", two)},
		Thresholds: []policy.Threshold{{Name: "both", Required: 2, Members: []string{"one", "two"}}},
	}
	message := sign(t, one, claim(digest))
	for _, name := range []string{"one", "two"} {
		alone := policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, name, map[string]*pgp.Entity{"one": one, "two": two}[name])}}
		_, err := check(t, alone, message)
		require.NoError(t, err, "the key must be valid in %s", name)
	}
	_, err := check(t, trust, message)
	require.ErrorIs(t, err, verify.ErrUnverified)
	require.ErrorContains(t, err, "threshold both: 1 of 2 signers")
}
