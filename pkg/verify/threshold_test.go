package verify_test

import (
	"crypto"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/test/fixture"
)

func TestThresholds(t *testing.T) {
	a, b, c := newKey(t, "P-256"), newKey(t, "P-256"), newKey(t, "Ed25519")
	keys := []verify.PublicKey{publicKey(t, "a", a), publicKey(t, "b", b), publicKey(t, "c", c)}
	vendor := newEntity(t, "vendor")
	signed := func(signers ...release.Attachment) verify.Sources {
		return verify.Sources{Attachments: attachments{found: signers}, Local: []verify.Store{memory{name: "memory"}}}
	}
	byA, byB, byC := tagged(t, a, simpleSigning(digest)), tagged(t, b, simpleSigning(digest)), tagged(t, c, simpleSigning(digest))
	elsewhere := tagged(t, b, simpleSigning(otherDigest))
	twoOfThree := verify.Threshold{Name: "two-of-three", Required: 2, Members: []string{"a", "b", "c"}}
	policy := verify.Policy{SigstoreKeys: keys, Thresholds: []verify.Threshold{twoOfThree}}
	withVendor := policy
	withVendor.Keyrings = []verify.Keyring{keyring(t, "vendor", vendor)}
	vendorToo := withVendor
	vendorToo.Thresholds = []verify.Threshold{{Name: "two-of-four", Required: 2, Members: []string{"a", "b", "c", "vendor"}}}
	byVendor := signed(byA, byC)
	byVendor.Local = []verify.Store{memory{name: "memory", messages: [][]byte{sign(t, vendor, claim(digest))}}}
	onlyVendorAndA := byVendor
	onlyVendorAndA.Attachments = attachments{found: []release.Attachment{byA}}
	three := policy
	three.Thresholds = []verify.Threshold{{Name: "all", Required: 3, Members: twoOfThree.Members}}
	pair := policy
	pair.Thresholds = []verify.Threshold{{Name: "a-or-b", Required: 1, Members: []string{"a", "b"}}}

	for _, test := range []struct {
		name    string
		policy  verify.Policy
		sources verify.Sources
		roots   []string
		refusal string
	}{
		{"it accepts two of three", policy, signed(byC, byA), []string{"a", "c"}, ""},
		{"it accepts three of three", three, signed(byC, byA, byB), []string{"a", "b", "c"}, ""},
		{"it refuses one of three", policy, signed(byA), nil, "against threshold two-of-three: 1 of 2 signers, missing from b, c;"},
		{"it refuses none of three", policy, signed(), nil, "against threshold two-of-three: 0 of 2 signers, missing from a, b, c;"},
		{"it counts a signer once, however often they sign", policy, signed(byA, byA, tagged(t, a, claim(digest))), nil, "1 of 2 signers"},
		{"it does not count a signature of another digest", policy, signed(byA, elsewhere), nil, "1 of 2 signers"},
		{"it asks for those who are no members as well", pair, signed(byB), nil, "against public keys: c;"},
		{"it accepts one of two and who is no member", pair, signed(byB, byC), []string{"b", "c"}, ""},
		{"it asks for a keyring as well", withVendor, signed(byA, byC), nil, "against keyrings: vendor;"},
		{"it accepts a threshold and a keyring", withVendor, byVendor, []string{"vendor", "a", "c"}, ""},
		{"it counts keyrings and keys together", vendorToo, onlyVendorAndA, []string{"vendor", "a"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			evidence, err := newVerifier(t, test.policy, test.sources).Verify(t.Context(), image())
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

	_, err := newVerifier(t, policy, signed(byA)).Verify(t.Context(), image())
	var refused *verify.UnverifiedError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, []verify.MissedThreshold{{Name: "two-of-three", Required: 2, Found: 1}}, refused.Thresholds)
	evidence, err := newVerifier(t, pair, signed(byB, byC)).Verify(t.Context(), image())
	require.NoError(t, err)
	assert.Equal(t, "a-or-b", evidence[0].Threshold)
	assert.Empty(t, evidence[1].Threshold)
}

// Two roots that one signer could satisfy are satisfied by two signers, in whatever order these are found.
func TestThresholdsCountSigners(t *testing.T) {
	s := newSigstore(t)
	signed := attached(t)
	document := []byte(simpleSigning(digest))
	byAlice := signed(s.Classic(issue(t, s, fixture.SigstoreSubject{Email: alice, Issuer: accounts}), document, fixture.SigstoreForm{}))
	againByAlice := signed(s.Classic(issue(t, s, fixture.SigstoreSubject{Email: alice, Issuer: accounts}), document, fixture.SigstoreForm{}))
	byBob := signed(s.Classic(issue(t, s, fixture.SigstoreSubject{Email: "bob@example.com", Issuer: accounts}), document, fixture.SigstoreForm{}))
	root := trustIn(t, s)
	anyone := verify.Authority{Name: "anyone", TrustRoot: root, Identities: []verify.Identity{{Issuer: accounts, SubjectRegexp: ".*@example.com"}}}
	onlyAlice := verify.Authority{Name: "alice", TrustRoot: root, Identities: []verify.Identity{{Issuer: accounts, Email: alice}}}
	policy := verify.Policy{
		Authorities: []verify.Authority{anyone, onlyAlice},
		Thresholds:  []verify.Threshold{{Name: "two", Required: 2, Members: []string{"anyone", "alice"}}},
	}
	check := func(found ...release.Attachment) error {
		_, err := newVerifier(t, policy, verify.Sources{Attachments: attachments{found: found}}).Verify(t.Context(), image())
		return err
	}
	require.ErrorContains(t, check(byAlice), "1 of 2 signers")
	require.ErrorContains(t, check(byAlice, againByAlice), "1 of 2 signers", "another certificate does not make her another")
	require.ErrorContains(t, check(byBob), "1 of 2 signers")
	require.NoError(t, check(byAlice, byBob))
	require.NoError(t, check(byBob, byAlice))

	// Her certificate's key is trusted as a bare key, too.
	signer := issue(t, s, fixture.SigstoreSubject{Email: alice, Issuer: accounts})
	key, err := verify.NewPublicKey("key", signer.PublicKey())
	require.NoError(t, err)
	policy.SigstoreKeys, policy.Authorities = []verify.PublicKey{key}, []verify.Authority{onlyAlice}
	policy.Thresholds[0].Members = []string{"key", "alice"}
	require.ErrorContains(t, check(signed(s.Classic(signer, document, fixture.SigstoreForm{}))), "1 of 2 signers")
}

func TestThresholdsAreRefused(t *testing.T) {
	a, b := newKey(t, "P-256"), newKey(t, "P-256")
	again := publicKey(t, "again", a)
	vendor, other := newEntity(t, "vendor"), newEntity(t, "other")
	policy := verify.Policy{
		SigstoreKeys: []verify.PublicKey{publicKey(t, "a", a), publicKey(t, "b", b), again},
		Keyrings:     []verify.Keyring{keyring(t, "one", vendor), keyring(t, "both", vendor, other)}, Stores: []string{"https://x"},
	}
	for _, test := range []struct {
		name       string
		thresholds []verify.Threshold
		want       string
	}{
		{"no name", []verify.Threshold{{Required: 1, Members: []string{"a"}}}, "has no name"},
		{"one name twice", []verify.Threshold{{Name: "x", Required: 1, Members: []string{"a"}}, {Name: "x", Required: 1, Members: []string{"b"}}}, "is there twice"},
		{"nobody required", []verify.Threshold{{Name: "x", Members: []string{"a"}}}, "ask for at least 1"},
		{"more than there are", []verify.Threshold{{Name: "x", Required: 3, Members: []string{"a", "b"}}}, "which can never be"},
		{"a member that is no root", []verify.Threshold{{Name: "x", Required: 1, Members: []string{"a", "c"}}}, `has member "c", which is no root`},
		{"a member twice", []verify.Threshold{{Name: "x", Required: 1, Members: []string{"a", "a"}}}, `has member "a" twice`},
		{"a member of two", []verify.Threshold{{Name: "x", Required: 1, Members: []string{"a"}}, {Name: "y", Required: 1, Members: []string{"a", "b"}}}, `a member of threshold "x"`},
		{"one key under two names", []verify.Threshold{{Name: "x", Required: 2, Members: []string{"a", "again"}}}, `has one key twice, as "a" and as "again"`},
		{"one key in two keyrings", []verify.Threshold{{Name: "x", Required: 2, Members: []string{"one", "both"}}}, `has one key twice, as "one" and as "both"`},
	} {
		t.Run("it refuses "+test.name, func(t *testing.T) {
			p := policy
			p.Thresholds = test.thresholds
			_, err := verify.New(p, verify.Sources{Attachments: attachments{}}, nil)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// adopt makes a signing subkey of one key a subkey of another, too, as only somebody can do who has both.
func adopt(t testing.TB, e *openpgp.Entity, sub openpgp.Subkey) {
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
	policy := verify.Policy{
		Keyrings:   []verify.Keyring{keyring(t, "one", one), keyring(t, "two", two)},
		Thresholds: []verify.Threshold{{Name: "both", Required: 2, Members: []string{"one", "two"}}},
	}
	message := sign(t, one, claim(digest))
	for _, name := range []string{"one", "two"} {
		alone := verify.Policy{Keyrings: []verify.Keyring{keyring(t, name, map[string]*openpgp.Entity{"one": one, "two": two}[name])}}
		_, err := check(t, alone, message)
		require.NoError(t, err, "the key must be good in %s", name)
	}
	_, err := check(t, policy, message)
	require.ErrorIs(t, err, verify.ErrUnverified)
	require.ErrorContains(t, err, "threshold both: 1 of 2 signers")
}
