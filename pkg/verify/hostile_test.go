package verify_test

import (
	"bytes"
	"crypto"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/openpgp"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/store"
	"github.com/cluster-version/cvo/test/fixture"
)

// hostileVerify verifies and checks that cost and result size stay within their limits.
func hostileVerify(t *testing.T, v *verify.Verifier) error {
	t.Helper()
	var err error
	fixture.Bounded(t, func() { _, err = v.Verify(t.Context(), image()) })
	if err != nil {
		require.ErrorIs(t, err, verify.ErrUnverified)
		assert.Less(t, len(err.Error()), 16<<10)
		assert.NotContains(t, err.Error(), "\n")
	}
	return err
}

//threat:messages-bomb-nest
func TestHostileMessagesAreRejectedInTime(t *testing.T) {
	e, key := rsaKey(t, 2048)
	id := e.PrimaryKey.KeyId
	good := sign(t, e, claim(digest))
	wrong := packetOf(2, signV4(t, key, 0, crypto.SHA256, createdSubpacket(today), issuerSubpacket(id), []byte("something else")))
	nested := good
	for range 100 {
		nested = compress(t, packet.CompressionZIP, nested)
	}
	uncompressed := good
	for range 100 {
		uncompressed = packetOf(8, append([]byte{0}, uncompressed...))
	}
	zeros := strings.Repeat("\x00", 32<<20)
	tiny := []byte{0xc0 | 11}
	for range 20_000 {
		tiny = append(tiny, 224, 'b') // One byte of a longer body.
	}
	fill := func(p []byte) []byte { return bytes.Repeat(p, openpgp.MaxSignatureSize/len(p)) }
	hugeNumber := bytes.Clone(wrong[:len(wrong)-258])
	hugeNumber = packetOf(2, append(hugeNumber[6:], append([]byte{0xff, 0xff}, bytes.Repeat([]byte{0xff}, 8192)...)...))

	for _, test := range []struct {
		name    string
		message []byte
		want    string
	}{
		{"nested compression", nested, "compressed more than twice"},
		{"nested packets that are not compressed", uncompressed, "compressed more than twice"},
		{"a ZIP bomb", compress(t, packet.CompressionZIP, literal(t, zeros)), "decompresses to more than 131072 bytes"},
		{"a ZLIB bomb", compress(t, packet.CompressionZLIB, literal(t, zeros)), "decompresses to more than 131072 bytes"},
		{"two bombs that are small enough alone", append(compress(t, packet.CompressionZIP, packetOf(60, make([]byte, 100<<10))), compress(t, packet.CompressionZIP, packetOf(60, make([]byte, 100<<10)))...), "decompresses to more than 131072 bytes"},
		{"a message with a declared gigabyte", append([]byte{0xc0 | 11, 0xff, 0x40, 0, 0, 0}, "b"...), "reading OpenPGP message"},
		{"a signature with declared 4 gigabytes", []byte{0xc0 | 2, 0xff, 0xff, 0xff, 0xff, 0xff, 4}, "reading OpenPGP message"},
		{"a subpacket with declared 4 gigabytes", messageOf(append([]byte{4, 0, 1, 8, 0, 6, 0xff, 0xff, 0xff, 0xff, 0xff, 2}, make([]byte, 20)...), "x"), "signature subpacket truncated"},
		{"version 6 subpackets of 4 gigabytes", messageOf([]byte{6, 0, 27, 8, 0xff, 0xff, 0xff, 0xff}, "x"), "reading version 6 signature"},
		{"data in pieces of one byte", tiny, "reading OpenPGP message"},
		{"only markers", fill([]byte{0xca, 0}), "more than 100 packets"},
		{"only one-pass packets", fill([]byte{0xc4, 0}), "more than 100 packets"},
		{"only signatures", fill([]byte{0xc2, 1, 9}), "more than 16 signatures"},
		{"the maximum of wrong signatures over the maximum of data", compress(t, packet.CompressionZIP, append(bytes.Repeat(wrong, 16), literal(t, strings.Repeat(" ", 100<<10))...)), "is not valid"},
		{"a huge number in a signature", append(hugeNumber, literalOf(claim(digest))...), "is not valid"},
		{"unknown versions", messageOf(append([]byte{200}, make([]byte, 200)...), "x"), "reading version 200 signature"},
		{"armor without end", []byte("-----BEGIN PGP MESSAGE-----\n\n" + strings.Repeat("A", openpgp.MaxSignatureSize/2)), "decoding armor"},
		{"armor with headers without end", []byte("-----BEGIN PGP MESSAGE-----\n" + strings.Repeat("A: b\n", 10_000)), "decoding armor"},
		{"a message just above the limit", make([]byte, openpgp.MaxSignatureSize+1), "larger than 51200 bytes"},
		{"a notation with a very long name", messageOf(signV4(t, key, 0, crypto.SHA256, append(createdSubpacket(today), hugeNotation()...), issuerSubpacket(id), []byte("x")), "x"), "carries the unknown critical notation"},
	} {
		t.Run("it survives "+test.name, func(t *testing.T) {
			trust := policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", e)}}
			// Hostile signatures must not hide a good one that follows ten copies of them.
			messages := [][]byte{}
			for range 10 {
				messages = append(messages, test.message)
			}
			err := hostileVerify(t, newVerifier(t, trust, verify.Sources{Local: []store.Store{memory{name: "memory", messages: messages}}}))
			require.ErrorContains(t, err, test.want)
			require.NoError(t, hostileVerify(t, newVerifier(t, trust, verify.Sources{Local: []store.Store{memory{name: "memory", messages: append(messages, good)}}})))
		})
	}
}

