package openpgp_test

import (
	"bytes"
	"crypto"
	_ "crypto/md5"
	"crypto/rsa"
	_ "crypto/sha1"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	pgp "github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "golang.org/x/crypto/ripemd160" //nolint:staticcheck // to make signatures that are refused

	"github.com/cluster-version/cvo/pkg/verify/openpgp"
)

func TestStrongAlgorithmsAreAccepted(t *testing.T) {
	for _, test := range []struct {
		name   string
		config packet.Config
		want   string
	}{
		{"RSA", packet.Config{Algorithm: packet.PubKeyAlgoRSA, RSABits: 3072}, "RSA-3072/SHA-256"},
		{"ECDSA over P-256", packet.Config{Algorithm: packet.PubKeyAlgoECDSA, Curve: packet.CurveNistP256}, "ECDSA-P256/SHA-256"},
		{"ECDSA over P-384", packet.Config{Algorithm: packet.PubKeyAlgoECDSA, Curve: packet.CurveNistP384}, "ECDSA-P384/SHA-384"},
		{"ECDSA over P-521", packet.Config{Algorithm: packet.PubKeyAlgoECDSA, Curve: packet.CurveNistP521}, "ECDSA-P521/SHA-512"},
		{"EdDSA", packet.Config{Algorithm: packet.PubKeyAlgoEdDSA}, "Ed25519/SHA-256"},
		{"Ed25519 of version 4", packet.Config{Algorithm: packet.PubKeyAlgoEd25519}, "Ed25519/SHA-256"},
		{"Ed25519 of version 6", packet.Config{Algorithm: packet.PubKeyAlgoEd25519, V6Keys: true}, "Ed25519/SHA-256"},
		{"Ed448 of version 6", packet.Config{Algorithm: packet.PubKeyAlgoEd448, V6Keys: true}, "Ed448/SHA-512"},
		{"RSA of version 6", packet.Config{Algorithm: packet.PubKeyAlgoRSA, RSABits: 2048, V6Keys: true}, "RSA-2048/SHA-256"},
	} {
		t.Run("it accepts "+test.name, func(t *testing.T) {
			e := newEntity(t, "alice", func(c *packet.Config) {
				at := c.Time
				*c = test.config
				c.Time = at
			})
			found, err := check(t, keyring(t, "k", e), sign(t, e, claim(digest)))
			require.NoError(t, err)
			assert.Equal(t, test.want, found.Algorithm)
			assert.Regexp(t, "^([0-9A-F]{40}|[0-9A-F]{64})$", found.Fingerprint)
			assert.Contains(t, found.Fingerprint, found.KeyID)
		})
	}
}

//threat:weak-algorithms-md5
func TestWeakAlgorithmsNeedARule(t *testing.T) {
	good, goodKey := rsaKey(t, 2048)
	weak, weakKey := rsaKey(t, 1024)
	middle, middleKey := rsaKey(t, 1536)
	message := func(e *pgp.Entity, key *rsa.PrivateKey, h crypto.Hash, version int) []byte {
		body := claim(digest)
		if version == 3 {
			return messageOf(signV3(t, key, e.PrimaryKey.KeyId, 0, h, today, []byte(body)), body)
		}
		return messageOf(signV4(t, key, 0, h, createdSubpacket(today), issuerSubpacket(e.PrimaryKey.KeyId), []byte(body)), body)
	}
	sha1 := openpgp.Rules{UnsafeAllowSHA1: true}
	for _, test := range []struct {
		name    string
		key     *pgp.Entity
		rules   openpgp.Rules
		message []byte
		// want is part of the error; empty if the signature is accepted.
		want string
	}{
		{"accepts SHA-256 of version 4", good, openpgp.Rules{}, message(good, goodKey, crypto.SHA256, 4), ""},
		{"accepts SHA-256 of version 3", good, openpgp.Rules{}, message(good, goodKey, crypto.SHA256, 3), ""},
		{"rejects SHA-1 of version 4", good, openpgp.Rules{}, message(good, goodKey, crypto.SHA1, 4), "hash algorithm SHA-1 is not accepted"},
		{"rejects SHA-1 of version 3", good, openpgp.Rules{}, message(good, goodKey, crypto.SHA1, 3), "hash algorithm SHA-1 is not accepted"},
		{"accepts SHA-1 of version 4 if the policy allows it", good, sha1, message(good, goodKey, crypto.SHA1, 4), ""},
		{"accepts SHA-1 of version 3 if the policy allows it", good, sha1, message(good, goodKey, crypto.SHA1, 3), ""},
		{"rejects MD5 of version 4 despite the policy", good, sha1, message(good, goodKey, crypto.MD5, 4), "hash function 1"},
		{"rejects MD5 of version 3 despite the policy", good, sha1, message(good, goodKey, crypto.MD5, 3), "hash algorithm MD5 is not accepted"},
		{"rejects RIPEMD-160 despite the policy", good, sha1, message(good, goodKey, crypto.RIPEMD160, 3), "hash algorithm RIPEMD-160 is not accepted"},
		{"rejects a short key", weak, openpgp.Rules{}, message(weak, weakKey, crypto.SHA256, 4), "is too weak: it has 1024 bits, at least 2048 are required"},
		{"rejects a short key with version 3", weak, openpgp.Rules{}, message(weak, weakKey, crypto.SHA256, 3), "is too weak: it has 1024 bits"},
		{"accepts a short key if the policy allows it", weak, openpgp.Rules{UnsafeMinimumRSABits: 1024}, message(weak, weakKey, crypto.SHA256, 4), ""},
		{"accepts a key that is long enough for the policy", middle, openpgp.Rules{UnsafeMinimumRSABits: 1500}, message(middle, middleKey, crypto.SHA256, 4), ""},
		{"rejects a key that is too short for the policy", weak, openpgp.Rules{UnsafeMinimumRSABits: 1500}, message(weak, weakKey, crypto.SHA256, 4), "it has 1024 bits, at least 1500 are required"},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			_, err := checkUnder(t, test.rules, keyring(t, "k", test.key, newEntity(t, "other")), test.message)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, test.want)
		})
	}
}

