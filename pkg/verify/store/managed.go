package store

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/openpgp"
)

// ManagedName is the ConfigMap in namespace openshift-config-managed in which the operator stores verified signatures, so that a rollback
// to a release needs no signature store (OpenShift uses the same name).
const ManagedName = "signatures-managed"

// Limits of Managed. A ConfigMap may have 1 MiB, and base64 enlarges binaryData by a third.
const (
	maxManagedDigests    = 64
	maxManagedSignatures = 8
	maxManagedBytes      = 512 << 10
	// maxManagedKeys limits the number of keys read from the ConfigMap, because another client may have filled it.
	maxManagedKeys = 4 * maxManagedDigests * maxManagedSignatures
)

// Managed contains the messages of verified signatures, oldest first. It is immutable: With returns a changed copy. The zero Managed is
// empty.
//
// ConfigMaps is the Store that searches it. Managed stores signatures instead of results on purpose: the verifier checks each signature
// again with the current policy and time, so a key that has been revoked since no longer counts.
type Managed struct {
	entries []managedDigest
}

type managedDigest struct {
	digest   release.Digest
	messages [][]byte
}

func (d managedDigest) size() int {
	n := 0
	for _, m := range d.messages {
		n += len(m)
	}
	return n
}

// ReadManaged returns the content of such a ConfigMap. It ignores keys in another format and values that are not signed messages. A
// ConfigMap has no order, so messages are ordered by signing time.
func ReadManaged(binaryData map[string][]byte) Managed {
	var m Managed
	signed := map[release.Digest]time.Time{}
	for _, key := range sortedManagedKeys(binaryData) {
		message, err := openpgp.ReadMessage(binaryData[key.key])
		if err != nil {
			continue
		}
		m, _ = m.with(key.digest, binaryData[key.key])
		if at := message.SignedAt(); at.After(signed[key.digest]) {
			signed[key.digest] = at
		}
	}
	sorted.By(m.entries, func(a, b managedDigest) int { return signed[a.digest].Compare(signed[b.digest]) })
	return m.bounded()
}

type managedKey struct {
	digest release.Digest
	number int
	key    string
}

func sortedManagedKeys(binaryData map[string][]byte) []managedKey {
	var keys []managedKey
	for key := range binaryData {
		const hexDigits = 64
		hex, ok := strings.CutPrefix(key, configMapPrefix(""))
		if !ok || len(hex) < hexDigits {
			continue
		}
		digest, err := release.ParseDigest("sha256:" + hex[:hexDigits])
		if err != nil {
			continue
		}
		if n, ok := keyNumber(key, digest); ok {
			keys = append(keys, managedKey{digest: digest, number: n, key: key})
		}
	}
	sorted.By(keys, func(a, b managedKey) int {
		return cmp.Or(cmp.Compare(a.digest, b.digest), cmp.Compare(a.number, b.number), cmp.Compare(a.key, b.key))
	})
	return keys[:min(len(keys), maxManagedKeys)]
}

// With returns a copy with the messages of the evidence added, and whether that changed anything. The digest becomes the newest. With drops
// the oldest messages beyond the limits. It ignores evidence without a message, such as evidence from signatures in the registry.
func (m Managed) With(digest release.Digest, evidence []release.Evidence) (Managed, bool) {
	out, changed := m, false
	for _, e := range evidence {
		if len(e.Message) == 0 || len(e.Message) > openpgp.MaxSignatureSize {
			continue
		}
		var added bool
		out, added = out.with(digest, e.Message)
		changed = changed || added
	}
	return out.bounded(), changed
}

// with adds one message and makes its digest the newest.
func (m Managed) with(digest release.Digest, message []byte) (Managed, bool) {
	entry, added := managedDigest{digest: digest}, true
	var others []managedDigest
	for _, e := range m.entries {
		if e.digest == digest {
			entry = e
		} else {
			others = append(others, e)
		}
	}
	if slices.ContainsFunc(entry.messages, func(b []byte) bool { return bytes.Equal(b, message) }) {
		added = false
	} else {
		entry.messages = append(slices.Clone(entry.messages), bytes.Clone(message))
		entry.messages = entry.messages[max(0, len(entry.messages)-maxManagedSignatures):]
	}
	return Managed{entries: append(others, entry)}, added
}

func (m Managed) bounded() Managed {
	total := 0
	for i, e := range slices.Backward(m.entries) {
		if total += e.size(); total > maxManagedBytes || len(m.entries)-i > maxManagedDigests {
			return Managed{entries: m.entries[i+1:]}
		}
	}
	return m
}

// BinaryData returns the content of the ConfigMap. As in OpenShift's operator, the keys are sha256-<hex>-<n> with n starting at 0.
func (m Managed) BinaryData() map[string][]byte {
	out := map[string][]byte{}
	for _, e := range m.entries {
		for n, message := range e.messages {
			out[ConfigMapKey(e.digest, n)] = bytes.Clone(message)
		}
	}
	return out
}
