package openpgp_test

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	pgp "github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/elgamal"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify/openpgp"
	"github.com/cluster-version/cvo/test/fixture"
)

func binaryKey(t testing.TB, e *pgp.Entity) []byte {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, e.Serialize(&out))
	return out.Bytes()
}

// keyData returns the data that a signature over a key alone covers.
func keyData(t testing.TB, e *pgp.Entity) []byte {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, e.PrimaryKey.SerializeForHash(&out))
	return out.Bytes()
}

// insert inserts a packet after the first packet of a key.
func insert(t testing.TB, e *pgp.Entity, p []byte) []byte {
	t.Helper()
	var first bytes.Buffer
	require.NoError(t, e.PrimaryKey.Serialize(&first))
	all := binaryKey(t, e)
	require.True(t, bytes.HasPrefix(all, first.Bytes()))
	return bytes.Join([][]byte{first.Bytes(), p, all[first.Len():]}, nil)
}

//threat:revoked-key
func TestUncommonRevocationsAreHonored(t *testing.T) {
	e, key := rsaKey(t, 2048)
	id := e.PrimaryKey.KeyId
	good := newEntity(t, "good")
	revocation := func(hashed []byte, h crypto.Hash) []byte {
		return packetOf(2, signV4(t, key, 0x20, h, append(createdSubpacket(today), hashed...), issuerSubpacket(id), keyData(t, e)))
	}
	byAnother := packetOf(2, signV4(t, key, 0x20, crypto.SHA256, createdSubpacket(today), issuerSubpacket(1), []byte("other")))
	var bare bytes.Buffer
	require.NoError(t, e.PrimaryKey.Serialize(&bare))
	withoutUserIDs := func(revocation []byte) []byte { return slices.Concat(binaryKey(t, e), bare.Bytes(), revocation) }
	body := claim(digest)
	message := messageOf(signV4(t, key, 0, crypto.SHA256, createdSubpacket(today), issuerSubpacket(id), []byte(body)), body)
	for _, test := range []struct {
		name string
		ring []byte
		want string
	}{
		{"a readable revocation", insert(t, e, revocation(nil, crypto.SHA256)), "is revoked (no reason given)"},
		{"a revocation over SHA-1", insert(t, e, revocation(nil, crypto.SHA1)), "is revoked (no reason given)"},
		{"a revocation over an unknown hash", insert(t, e, revocation(nil, crypto.MD5)), "it has a revocation that cannot be read"},
		{"a revocation with an unknown critical subpacket", insert(t, e, revocation(subpacket(101, true, []byte("x")), crypto.SHA256)), "it has a revocation that cannot be read"},
		{"a revocation of version 3", insert(t, e, packetOf(2, signV3(t, key, id, 0x20, crypto.SHA256, today, keyData(t, e)))), "it has a revocation that cannot be read"},
		{"a revocation of a subkey, of version 3", insert(t, e, packetOf(2, signV3(t, key, id, 0x28, crypto.SHA256, today, keyData(t, e)))), "it has a revocation that cannot be read"},
		{"a revocation by another key", insert(t, e, byAnother), "not among the usable keys"},
		{"a revocation in another copy of the key", append(binaryKey(t, e), insert(t, e, revocation(nil, crypto.SHA256))...), "is revoked (no reason given)"},
		{"a revocation in an earlier copy of the key", append(insert(t, e, revocation(nil, crypto.SHA256)), binaryKey(t, e)...), "is revoked (no reason given)"},
		{"a revocation in an unreadable copy", append(binaryKey(t, e), insert(t, e, revocation(nil, crypto.MD5))...), "is revoked (it has a revocation that cannot be read"},
		{"a revocation in a copy without user IDs", withoutUserIDs(revocation(nil, crypto.SHA256)), "is revoked (no reason given)"},
		{"an unreadable revocation in a copy without user IDs", withoutUserIDs(revocation(nil, crypto.MD5)), "is revoked (it has a revocation that cannot be read"},
		{"a revocation next to one by another key", append(binaryKey(t, e), insert(t, e, append(byAnother, revocation(nil, crypto.SHA256)...))...), "is revoked (no reason given)"},
	} {
		t.Run("it honors "+test.name, func(t *testing.T) {
			k, err := openpgp.NewKeyring("k", append(test.ring, binaryKey(t, good)...))
			require.NoError(t, err)
			_, err = check(t, k, message)
			require.ErrorContains(t, err, test.want)

			_, err = check(t, k, sign(t, good, claim(digest)))
			require.NoError(t, err, "the other key of the keyring must still count")
		})
	}
}