// TestSHA1IsAcceptedOnlyInTheKeyring uses vendor keys from before 2014, whose self-signatures use SHA-1. These count, because the keyring
// itself is trusted. Release signatures with such a key need a better hash.
func TestSHA1IsAcceptedOnlyInTheKeyring(t *testing.T) {
	e, key := rsaKey(t, 2048)
	id := e.PrimaryIdentity()
	var userID bytes.Buffer
	require.NoError(t, e.PrimaryKey.SerializeForHash(&userID))
	userID.Write(binary.BigEndian.AppendUint32([]byte{0xb4}, uint32(len(id.Name))))
	userID.WriteString(id.Name)
	self := signV4(t, key, 0x13, crypto.SHA1, append(createdSubpacket(today), subpacket(27, false, []byte{3})...),
		issuerSubpacket(e.PrimaryKey.KeyId), userID.Bytes())

	var data bytes.Buffer
	require.NoError(t, e.PrimaryKey.Serialize(&data))
	data.Write(packetOf(13, []byte(id.Name)))
	data.Write(packetOf(2, self))
	k, err := openpgp.NewKeyring("k", data.Bytes())
	require.NoError(t, err)

	body := claim(digest)
	_, err = check(t, k,
		messageOf(signV4(t, key, 0, crypto.SHA256, createdSubpacket(today), issuerSubpacket(e.PrimaryKey.KeyId), []byte(body)), body))
	require.NoError(t, err)
	_, err = check(t, k,
		messageOf(signV4(t, key, 0, crypto.SHA1, createdSubpacket(today), issuerSubpacket(e.PrimaryKey.KeyId), []byte(body)), body))
	require.ErrorContains(t, err, "hash algorithm SHA-1 is not accepted")
}

func TestRulesOutOfRangeAreRejected(t *testing.T) {
	for _, bits := range []int{-1, 1, 1023, 2048, 4096} {
		assert.ErrorContains(t, openpgp.Rules{UnsafeMinimumRSABits: bits}.Validate(), "unsafeMinimumRSABits is", bits)
	}
}

// beforeNumber returns the part of a version 4 signature before its number (RFC 9580, 5.2.3). The length of the number varies.
func beforeNumber(signature []byte) []byte {
	at := 6 + int(binary.BigEndian.Uint16(signature[4:]))
	at += 2 + int(binary.BigEndian.Uint16(signature[at:])) + 2
	return bytes.Clone(signature[:at])
}

