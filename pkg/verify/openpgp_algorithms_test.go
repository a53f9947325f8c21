package verify_test

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

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	_ "golang.org/x/crypto/ripemd160" //nolint:staticcheck // to make signatures that are refused

	"github.com/cluster-version/cvo/pkg/verify"
)

func TestAlgorithms(t *testing.T) {
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
			found, err := check(t, verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", e)}}, sign(t, e, claim(digest)))
			require.NoError(t, err)
			require.Len(t, found, 1)
			assert.Equal(t, test.want, found[0].Algorithm)
			assert.Regexp(t, "^([0-9A-F]{40}|[0-9A-F]{64})$", found[0].Fingerprint)
			assert.Contains(t, found[0].Fingerprint, found[0].KeyID)
		})
	}
}

func TestAlgorithmFloors(t *testing.T) {
	good, goodKey := rsaKey(t, 2048)
	weak, weakKey := rsaKey(t, 1024)
	middle, middleKey := rsaKey(t, 1536)
	message := func(e *openpgp.Entity, key *rsa.PrivateKey, h crypto.Hash, version int) []byte {
		body := claim(digest)
		if version == 3 {
			return messageOf(signV3(t, key, e.PrimaryKey.KeyId, 0, h, today, []byte(body)), body)
		}
		return messageOf(signV4(t, key, 0, h, createdSubpacket(today), issuerSubpacket(e.PrimaryKey.KeyId), []byte(body)), body)
	}
	sha1 := verify.OpenPGPRules{UnsafeAllowSHA1: true}
	for _, test := range []struct {
		name    string
		key     *openpgp.Entity
		rules   verify.OpenPGPRules
		message []byte
		// want is empty if it is accepted.
		want string
	}{
		{"accepts SHA-256 of version 4", good, verify.OpenPGPRules{}, message(good, goodKey, crypto.SHA256, 4), ""},
		{"accepts SHA-256 of version 3", good, verify.OpenPGPRules{}, message(good, goodKey, crypto.SHA256, 3), ""},
		{"refuses SHA-1 of version 4", good, verify.OpenPGPRules{}, message(good, goodKey, crypto.SHA1, 4), "hash algorithm SHA-1 is not accepted"},
		{"refuses SHA-1 of version 3", good, verify.OpenPGPRules{}, message(good, goodKey, crypto.SHA1, 3), "hash algorithm SHA-1 is not accepted"},
		{"accepts SHA-1 of version 4 if the policy says so", good, sha1, message(good, goodKey, crypto.SHA1, 4), ""},
		{"accepts SHA-1 of version 3 if the policy says so", good, sha1, message(good, goodKey, crypto.SHA1, 3), ""},
		{"refuses MD5 of version 4 all the same", good, sha1, message(good, goodKey, crypto.MD5, 4), "hash function 1"},
		{"refuses MD5 of version 3 all the same", good, sha1, message(good, goodKey, crypto.MD5, 3), "hash algorithm MD5 is not accepted"},
		{"refuses RIPEMD-160 all the same", good, sha1, message(good, goodKey, crypto.RIPEMD160, 3), "hash algorithm RIPEMD-160 is not accepted"},
		{"refuses a short key", weak, verify.OpenPGPRules{}, message(weak, weakKey, crypto.SHA256, 4), "is too weak: it has 1024 bits, at least 2048 are required"},
		{"refuses a short key with version 3", weak, verify.OpenPGPRules{}, message(weak, weakKey, crypto.SHA256, 3), "is too weak: it has 1024 bits"},
		{"accepts a short key if the policy says so", weak, verify.OpenPGPRules{UnsafeMinimumRSABits: 1024}, message(weak, weakKey, crypto.SHA256, 4), ""},
		{"accepts what is long enough for the policy", middle, verify.OpenPGPRules{UnsafeMinimumRSABits: 1500}, message(middle, middleKey, crypto.SHA256, 4), ""},
		{"refuses what is too short for the policy", weak, verify.OpenPGPRules{UnsafeMinimumRSABits: 1500}, message(weak, weakKey, crypto.SHA256, 4), "it has 1024 bits, at least 1500 are required"},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			policy := verify.Policy{OpenPGPRules: test.rules, Keyrings: []verify.Keyring{keyring(t, "k", test.key, newEntity(t, "other"))}}
			_, err := check(t, policy, test.message)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, verify.ErrUnverified)
			assert.ErrorContains(t, err, test.want)
		})
	}
}

// Vendor keys that were made before 2014 have self-signatures over SHA-1. The keyring is trusted as it is, so they
// count; what such a key signs has to be over something better.
func TestSHA1InTheKeyring(t *testing.T) {
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
	k, err := verify.NewKeyring("k", data.Bytes())
	require.NoError(t, err)

	body := claim(digest)
	_, err = check(t, verify.Policy{Keyrings: []verify.Keyring{k}},
		messageOf(signV4(t, key, 0, crypto.SHA256, createdSubpacket(today), issuerSubpacket(e.PrimaryKey.KeyId), []byte(body)), body))
	require.NoError(t, err)
	_, err = check(t, verify.Policy{Keyrings: []verify.Keyring{k}},
		messageOf(signV4(t, key, 0, crypto.SHA1, createdSubpacket(today), issuerSubpacket(e.PrimaryKey.KeyId), []byte(body)), body))
	require.ErrorContains(t, err, "hash algorithm SHA-1 is not accepted")
}

