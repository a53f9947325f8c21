package verify_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
)

// numbered returns a digest for every number.
func numbered(n int) release.Digest { return release.Digest(fmt.Sprintf("sha256:%064x", n)) }

func evidence(messages ...[]byte) []release.Evidence {
	var out []release.Evidence
	for _, m := range messages {
		out = append(out, release.Evidence{Message: m})
	}
	return out
}

func TestManagedIsWrittenAndReadBack(t *testing.T) {
	alice := newEntity(t, "alice")
	one, two := sign(t, alice, claim(digest)), sign(t, alice, claim(digest)+" ")
	other := sign(t, alice, claim(otherDigest))
	m, changed := verify.Managed{}.With(digest, evidence(one, nil, two))
	require.True(t, changed)
	m, changed = m.With(otherDigest, evidence(other))
	require.True(t, changed)
	data := m.BinaryData()
	assert.Equal(t, map[string][]byte{
		"sha256-" + digest.Hex() + "-0": one, "sha256-" + digest.Hex() + "-1": two, "sha256-" + otherDigest.Hex() + "-0": other,
	}, data)
	assert.True(t, m.Equal(data))

	_, changed = m.With(digest, evidence(two))
	assert.False(t, changed, "what is there already")
	_, changed = m.With(digest, evidence(nil))
	assert.False(t, changed, "a signature beside the image has no message")

	again := verify.ReadManaged(data)
	assert.Equal(t, data, again.BinaryData())
	assert.Equal(t, []string{
		"sha256-" + digest.Hex() + "-0=" + string(one), "sha256-" + digest.Hex() + "-1=" + string(two),
	}, collect(t, again))
}

func TestManagedLeavesOutWhatIsNoSignature(t *testing.T) {
	good := sign(t, newEntity(t, "alice"), claim(digest))
	key := func(suffix string) string { return "sha256-" + digest.Hex() + suffix }
	m := verify.ReadManaged(map[string][]byte{
		key("-0"): []byte("noise"), key("-7"): good, key("-x"): good, key("-1-1"): good, "sha256-12": good, "sha512-x": good, "": good,
		key("-2"): make([]byte, verify.MaxSignatureSize+1), key("-3"): nil,
		"sha256-" + string(bytes.Repeat([]byte("G"), 64)) + "-1": good,
	})
	assert.Equal(t, map[string][]byte{key("-0"): good}, m.BinaryData())
	assert.False(t, m.Equal(map[string][]byte{key("-7"): good}))
}

func TestManagedIsBounded(t *testing.T) {
	t.Run("it drops the oldest digest", func(t *testing.T) {
		var m verify.Managed
		for n := range 100 {
			m, _ = m.With(numbered(n), evidence(fmt.Appendf(nil, "message %d", n)))
			// Digest 0 is verified again and again.
			m, _ = m.With(numbered(0), evidence([]byte("message 0")))
		}
		data := m.BinaryData()
		assert.Len(t, data, 64)
		assert.Contains(t, data, verify.ConfigMapKey(numbered(0), 0))
		assert.Contains(t, data, verify.ConfigMapKey(numbered(99), 0))
		assert.Contains(t, data, verify.ConfigMapKey(numbered(37), 0))
		assert.NotContains(t, data, verify.ConfigMapKey(numbered(36), 0))
	})
	t.Run("it keeps below the size of a ConfigMap", func(t *testing.T) {
		var m verify.Managed
		for n := range 20 {
			m, _ = m.With(numbered(n), evidence(bytes.Repeat([]byte{byte(n)}, verify.MaxSignatureSize)))
		}
		total := 0
		for _, message := range m.BinaryData() {
			total += len(message)
		}
		assert.Equal(t, 10*verify.MaxSignatureSize, total)
		_, changed := m.With(digest, evidence(make([]byte, verify.MaxSignatureSize+1)))
		assert.False(t, changed, "no single message is larger")
	})
	t.Run("it keeps the latest signatures of one digest", func(t *testing.T) {
		var m verify.Managed
		for n := range 20 {
			m, _ = m.With(digest, evidence([]byte{'a' + byte(n)}))
		}
		data := m.BinaryData()
		assert.Len(t, data, 8)
		assert.Equal(t, "t", string(data[verify.ConfigMapKey(digest, 7)]))
	})
	t.Run("it takes what was signed earlier for older", func(t *testing.T) {
		alice := newEntity(t, "alice", func(c *packet.Config) { c.Time = func() time.Time { return today.Add(-time.Hour) } })
		data := map[string][]byte{}
		for n := range 70 {
			data[verify.ConfigMapKey(numbered(n), 0)] = sign(t, alice, claim(numbered(n)), func(c *packet.Config) {
				c.Time = func() time.Time { return today.Add(-time.Duration(n) * time.Second) }
			})
		}
		kept := verify.ReadManaged(data).BinaryData()
		assert.Len(t, kept, 64)
		assert.Contains(t, kept, verify.ConfigMapKey(numbered(0), 0))
		assert.NotContains(t, kept, verify.ConfigMapKey(numbered(64), 0))
	})
}

func TestManagedDoesNotOutliveARevocation(t *testing.T) {
	alice := newEntity(t, "alice")
	policy := verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", alice)}}
	found, err := check(t, policy, sign(t, alice, claim(digest)))
	require.NoError(t, err)
	kept, changed := verify.Managed{}.With(digest, found)
	require.True(t, changed)

	verifier := func(e *openpgp.Entity) *verify.Verifier {
		return newVerifier(t, verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", e)}}, verify.Sources{Local: []verify.Store{kept}})
	}
	again, err := verifier(alice).Verify(t.Context(), image())
	require.NoError(t, err)
	assert.Contains(t, again[0].Store, "ConfigMap openshift-config-managed/signatures-managed key sha256-")

	require.NoError(t, alice.RevokeKey(packet.KeyCompromised, "", &packet.Config{Time: func() time.Time { return today }}))
	_, err = newVerifierOfRevoked(t, alice, kept)
	require.ErrorContains(t, err, "is revoked")
}

// newVerifierOfRevoked verifies with a keyring that has one good key beside the revoked one, so that it can be used.
func newVerifierOfRevoked(t *testing.T, revoked *openpgp.Entity, s verify.Store) ([]release.Evidence, error) {
	t.Helper()
	policy := verify.Policy{Keyrings: []verify.Keyring{keyring(t, "k", revoked, newEntity(t, "other"))}}
	return newVerifier(t, policy, verify.Sources{Local: []verify.Store{s}}).Verify(t.Context(), image())
}