func TestMessageFormsAreReadOrRejected(t *testing.T) {
	e, key := rsaKey(t, 2048)
	id := e.PrimaryKey.KeyId
	alice := newEntity(t, "alice")
	body := claim(digest)
	v4 := func(kind byte, hashed []byte, data string) []byte {
		return signV4(t, key, kind, crypto.SHA256, append(createdSubpacket(today), hashed...), issuerSubpacket(id), []byte(data))
	}
	onePass := packetOf(4, append(binary.BigEndian.AppendUint64([]byte{3, 0, 8, 1}, id), 1))
	concat := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	lines := strings.Replace(body, `,"identity"`, ",\n\"identity\"", 1)
	good := v4(0, nil, body)

	for _, test := range []struct {
		name    string
		message []byte
		want    string
	}{
		{"accepts the signature before the data", messageOf(good, body), ""},
		{"accepts the signature after the data", concat(onePass, literalOf(body), packetOf(2, good)), ""},
		{"accepts data in pieces", concat(packetOf(2, v4(0, nil, body+strings.Repeat(" ", 2000))), partial(11, append([]byte{'b', 0, 0, 0, 0, 0}, body+strings.Repeat(" ", 2000)...))), ""},
		{"accepts a compressed packet in pieces", compress(t, packet.CompressionZIP, concat(packetOf(2, v4(0, nil, body+strings.Repeat(" ", 4000))), literalOf(body+strings.Repeat(" ", 4000)))), ""},
		{"accepts a compressed packet without compression", packetOf(8, append([]byte{0}, messageOf(good, body)...)), ""},
		{"accepts text with line ends made canonical", messageOf(v4(1, nil, strings.ReplaceAll(lines, "\n", "\r\n")), lines), ""},
		{"rejects text with other line ends", messageOf(v4(1, nil, lines), lines), "is not valid"},
		{"rejects binary data whose line ends changed", messageOf(v4(0, nil, strings.ReplaceAll(lines, "\n", "\r\n")), lines), "is not valid"},
		{"accepts one good signature of several", concat(packetOf(2, []byte{9}), packetOf(2, signV4(t, key, 0, crypto.SHA1, createdSubpacket(today), issuerSubpacket(id), []byte(body))), packetOf(2, good), literalOf(body)), ""},
		{"accepts a marker and private packets", concat(packetOf(10, []byte("PGP")), packetOf(21, make([]byte, 30)), packetOf(60, []byte("x")), messageOf(good, body)), ""},
		{"rejects a packet of an unknown kind", concat(packetOf(19, []byte("x")), messageOf(good, body)), "unexpected packet of type 19"},
		{"accepts a notation", messageOf(v4(0, subpacket(20, false, []byte("\x80\x00\x00\x00\x00\x03\x00\x01a@bc")), body), body), ""},
		{"rejects a critical notation", messageOf(v4(0, subpacket(20, true, []byte("\x80\x00\x00\x00\x00\x03\x00\x01a@bc")), body), body), `carries the unknown critical notation "a@b"`},
		{"accepts an unknown subpacket", messageOf(v4(0, subpacket(101, false, []byte("x")), body), body), ""},
		{"rejects an unknown critical subpacket", messageOf(v4(0, subpacket(101, true, []byte("x")), body), body), "unknown critical signature subpacket type 101"},
		{"rejects a signature over another kind of data", messageOf(v4(0x10, nil, body), body), "it is of type 0x10, expected a document signature"},
		{"rejects a standalone signature", messageOf(v4(2, nil, body), body), "it is of type 0x02"},
		{"rejects a version 3 signature over another kind of data", messageOf(signV3(t, key, id, 0x10, crypto.SHA256, today, []byte(body)), body), "it is of type 0x10"},
		{"rejects a version 3 signature by a key that is not RSA", messageOf(signV3(t, key, alice.PrimaryKey.KeyId, 0, crypto.SHA256, today, []byte(body)), body), "version 3 signatures are accepted only from RSA keys"},
		{"rejects an invalid version 2 signature", messageOf(append([]byte{2}, signV3(t, key, id, 0, crypto.SHA256, today, []byte("other"))[1:]...), body), "is not valid"},
		{"rejects a signature without issuer", messageOf(signV4(t, key, 0, crypto.SHA256, createdSubpacket(today), nil, []byte(body)), body), "signed by key without an ID"},
		{"rejects a signature without a date", messageOf(signV4(t, key, 0, crypto.SHA256, nil, issuerSubpacket(id), []byte(body)), body), "no creation time"},
		{"ignores an unsigned date", messageOf(signV4(t, key, 0, crypto.SHA256, nil, append(createdSubpacket(today), issuerSubpacket(id)...), []byte(body)), body), "no creation time"},
		{"ignores an unsigned lifetime", messageOf(signV4(t, key, 0, crypto.SHA256, createdSubpacket(today), append(subpacket(3, false, []byte{0, 0, 0, 1}), issuerSubpacket(id)...), []byte(body)), body), ""},
		{"rejects a signature of version 5", messageOf(append([]byte{5}, good[1:]...), body), "reading version 5 signature"},
		{"rejects a signature of a later version", messageOf(append([]byte{7}, good[1:]...), body), "reading version 7 signature"},
		{"rejects a signature with a huge number", messageOf(append(beforeNumber(good), append([]byte{0xff, 0xff}, bytes.Repeat([]byte{0xff}, 8192)...)...), body), "is not valid"},
		{"rejects a signature with a truncated number", messageOf(append(beforeNumber(good), 0xff, 0xff, 1, 2, 3), body), "reading version 4 signature"},
		{"accepts a signature dated one day ahead", messageOf(signV4(t, key, 0, crypto.SHA256, createdSubpacket(today.Add(72*time.Hour)), issuerSubpacket(id), []byte(body)), body), ""},
		{"rejects literal data after another signature", concat(onePass, literalOf(body), packetOf(2, good), literalOf("{}")), "more than one literal data packet"},
		{"rejects a signature that is not announced", concat(literalOf(body), packetOf(2, good)), "announces 0 signatures but has 1"},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			found, err := check(t, keyring(t, "k", e, alice), test.message)
			if test.want == "" {
				require.NoError(t, err)
				assert.Equal(t, test.message, found.Message)
				return
			}
			require.ErrorContains(t, err, test.want)
			assert.NotContains(t, err.Error(), "\n")
		})
	}
}
