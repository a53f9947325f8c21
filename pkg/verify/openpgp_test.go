package verify_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify"
)

func TestOpenPGPAccepts(t *testing.T) {
	alice := newEntity(t, "alice")
	rsa := newEntity(t, "rsa", func(c *packet.Config) { c.Algorithm, c.RSABits = packet.PubKeyAlgoRSA, 2048 })
	expired := newEntity(t, "expired", func(c *packet.Config) { c.KeyLifetimeSecs = 3600 })
	withSubkey := newEntity(t, "subkey")
	require.NoError(t, withSubkey.AddSigningSubkey(&packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, Time: func() time.Time { return today }}))
	signed := sign(t, alice, claim(digest))
	bob := newEntity(t, "bob")

	for _, test := range []struct {
		name    string
		key     *openpgp.Entity
		message []byte
	}{
		{"binary", alice, signed},
		{"armored", alice, armored(t, "PGP MESSAGE", signed)},
		{"ZIP-compressed", alice, compress(t, packet.CompressionZIP, signed)},
		{"ZLIB-compressed", alice, compress(t, packet.CompressionZLIB, signed)},
		{"made by RSA", rsa, sign(t, rsa, claim(digest))},
		{"made by a signing subkey", withSubkey, sign(t, withSubkey, claim(digest))},
		{"made by a key that expired since", expired, sign(t, expired, claim(digest))},
		{
			"with a lifetime that has not passed", alice,
			sign(t, alice, claim(digest), func(c *packet.Config) { c.SigLifetimeSecs = 7 * 24 * 3600 }),
		},
		{"without optional claims", alice, sign(t, alice, strings.Split(claim(digest), `,"optional"`)[0]+"}")},
	} {
		t.Run("it accepts a message "+test.name, func(t *testing.T) {
			// The signer is one of two keys of the keyring.
			evidence, err := check(t, verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", bob, test.key)}}, test.message)
			require.NoError(t, err)
			require.Len(t, evidence, 1)
			e := evidence[0]
			assert.Equal(t, "k", e.Root)
			assert.Equal(t, verify.MethodOpenPGP, e.Method)
			assert.Contains(t, e.Identity, "@example.com")
			assert.Equal(t, "memory/signature-1", e.Store)
			assert.Equal(t, today, e.SignedAt)
			assert.Regexp(t, `^[0-9A-F]{16}$`, e.KeyID)
		})
	}
}