// TestSubkeyOfARevokedKeyIsRejected exports the copy with the revocation before it creates the subkey.
func TestSubkeyOfARevokedKeyIsRejected(t *testing.T) {
	config := &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, Time: func() time.Time { return today }}
	e := newEntity(t, "alice")
	require.NoError(t, e.AddSigningSubkey(config))
	whole, message := binaryKey(t, e), sign(t, e, claim(digest))
	require.NoError(t, e.RevokeKey(packet.KeyCompromised, "", config))
	e.Subkeys = nil
	k, err := openpgp.NewKeyring("k", bytes.Join([][]byte{whole, binaryKey(t, e), binaryKey(t, newEntity(t, "good"))}, nil))
	require.NoError(t, err)
	_, err = check(t, k, message)
	require.ErrorContains(t, err, fmt.Sprintf("key %016X is revoked (compromised)", e.PrimaryKey.KeyId))
}

// TestRevokedSubkeyInACopyWithoutUserIDsIsRejected has a copy as key servers serve it, and one from before the revocation.
//
//threat:revoked-key
func TestRevokedSubkeyInACopyWithoutUserIDsIsRejected(t *testing.T) {
	config := &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, Time: func() time.Time { return today }}
	e := newEntity(t, "alice")
	require.NoError(t, e.AddSigningSubkey(config))
	whole, message := binaryKey(t, e), sign(t, e, claim(digest))
	sub := &e.Subkeys[len(e.Subkeys)-1]
	require.NoError(t, e.RevokeSubkey(sub, packet.KeyCompromised, "", config))
	ring := bytes.NewBuffer(whole)
	for _, p := range []interface{ Serialize(io.Writer) error }{e.PrimaryKey, sub.PublicKey, sub.Sig, sub.Revocations[0]} {
		require.NoError(t, p.Serialize(ring))
	}
	k, err := openpgp.NewKeyring("k", ring.Bytes())
	require.NoError(t, err)
	_, err = check(t, k, message)
	require.ErrorContains(t, err, fmt.Sprintf("key %016X is revoked (compromised)", sub.PublicKey.KeyId))
}

//threat:revoked-key
func TestKeyWithOnlyRevokedUserIDsIsRevoked(t *testing.T) {
	e, key := rsaKey(t, 2048)
	id := e.PrimaryKey.KeyId
	name := e.PrimaryIdentity().Name
	data := keyData(t, e)
	data = append(binary.BigEndian.AppendUint32(append(data, 0xb4), uint32(len(name))), name...)
	revocation := packetOf(2, signV4(t, key, 0x30, crypto.SHA256, createdSubpacket(today), issuerSubpacket(id), data))

	var ring bytes.Buffer
	require.NoError(t, e.PrimaryKey.Serialize(&ring))
	require.NoError(t, e.PrimaryIdentity().UserId.Serialize(&ring))
	require.NoError(t, e.PrimaryIdentity().SelfSignature.Serialize(&ring))
	ring.Write(revocation)
	k, err := openpgp.NewKeyring("k", append(ring.Bytes(), binaryKey(t, newEntity(t, "good"))...))
	require.NoError(t, err)
	body := claim(digest)
	_, err = check(t, k,
		messageOf(signV4(t, key, 0, crypto.SHA256, createdSubpacket(today), issuerSubpacket(id), []byte(body)), body))
	require.ErrorContains(t, err, "is revoked (all its user IDs are revoked: no reason given)")
}

func TestKeyringSkipsUnknownKeys(t *testing.T) {
	alice, bob := newEntity(t, "alice"), newEntity(t, "bob")
	foreign, _ := rsaKey(t, 2048)
	old := packetOf(6, append([]byte{3, 0, 0, 0, 0, 0, 0, 1}, mpi([]byte{1})...))
	unknown := bytes.Clone(binaryKey(t, foreign))
	unknown[len(header(6, 0))-3+5] = 99 // The algorithm of the primary key follows a header of 3 bytes, and a version and date of 5 bytes.
	orphans := bytes.Join([][]byte{binaryKey(t, alice), old, unknown, binaryKey(t, bob)}, nil)
	k, err := openpgp.NewKeyring("k", orphans)
	require.NoError(t, err)
	for _, e := range []*pgp.Entity{alice, bob} {
		_, err = check(t, k, sign(t, e, claim(digest)))
		require.NoError(t, err, "an unreadable key must not make other keys unusable")
	}
	assert.Len(t, k.Skipped(), 2)
	assert.Contains(t, k.Skipped()[0], "public key version 3")
	_, err = check(t, k, sign(t, foreign, claim(digest)))
	require.ErrorContains(t, err, "which is not among the usable keys of this keyring (a key: ")
}