func TestRulesAreInRange(t *testing.T) {
	for _, bits := range []int{-1, 1, 1023, 2048, 4096} {
		policy := verify.Policy{
			OpenPGPRules: verify.OpenPGPRules{UnsafeMinimumRSABits: bits}, Keyrings: []verify.Keyring{keyring(t, "k", newEntity(t, "alice"))},
		}
		_, err := verify.New(policy, verify.Sources{Local: []verify.Store{memory{}}}, nil)
		assert.ErrorContains(t, err, "unsafeMinimumRSABits is", bits)
	}
}

func TestForms(t *testing.T) {
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
		{"accepts a packet that is not compressed", packetOf(8, append([]byte{0}, messageOf(good, body)...)), ""},
		{"accepts text with line ends made canonical", messageOf(v4(1, nil, strings.ReplaceAll(lines, "\n", "\r\n")), lines), ""},
		{"refuses text whose line ends are not", messageOf(v4(1, nil, lines), lines), "is not valid"},
		{"refuses binary data whose line ends changed", messageOf(v4(0, nil, strings.ReplaceAll(lines, "\n", "\r\n")), lines), "is not valid"},
		{"accepts one good signature of several", concat(packetOf(2, []byte{9}), packetOf(2, signV4(t, key, 0, crypto.SHA1, createdSubpacket(today), issuerSubpacket(id), []byte(body))), packetOf(2, good), literalOf(body)), ""},
		{"accepts a marker and what nobody needs to know", concat(packetOf(10, []byte("PGP")), packetOf(21, make([]byte, 30)), packetOf(60, []byte("x")), messageOf(good, body)), ""},
		{"refuses a packet of an unknown kind", concat(packetOf(19, []byte("x")), messageOf(good, body)), "unexpected packet of type 19"},
		{"accepts a notation", messageOf(v4(0, subpacket(20, false, []byte("\x80\x00\x00\x00\x00\x03\x00\x01a@bc")), body), body), ""},
		{"refuses a critical notation", messageOf(v4(0, subpacket(20, true, []byte("\x80\x00\x00\x00\x00\x03\x00\x01a@bc")), body), body), `carries the critical notation "a@b", which is unknown here`},
		{"accepts a subpacket that nobody knows", messageOf(v4(0, subpacket(101, false, []byte("x")), body), body), ""},
		{"refuses a critical subpacket that nobody knows", messageOf(v4(0, subpacket(101, true, []byte("x")), body), body), "unknown critical signature subpacket type 101"},
		{"refuses a signature over another kind of thing", messageOf(v4(0x10, nil, body), body), "it is of type 0x10, expected a signature of a document"},
		{"refuses a signature that only stands for itself", messageOf(v4(2, nil, body), body), "it is of type 0x02"},
		{"refuses a version 3 signature over another kind of thing", messageOf(signV3(t, key, id, 0x10, crypto.SHA256, today, []byte(body)), body), "it is of type 0x10"},
		{"refuses a version 3 signature by a key that is not RSA", messageOf(signV3(t, key, alice.PrimaryKey.KeyId, 0, crypto.SHA256, today, []byte(body)), body), "version 3 signatures are accepted with RSA keys only"},
		{"refuses a version 2 signature that is not right", messageOf(append([]byte{2}, signV3(t, key, id, 0, crypto.SHA256, today, []byte("other"))[1:]...), body), "is not valid"},
		{"refuses a signature without issuer", messageOf(signV4(t, key, 0, crypto.SHA256, createdSubpacket(today), nil, []byte(body)), body), "signed by key without an id"},
		{"refuses a signature without a date", messageOf(signV4(t, key, 0, crypto.SHA256, nil, issuerSubpacket(id), []byte(body)), body), "no creation time"},
		{"takes no date from where it is not signed", messageOf(signV4(t, key, 0, crypto.SHA256, nil, append(createdSubpacket(today), issuerSubpacket(id)...), []byte(body)), body), "no creation time"},
		{"takes no lifetime from where it is not signed", messageOf(signV4(t, key, 0, crypto.SHA256, createdSubpacket(today), append(subpacket(3, false, []byte{0, 0, 0, 1}), issuerSubpacket(id)...), []byte(body)), body), ""},
		{"refuses a signature of version 5", messageOf(append([]byte{5}, good[1:]...), body), "reading version 5 signature"},
		{"refuses a signature of a version to come", messageOf(append([]byte{7}, good[1:]...), body), "reading version 7 signature"},
		{"refuses a signature whose number is huge", messageOf(append(bytes.Clone(good[:len(good)-258]), append([]byte{0xff, 0xff}, bytes.Repeat([]byte{0xff}, 8192)...)...), body), "is not valid"},
		{"refuses a signature whose number is cut", messageOf(append(bytes.Clone(good[:len(good)-258]), 0xff, 0xff, 1, 2, 3), body), "reading version 4 signature"},
		{"accepts a signature from tomorrow's clock", messageOf(signV4(t, key, 0, crypto.SHA256, createdSubpacket(today.Add(72*time.Hour)), issuerSubpacket(id), []byte(body)), body), ""},
		{"refuses literal data behind the signature of others", concat(onePass, literalOf(body), packetOf(2, good), literalOf("{}")), "more than one literal data packet"},
		{"refuses a signature that is not announced", concat(literalOf(body), packetOf(2, good)), "announces 0 signatures and has 1"},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			found, err := check(t, verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", e, alice)}}, test.message)
			if test.want == "" {
				require.NoError(t, err)
				require.Len(t, found, 1)
				assert.Equal(t, test.message, found[0].Message)
				return
			}
			require.ErrorIs(t, err, verify.ErrUnverified)
			require.ErrorContains(t, err, test.want)
			assert.NotContains(t, err.Error(), "\n")
		})
	}
}