func TestOpenPGPRefuses(t *testing.T) {
	// A keyring with nothing but a revoked key is refused by itself, so bob is in all of them.
	alice, bob, mallory := newEntity(t, "alice"), newEntity(t, "bob"), newEntity(t, "mallory")
	good := sign(t, alice, claim(digest))
	revoked := newEntity(t, "revoked")
	byRevoked := sign(t, revoked, claim(digest))
	require.NoError(t, revoked.RevokeKey(packet.KeySuperseded, "", &packet.Config{Time: func() time.Time { return today }}))
	subRevoked := newEntity(t, "subrevoked")
	require.NoError(t, subRevoked.AddSigningSubkey(&packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, Time: func() time.Time { return today }}))
	bySubRevoked := sign(t, subRevoked, claim(digest))
	require.NoError(t, subRevoked.RevokeSubkey(&subRevoked.Subkeys[1], packet.KeyCompromised, "", &packet.Config{Time: func() time.Time { return today }}))

	var detached bytes.Buffer
	require.NoError(t, openpgp.DetachSign(&detached, alice, strings.NewReader(claim(digest)), nil))
	var encrypted bytes.Buffer
	w, err := openpgp.SymmetricallyEncrypt(&encrypted, []byte("x"), nil, nil)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	bomb := compress(t, packet.CompressionZIP, literal(t, strings.Repeat(" ", 8<<20)))
	require.Less(t, len(bomb), verify.MaxSignatureSize)

	for _, test := range []struct {
		name    string
		key     *openpgp.Entity
		message []byte
		want    string
	}{
		{"an unsigned message", alice, literal(t, claim(digest)), "the OpenPGP message is not signed"},
		{"a key of somebody else", alice, sign(t, mallory, claim(digest)), "signed by key " + mallory.PrimaryKey.KeyIdString() + ", which is not in this keyring"},
		{"a claim about another digest", alice, sign(t, alice, claim(otherDigest)), `the signed claim is about digest "` + string(otherDigest) + `"`},
		{"a tampered digest", alice, edit(t, sign(t, alice, claim(otherDigest)), string(otherDigest), string(digest)), "is not valid"},
		{"an expired signature", alice, sign(t, alice, claim(digest), func(c *packet.Config) { c.SigLifetimeSecs = 3600 }), "has expired at 2026-03-01T13:00:00Z"},
		{"a revoked key", revoked, byRevoked, "is revoked (superseded)"},
		{"a revoked subkey", subRevoked, bySubRevoked, "is revoked (compromised)"},
		{"a detached signature", alice, detached.Bytes(), "a detached signature"},
		{"an armored detached signature", alice, armored(t, "PGP SIGNATURE", detached.Bytes()), "a PGP SIGNATURE, expected a PGP MESSAGE"},
		{"an encrypted message", alice, encrypted.Bytes(), "it is encrypted"},
		{"noise", alice, []byte("this is not a message"), "reading OpenPGP message"},
		{"an empty message", alice, []byte{0xcb, 0}, "reading literal data"},
		{"a cut message", alice, good[:len(good)-10], "reading OpenPGP message"},
		{"two bodies", alice, append(literal(t, claim(digest)), good...), "follows the data"},
		{"a missing signature", alice, append(bytes.Clone(good[:15]), literal(t, claim(digest))...), "the OpenPGP message is not signed"},
		{"one signature where two are announced", alice, append(bytes.Clone(good[:15]), good...), "announces 2 signatures and has 1"},
		{"a decompression bomb", alice, bomb, "decompresses to more than 131072 bytes"},
		{"nested compression", alice, compress(t, packet.CompressionZIP, compress(t, packet.CompressionZIP, compress(t, packet.CompressionZIP, good))), "compressed more than twice"},
		{"too many signatures", alice, bytes.Repeat(detached.Bytes(), 17), "more than 16 signatures"},
		{"a large message", alice, bytes.Repeat([]byte{0}, verify.MaxSignatureSize+1), "larger than 51200 bytes"},
		{"a claim of another type", alice, sign(t, alice, string(edit(t, []byte(claim(digest)), "atomic", "moleky"))), `of type "moleky container signature"`},
		{"a claim without a name", alice, sign(t, alice, strings.Replace(claim(digest), "registry.example/platform/release", "", 1)), "no docker-reference"},
		{"a claim with an unknown field", alice, sign(t, alice, strings.Replace(claim(digest), `"creator"`, `"extra":1,"creator"`, 1)), "unknown field"},
		{"a claim with a field twice", alice, sign(t, alice, strings.Replace(claim(digest), `"creator"`, `"creator":"x","creator"`, 1)), "duplicate field"},
		{"a claim with a field in other case", alice, sign(t, alice, string(edit(t, []byte(claim(digest)), `"critical"`, `"Critical"`))), `reading the signed claim`},
		{"a claim with something behind it", alice, sign(t, alice, claim(digest)+"{}"), "reading the signed claim"},
		{"a claim that is no JSON", alice, sign(t, alice, "yes"), "reading the signed claim"},
	} {
		t.Run("it refuses "+test.name, func(t *testing.T) {
			evidence, err := check(t, verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", test.key, bob)}}, test.message)
			require.ErrorIs(t, err, verify.ErrUnverified)
			assert.Empty(t, evidence)
			require.ErrorContains(t, err, "unable to verify "+string(digest)+" against keyrings: k")
			assert.ErrorContains(t, err, test.want)
		})
	}
}

func TestExpiredKeysCanBeRefused(t *testing.T) {
	expired := newEntity(t, "expired", func(c *packet.Config) { c.KeyLifetimeSecs = 3600 })
	policy := verify.Policy{OpenPGPRules: verify.OpenPGPRules{RefuseExpiredKeys: true}, Keyrings: []verify.Keyring{keyring(t, "k", expired)}}
	_, err := check(t, policy, sign(t, expired, claim(digest)))
	require.ErrorIs(t, err, verify.ErrUnverified)
	assert.ErrorContains(t, err, "has expired")
}

func TestEveryKeyringMustBeSatisfied(t *testing.T) {
	alice, bob := newEntity(t, "alice"), newEntity(t, "bob")
	policy := verify.Policy{Keyrings: []verify.Keyring{keyring(t, "a", alice), keyring(t, "b", bob)}}
	byAlice, byBob := sign(t, alice, claim(digest)), sign(t, bob, claim(digest))

	evidence, err := check(t, policy, byBob, []byte("noise"), byAlice)
	require.NoError(t, err)
	require.Len(t, evidence, 2)
	assert.Equal(t, "a", evidence[0].Root)
	assert.Equal(t, "memory/signature-3", evidence[0].Store)
	assert.Equal(t, "b", evidence[1].Root)
	assert.Equal(t, "memory/signature-1", evidence[1].Store)

	_, err = check(t, policy, byAlice)
	var refused *verify.UnverifiedError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, []verify.MissingRoot{{Name: "b", Method: verify.MethodOpenPGP, Kind: "keyring"}}, refused.Missing)
}