// hugeNotation is a critical notation with a name of 30,000 letters.
func hugeNotation() []byte {
	name := strings.Repeat("n", 30_000)
	body := append([]byte{0x80, 0, 0, 0, byte(len(name) >> 8), byte(len(name)), 0, 0}, name...)
	return append([]byte{0xff, 0, 0, byte((len(body) + 1) >> 8), byte(len(body) + 1), 20 | 0x80}, body...)
}

//threat:configmaps-full-worthless
func TestHostileConfigMapsAreSearchedWithinBounds(t *testing.T) {
	e, key := rsaKey(t, 2048)
	wrong := packetOf(2, signV4(t, key, 0, crypto.SHA256, createdSubpacket(today), issuerSubpacket(e.PrimaryKey.KeyId), []byte("something else")))
	bomb := compress(t, packet.CompressionZIP, literal(t, strings.Repeat("\x00", 1<<20)))
	costly := compress(t, packet.CompressionZIP, append(bytes.Repeat(wrong, 16), literal(t, strings.Repeat(" ", 100<<10))...))
	for _, test := range []struct {
		name    string
		message []byte
		want    string
	}{
		{"signatures of other keys", sign(t, newEntity(t, "mallory"), claim(digest)), "more than 64 signatures, the rest is ignored"},
		{"signatures that are expensive to check", costly, "more than 64 signatures, the rest is ignored"},
		{"bombs", bomb, "more than 200 objects that are not signatures, the rest is ignored"},
		{"noise", []byte("noise"), "more than 200 objects that are not signatures, the rest is ignored"},
	} {
		t.Run("it survives a thousand "+test.name, func(t *testing.T) {
			data := store.ConfigMapData{Namespace: "n", Name: "c", BinaryData: map[string][]byte{}}
			for n := range 1000 {
				data.BinaryData[store.ConfigMapKey(digest, n)] = test.message
			}
			v := newVerifier(t, policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", e)}},
				verify.Sources{Local: []store.Store{store.NewConfigMaps(listOf(data))}})
			require.ErrorContains(t, hostileVerify(t, v), test.want)
		})
	}
	t.Run("it stops the search at its timeout", func(t *testing.T) {
		trust := policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "k", e)}}
		v := newVerifier(t, trust, verify.Sources{Local: []store.Store{endless{bomb}}, StoreTimeout: time.Millisecond})
		require.ErrorContains(t, hostileVerify(t, v), "no answer within 1ms")
	})
}

func TestPanicWhileReadingIsARejection(t *testing.T) {
	bad, good := newEntity(t, "bad"), newEntity(t, "good")
	trust := policy.Policy{Keyrings: []openpgp.Keyring{keyring(t, "bad", bad), keyring(t, "good", good)}}
	both := memory{name: "memory", messages: [][]byte{sign(t, bad, claim(digest)), sign(t, good, claim(digest))}}
	for _, sources := range []verify.Sources{{Local: []store.Store{both}}, {Exclusive: []store.Store{both}}} {
		_, err := verify.PanickingVerifier(newVerifier(t, trust, sources)).Verify(t.Context(), image())
		refused := &verify.UnverifiedError{}
		require.ErrorAs(t, err, &refused)
		require.ErrorContains(t, err, "reading the signature: panic: index out of range")
		require.Len(t, refused.Missing, 1)
		assert.Equal(t, "bad", refused.Missing[0].Name)
	}
}
