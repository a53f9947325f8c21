package openpgp_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	pgp "github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify/openpgp"
)

func TestValidMessagesAreAccepted(t *testing.T) {
	alice := newEntity(t, "alice")
	rsa := newEntity(t, "rsa", func(c *packet.Config) { c.Algorithm, c.RSABits = packet.PubKeyAlgoRSA, 2048 })
	expired := newEntity(t, "expired", func(c *packet.Config) { c.KeyLifetimeSecs = 3600 })
	withSubkey := newEntity(t, "subkey")
	require.NoError(t, withSubkey.AddSigningSubkey(&packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, Time: func() time.Time { return today }}))
	signed := sign(t, alice, claim(digest))
	bob := newEntity(t, "bob")

	for _, test := range []struct {
		name    string
		key     *pgp.Entity
		message []byte
	}{
		{"binary", alice, signed},
		{"armored", alice, armored(t, "PGP MESSAGE", signed)},
		{"ZIP-compressed", alice, compress(t, packet.CompressionZIP, signed)},
		{"ZLIB-compressed", alice, compress(t, packet.CompressionZLIB, signed)},
		{"made by RSA", rsa, sign(t, rsa, claim(digest))},
		{"made by a signing subkey", withSubkey, sign(t, withSubkey, claim(digest))},
		{"made by a key that has expired since", expired, sign(t, expired, claim(digest))},
		{
			"with a lifetime that has not passed", alice,
			sign(t, alice, claim(digest), func(c *packet.Config) { c.SigLifetimeSecs = 7 * 24 * 3600 }),
		},
		{"without optional claims", alice, sign(t, alice, strings.Split(claim(digest), `,"optional"`)[0]+"}")},
	} {
		t.Run("it accepts a message "+test.name, func(t *testing.T) {
			// The signer is one of the two keys in the keyring.
			e, err := check(t, keyring(t, "k", bob, test.key), test.message)
			require.NoError(t, err)
			assert.Contains(t, e.Identity, "@example.com")
			assert.Equal(t, today, e.SignedAt)
			assert.Regexp(t, `^[0-9A-F]{16}$`, e.KeyID)
		})
	}
}

//threat:no-signature-none an unsigned message
//threat:wrong-key a key that is not in the keyring
//threat:expired-key an expired signature
//threat:revoked-key a revoked key
//threat:signature-another-digest a claim about another digest
//threat:signature-another-digest a tampered digest
//threat:signature-another-form a detached signature
//threat:signature-another-form a claim of another type
func TestInvalidMessagesAreRejected(t *testing.T) {
	// A keyring with only a revoked key would be rejected, so every keyring also contains bob.
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
	require.NoError(t, pgp.DetachSign(&detached, alice, strings.NewReader(claim(digest)), nil))
	var encrypted bytes.Buffer
	w, err := pgp.SymmetricallyEncrypt(&encrypted, []byte("x"), nil, nil)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	bomb := compress(t, packet.CompressionZIP, literal(t, strings.Repeat(" ", 8<<20)))
	require.Less(t, len(bomb), openpgp.MaxSignatureSize)

	for _, test := range []struct {
		name    string
		key     *pgp.Entity
		message []byte
		want    string
	}{
		{"an unsigned message", alice, literal(t, claim(digest)), "the OpenPGP message is not signed"},
		{"a key that is not in the keyring", alice, sign(t, mallory, claim(digest)), "signed by key " + mallory.PrimaryKey.KeyIdString() + ", which is not in this keyring"},
		{"a claim about another digest", alice, sign(t, alice, claim(otherDigest)), `the signed claim is about another digest, "` + string(otherDigest) + `"`},
		{"a tampered digest", alice, edit(t, sign(t, alice, claim(otherDigest)), string(otherDigest), string(digest)), "is not valid"},
		{"an expired signature", alice, sign(t, alice, claim(digest), func(c *packet.Config) { c.SigLifetimeSecs = 3600 }), "expired at 2026-03-01T13:00:00Z"},
		{"a revoked key", revoked, byRevoked, "is revoked (superseded)"},
		{"a revoked subkey", subRevoked, bySubRevoked, "is revoked (compromised)"},
		{"a detached signature", alice, detached.Bytes(), "a detached signature"},
		{"an armored detached signature", alice, armored(t, "PGP SIGNATURE", detached.Bytes()), "a PGP SIGNATURE, expected a PGP MESSAGE"},
		{"an encrypted message", alice, encrypted.Bytes(), "it is encrypted"},
		{"noise", alice, []byte("this is not a message"), "reading OpenPGP message"},
		{"an empty message", alice, []byte{0xcb, 0}, "reading literal data"},
		{"a truncated message", alice, good[:len(good)-10], "reading OpenPGP message"},
		{"two bodies", alice, append(literal(t, claim(digest)), good...), "follows the data"},
		{"a missing signature", alice, append(bytes.Clone(good[:15]), literal(t, claim(digest))...), "the OpenPGP message is not signed"},
		{"one signature instead of two announced", alice, append(bytes.Clone(good[:15]), good...), "announces 2 signatures but has 1"},
		{"a decompression bomb", alice, bomb, "decompresses to more than 131072 bytes"},
		{"nested compression", alice, compress(t, packet.CompressionZIP, compress(t, packet.CompressionZIP, compress(t, packet.CompressionZIP, good))), "compressed more than twice"},
		{"too many signatures", alice, bytes.Repeat(detached.Bytes(), 17), "more than 16 signatures"},
		{"a large message", alice, bytes.Repeat([]byte{0}, openpgp.MaxSignatureSize+1), "larger than 51200 bytes"},
		{"a claim of another type", alice, sign(t, alice, string(edit(t, []byte(claim(digest)), "atomic", "moleky"))), `of type "moleky container signature"`},
		{"a claim without a name", alice, sign(t, alice, strings.Replace(claim(digest), "registry.example/platform/release", "", 1)), "no docker-reference"},
		{"a claim with an unknown field", alice, sign(t, alice, strings.Replace(claim(digest), `"creator"`, `"extra":1,"creator"`, 1)), "unknown field"},
		{"a claim with a field twice", alice, sign(t, alice, strings.Replace(claim(digest), `"creator"`, `"creator":"x","creator"`, 1)), "duplicate field"},
		{"a claim with a field in different case", alice, sign(t, alice, string(edit(t, []byte(claim(digest)), `"critical"`, `"Critical"`))), `reading the signed claim`},
		{"a claim with trailing data", alice, sign(t, alice, claim(digest)+"{}"), "reading the signed claim"},
		{"a claim that is not JSON", alice, sign(t, alice, "yes"), "reading the signed claim"},
	} {
		t.Run("it rejects "+test.name, func(t *testing.T) {
			evidence, err := check(t, keyring(t, "k", test.key, bob), test.message)
			require.ErrorContains(t, err, test.want)
			assert.Empty(t, evidence)
		})
	}
}

//threat:expired-key
func TestExpiredKeysAreRejectedByRule(t *testing.T) {
	expired := newEntity(t, "expired", func(c *packet.Config) { c.KeyLifetimeSecs = 3600 })
	_, err := checkUnder(t, openpgp.Rules{RefuseExpiredKeys: true}, keyring(t, "k", expired), sign(t, expired, claim(digest)))
	assert.ErrorContains(t, err, "has expired")
}
