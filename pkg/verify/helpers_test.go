package verify_test

import (
	"bytes"
	"context"
	"crypto"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/stretchr/testify/require"
	testclock "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
)

const (
	digest      = release.Digest("sha256:1111111111111111111111111111111111111111111111111111111111111111")
	otherDigest = release.Digest("sha256:2222222222222222222222222222222222222222222222222222222222222222")
)

// today is when keys and signatures of these tests are made; the verifier's clock stands a day later.
var today = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func image() release.Image {
	return release.Image{Pullspec: "registry.example/platform/release:2.0.0", Digest: digest}
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

// newEntity makes an OpenPGP key.
func newEntity(t testing.TB, name string, change ...func(*packet.Config)) *openpgp.Entity {
	t.Helper()
	config := &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, Time: func() time.Time { return today }}
	for _, c := range change {
		c(config)
	}
	e, err := openpgp.NewEntity(name, "", name+"@example.com", config)
	require.NoError(t, err)
	return e
}

// public returns the armored public keys.
func public(t testing.TB, entities ...*openpgp.Entity) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := armor.Encode(&out, openpgp.PublicKeyType, nil)
	require.NoError(t, err)
	for _, e := range entities {
		require.NoError(t, e.Serialize(w))
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func keyring(t testing.TB, name string, entities ...*openpgp.Entity) verify.Keyring {
	t.Helper()
	k, err := verify.NewKeyring(name, public(t, entities...))
	require.NoError(t, err)
	return k
}

// claim is a claim about a digest in the exact form that release signatures carry.
func claim(d release.Digest) string {
	return fmt.Sprintf(`{"critical":{"type":"atomic container signature","image":{"docker-manifest-digest":%q},`+
		`"identity":{"docker-reference":"registry.example/platform/release"}},"optional":{"creator":"test","timestamp":1772366400}}`, d)
}

// sign returns a binary signed message.
func sign(t testing.TB, e *openpgp.Entity, body string, change ...func(*packet.Config)) []byte {
	t.Helper()
	config := &packet.Config{DefaultHash: crypto.SHA256, Time: func() time.Time { return today }}
	for _, c := range change {
		c(config)
	}
	var out bytes.Buffer
	w, err := openpgp.Sign(&out, e, &openpgp.FileHints{IsBinary: true}, config)
	require.NoError(t, err)
	_, err = w.Write([]byte(body))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

// compress wraps packets into a compressed data packet.
func compress(t testing.TB, algorithm packet.CompressionAlgo, packets []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := packet.SerializeCompressed(nopCloser{&out}, algorithm, nil)
	require.NoError(t, err)
	_, err = w.Write(packets)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

// literal returns a literal data packet.
func literal(t testing.TB, body string) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := packet.SerializeLiteral(nopCloser{&out}, true, "", 0)
	require.NoError(t, err)
	_, err = io.WriteString(w, body)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func armored(t testing.TB, kind string, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := armor.Encode(&out, kind, nil)
	require.NoError(t, err)
	_, err = w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// memory is a store of messages for one digest.
type memory struct {
	name     string
	messages [][]byte
	asked    *int
}

func (m memory) String() string { return m.name }

func (m memory) Signatures(_ context.Context, d release.Digest) iter.Seq2[verify.Signature, error] {
	return func(yield func(verify.Signature, error) bool) {
		if m.asked != nil {
			*m.asked++
		}
		if d != digest {
			return
		}
		for i, message := range m.messages {
			name := fmt.Sprintf("signature-%d", i+1)
			if !yield(verify.Signature{Name: name, Location: m.name + "/" + name, Message: message}, nil) {
				return
			}
		}
	}
}

// check verifies the digest against keyrings and messages in one store.
func check(t testing.TB, policy verify.Policy, messages ...[]byte) ([]release.Evidence, error) {
	t.Helper()
	return newVerifier(t, policy, verify.Sources{Local: []verify.Store{memory{name: "memory", messages: messages}}}).Verify(t.Context(), image())
}

func newVerifier(t testing.TB, policy verify.Policy, sources verify.Sources) *verify.Verifier {
	t.Helper()
	v, err := verify.New(policy, sources, testclock.NewFakePassiveClock(today.Add(24*time.Hour)))
	require.NoError(t, err)
	return v
}

// verifierAt is a verifier at another time, over messages in one store.
func verifierAt(t testing.TB, policy verify.Policy, now time.Time, messages ...[]byte) *verify.Verifier {
	t.Helper()
	sources := verify.Sources{Local: []verify.Store{memory{name: "memory", messages: messages}}}
	v, err := verify.New(policy, sources, testclock.NewFakePassiveClock(now))
	require.NoError(t, err)
	return v
}

// edit replaces text of the same length, which leaves every length in a message as it is.
func edit(t testing.TB, data []byte, from, to string) []byte {
	t.Helper()
	require.Len(t, to, len(from))
	require.Contains(t, string(data), from)
	return []byte(strings.Replace(string(data), from, to, 1))
}
