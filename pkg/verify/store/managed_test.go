package store_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/openpgp"
	"github.com/cluster-version/cvo/pkg/verify/store"
)

// numbered returns a different digest for each number.
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
	m, changed := store.Managed{}.With(digest, evidence(one, nil, two))
	require.True(t, changed)
	m, changed = m.With(otherDigest, evidence(other))
	require.True(t, changed)
	data := m.BinaryData()
	assert.Equal(t, map[string][]byte{
		"sha256-" + digest.Hex() + "-0": one, "sha256-" + digest.Hex() + "-1": two, "sha256-" + otherDigest.Hex() + "-0": other,
	}, data)

	_, changed = m.With(digest, evidence(two))
	assert.False(t, changed, "the message is already stored")
	_, changed = m.With(digest, evidence(nil))
	assert.False(t, changed, "a signature attached to the image has no message")

	again := store.ReadManaged(data)
	assert.Equal(t, data, again.BinaryData())
	assert.Equal(t, []string{
		"c[sha256-" + digest.Hex() + "-0]=" + string(one), "c[sha256-" + digest.Hex() + "-1]=" + string(two),
	}, collect(t, store.NewConfigMaps(listOf(store.ConfigMapData{Name: "c", BinaryData: again.BinaryData()}))))
}

func TestManagedSkipsInvalidSignatures(t *testing.T) {
	good := sign(t, newEntity(t, "alice"), claim(digest))
	key := func(suffix string) string { return "sha256-" + digest.Hex() + suffix }
	m := store.ReadManaged(map[string][]byte{
		key("-0"): []byte("noise"), key("-7"): good, key("-x"): good, key("-1-1"): good, "sha256-12": good, "sha512-x": good, "": good,
		key("-2"): make([]byte, openpgp.MaxSignatureSize+1), key("-3"): nil,
		"sha256-" + string(bytes.Repeat([]byte("G"), 64)) + "-1": good,
	})
	assert.Equal(t, map[string][]byte{key("-0"): good}, m.BinaryData())
}

//threat:configmaps-full-worthless
func TestManagedDropsTheOldestBeyondItsBounds(t *testing.T) {
	t.Run("it drops the oldest digest", func(t *testing.T) {
		var m store.Managed
		for n := range 100 {
			m, _ = m.With(numbered(n), evidence(fmt.Appendf(nil, "message %d", n)))
			// Digest 0 is verified repeatedly.
			m, _ = m.With(numbered(0), evidence([]byte("message 0")))
		}
		data := m.BinaryData()
		assert.Len(t, data, 64)
		assert.Contains(t, data, store.ConfigMapKey(numbered(0), 0))
		assert.Contains(t, data, store.ConfigMapKey(numbered(99), 0))
		assert.Contains(t, data, store.ConfigMapKey(numbered(37), 0))
		assert.NotContains(t, data, store.ConfigMapKey(numbered(36), 0))
	})
	t.Run("it stays within the size limit of a ConfigMap", func(t *testing.T) {
		var m store.Managed
		for n := range 20 {
			m, _ = m.With(numbered(n), evidence(bytes.Repeat([]byte{byte(n)}, openpgp.MaxSignatureSize)))
		}
		total := 0
		for _, message := range m.BinaryData() {
			total += len(message)
		}
		assert.Equal(t, 10*openpgp.MaxSignatureSize, total)
		_, changed := m.With(digest, evidence(make([]byte, openpgp.MaxSignatureSize+1)))
		assert.False(t, changed, "a message that is too large must not be stored")
	})
	t.Run("it keeps the latest signatures of one digest", func(t *testing.T) {
		var m store.Managed
		for n := range 20 {
			m, _ = m.With(digest, evidence([]byte{'a' + byte(n)}))
		}
		data := m.BinaryData()
		assert.Len(t, data, 8)
		assert.Equal(t, "t", string(data[store.ConfigMapKey(digest, 7)]))
	})
	t.Run("it sorts messages by signing time", func(t *testing.T) {
		alice := newEntity(t, "alice", func(c *packet.Config) { c.Time = func() time.Time { return today.Add(-time.Hour) } })
		data := map[string][]byte{}
		for n := range 70 {
			data[store.ConfigMapKey(numbered(n), 0)] = sign(t, alice, claim(numbered(n)), func(c *packet.Config) {
				c.Time = func() time.Time { return today.Add(-time.Duration(n) * time.Second) }
			})
		}
		kept := store.ReadManaged(data).BinaryData()
		assert.Len(t, kept, 64)
		assert.Contains(t, kept, store.ConfigMapKey(numbered(0), 0))
		assert.NotContains(t, kept, store.ConfigMapKey(numbered(64), 0))
	})
}