//threat:private-key-where a private key
func TestInvalidKeyringsAreRejected(t *testing.T) {
	alice := newEntity(t, "alice")
	var private bytes.Buffer
	require.NoError(t, alice.SerializePrivate(&private, nil))
	one := big.NewInt(1)
	var encryptOnly bytes.Buffer
	p, err := rand.Prime(rand.Reader, 512)
	require.NoError(t, err)
	require.NoError(t, packet.NewElGamalPublicKey(today, &elgamal.PublicKey{G: one, P: p, Y: one}).Serialize(&encryptOnly))
	huge := append([]byte{4, 0, 0, 0, 0, 17}, bytes.Repeat(append([]byte{0xff, 0xff}, bytes.Repeat([]byte{0xff}, 8192)...), 4)...)
	subgroup := bytes.Join([][]byte{{4, 0, 0, 0, 0, 17}, mpi(bytes.Repeat([]byte{0xff}, 256)), mpi(bytes.Repeat([]byte{0xff}, 100)), mpi([]byte{2}), mpi([]byte{3})}, nil)

	var bare bytes.Buffer
	require.NoError(t, alice.PrimaryKey.Serialize(&bare))

	uncrossed := newEntity(t, "uncrossed")
	config := &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, Time: func() time.Time { return today }}
	require.NoError(t, uncrossed.AddSigningSubkey(config))
	sub := uncrossed.Subkeys[len(uncrossed.Subkeys)-1]
	sub.Sig.EmbeddedSignature = nil
	require.NoError(t, sub.Sig.SignKey(sub.PublicKey, uncrossed.PrivateKey, config))

	for _, test := range []struct {
		name string
		data []byte
		want string
	}{
		{"nothing", nil, "it contains no public key"},
		{"noise", []byte("noise"), "reading OpenPGP keyring"},
		{"a private key", private.Bytes(), "it contains a private key: export only the public key"},
		{"an armored private key", armored(t, "PGP PRIVATE KEY BLOCK", private.Bytes()), "it contains a private key"},
		{"a message", sign(t, alice, claim(digest)), "unexpected packet of type 4 in a keyring"},
		{"an armored message", armored(t, "PGP MESSAGE", sign(t, alice, claim(digest))), "it contains a PGP MESSAGE"},
		{"compressed keys", compress(t, packet.CompressionZIP, binaryKey(t, alice)), "unexpected packet of type 8 in a keyring"},
		{"a key that only encrypts", encryptOnly.Bytes(), "primary key cannot be used for signatures"},
		{"a keyring that begins in the middle of a key", packetOf(13, []byte("alice")), "it begins with a packet of type 13, not with a public key"},
		{"a key with huge numbers", packetOf(6, huge), "its numbers are larger than 16384 bits"},
		{"a key with a huge subgroup", packetOf(6, subgroup), "its numbers are larger than 16384 bits"},
		{"a subkey with huge numbers", append(binaryKey(t, alice), packetOf(14, huge)...), "its numbers are larger than 16384 bits"},
		{"a key without an identity", bare.Bytes(), "it contains no usable public key: key "},
		{"a subkey that has not agreed to its binding", binaryKey(t, uncrossed), "missing cross-signature"},
		{"a truncated key", binaryKey(t, alice)[:40], "reading OpenPGP keyring"},
		{"a file that is too large", make([]byte, 1<<20+1), "larger than 1048576 bytes"},
		{"too many packets", append(binaryKey(t, alice), bytes.Repeat(packetOf(13, []byte("a")), 4096)...), "more than 4096 packets"},
	} {
		t.Run("it rejects "+test.name, func(t *testing.T) {
			fixture.Bounded(t, func() {
				_, err := openpgp.NewKeyring("k", test.data)
				require.ErrorContains(t, err, test.want)
				require.ErrorContains(t, err, `reading OpenPGP keyring "k"`)
			})
		})
	}
}

func TestKeyringWithoutAUsableKeyIsRejected(t *testing.T) {
	weak, _ := rsaKey(t, 1024)
	revoked := newEntity(t, "revoked")
	require.NoError(t, revoked.RevokeKey(packet.KeyRetired, "", &packet.Config{Time: func() time.Time { return today }}))
	k := keyring(t, "k", weak, revoked)
	err := k.Validate(openpgp.Rules{})
	require.ErrorContains(t, err, `no key in it can sign releases: key `)
	require.ErrorContains(t, err, "is too weak: it has 1024 bits, at least 2048 are required")
	require.ErrorContains(t, err, "is revoked (retired)")

	require.NoError(t, k.Validate(openpgp.Rules{UnsafeMinimumRSABits: 1024}))
}

// TestEvidenceNamesOneIdentity uses identities created in the same second, among which the library's choice varies.
func TestEvidenceNamesOneIdentity(t *testing.T) {
	e := newEntity(t, "zoe")
	for _, name := range []string{"mia", "amy", "kim"} {
		require.NoError(t, e.AddUserId(name, "", name+"@example.com", &packet.Config{Time: func() time.Time { return today }}))
	}
	for _, id := range e.Identities {
		id.SelfSignature.IsPrimaryId = nil
		require.NoError(t, id.SelfSignature.SignUserId(id.UserId.Id, e.PrimaryKey, e.PrivateKey, &packet.Config{Time: func() time.Time { return today }}))
	}
	message := sign(t, e, claim(digest))
	names := map[string]bool{}
	for range 50 {
		found, err := check(t, keyring(t, "k", e), message)
		require.NoError(t, err)
		names[found.Identity] = true
	}
	assert.Len(t, names, 1)
	assert.True(t, strings.HasSuffix(firstKey(names), "@example.com>"))
}

func firstKey(m map[string]bool) string {
	for k := range m {
		return k
	}
	return ""
}
