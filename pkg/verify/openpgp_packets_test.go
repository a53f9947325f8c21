package verify_test

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"encoding/binary"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/stretchr/testify/require"
)

// Packets made by hand: what well-behaved programs do not write.

// rsaKey makes an RSA key of any length with its self-signature.
func rsaKey(t testing.TB, bits int) (*openpgp.Entity, *rsa.PrivateKey) {
	t.Helper()
	e := newEntity(t, "rsa", func(c *packet.Config) { c.Algorithm, c.RSABits = packet.PubKeyAlgoRSA, bits })
	key, ok := e.PrivateKey.PrivateKey.(*rsa.PrivateKey)
	require.True(t, ok)
	return e, key
}

// header returns a new-format packet header for a body of that length.
func header(tag byte, length int) []byte {
	return binary.BigEndian.AppendUint32([]byte{0xc0 | tag, 0xff}, uint32(length))
}

func packetOf(tag byte, body []byte) []byte { return append(header(tag, len(body)), body...) }

// literalOf is a literal data packet of one piece.
func literalOf(body string) []byte {
	return packetOf(11, append([]byte{'b', 0, 0, 0, 0, 0}, body...))
}

// OpenPGP's numbers of hash algorithms.
var hashIDs = map[crypto.Hash]byte{crypto.MD5: 1, crypto.SHA1: 2, crypto.RIPEMD160: 3, crypto.SHA256: 8, crypto.SHA512: 10}

func mpi(b []byte) []byte {
	b = bytes.TrimLeft(b, "\x00")
	bits := 0
	if len(b) > 0 {
		bits = (len(b) - 1) * 8
		for top := b[0]; top > 0; top >>= 1 {
			bits++
		}
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(bits)), b...)
}

// subpacket is one subpacket of a signature.
func subpacket(kind byte, critical bool, body []byte) []byte {
	if critical {
		kind |= 0x80
	}
	return append([]byte{byte(len(body) + 1), kind}, body...)
}

func createdSubpacket(at time.Time) []byte {
	return subpacket(2, false, binary.BigEndian.AppendUint32(nil, uint32(at.Unix())))
}

func issuerSubpacket(keyID uint64) []byte {
	return subpacket(16, false, binary.BigEndian.AppendUint64(nil, keyID))
}

// signV4 is the body of a version 4 signature packet over data, made by RSA.
func signV4(t testing.TB, key *rsa.PrivateKey, kind byte, h crypto.Hash, hashed, unhashed, data []byte) []byte {
	t.Helper()
	start := append([]byte{4, kind, 1, hashIDs[h]}, binary.BigEndian.AppendUint16(nil, uint16(len(hashed)))...)
	start = append(start, hashed...)
	sum := h.New()
	sum.Write(data)
	sum.Write(start)
	sum.Write(binary.BigEndian.AppendUint32([]byte{4, 0xff}, uint32(len(start))))
	digest := sum.Sum(nil)
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, h, digest)
	require.NoError(t, err)
	lengths := binary.BigEndian.AppendUint16(nil, uint16(len(unhashed)))
	return bytes.Join([][]byte{start, lengths, unhashed, digest[:2], mpi(signature)}, nil)
}

// signV3 is the body of a version 3 signature packet over data, made by RSA.
func signV3(t testing.TB, key *rsa.PrivateKey, keyID uint64, kind byte, h crypto.Hash, at time.Time, data []byte) []byte {
	t.Helper()
	hashed := append([]byte{kind}, binary.BigEndian.AppendUint32(nil, uint32(at.Unix()))...)
	sum := h.New()
	sum.Write(data)
	sum.Write(hashed)
	digest := sum.Sum(nil)
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, h, digest)
	require.NoError(t, err)
	out := append([]byte{3, 5}, hashed...)
	out = binary.BigEndian.AppendUint64(out, keyID)
	out = append(out, 1, hashIDs[h], digest[0], digest[1])
	return append(out, mpi(signature)...)
}

// messageOf is a message in the form without one-pass packets: the signature first.
func messageOf(signature []byte, body string) []byte {
	return append(packetOf(2, signature), literalOf(body)...)
}

// partial splits a packet's body into pieces of partial lengths.
func partial(tag byte, body []byte) []byte {
	out := []byte{0xc0 | tag}
	const power = 9 // 512 bytes, the least for the first piece.
	for len(body) > 1<<power {
		out = append(append(out, 224+power), body[:1<<power]...)
		body = body[1<<power:]
	}
	return append(append(out, 0xff), append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)...)
}
