package verify

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
)

// ManagedName is the ConfigMap in namespace openshift-config-managed in which an operator keeps the signatures of what
// it has verified, so that going back to a release needs no store (OpenShift has it under the same name).
const ManagedName = "signatures-managed"

// What a Managed holds at most. A ConfigMap may have 1 MiB, and binaryData grows by a third on its way.
const (
	maxManagedDigests    = 64
	maxManagedSignatures = 8
	maxManagedBytes      = 512 << 10
	// maxManagedKeys bounds what is read of a ConfigMap that somebody else has filled.
	maxManagedKeys = 4 * maxManagedDigests * maxManagedSignatures
)

// Managed are the messages of verified signatures, the oldest first. It is a value: With returns another one. The zero
// Managed is empty.
//
// Managed is also a Store. Put first among Sources.Local it spares all requests for what has been verified before.
// It remembers signatures and not verdicts, on purpose: each is checked again, under the policy and at the time of the
// asking, so that a key that is revoked since counts no more.
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

// ReadManaged returns what a ConfigMap of this kind holds. Keys of another form, and what is no signed message, are
// left out. A ConfigMap has no order: what says it was signed earlier counts as older.
func ReadManaged(binaryData map[string][]byte) Managed {
	var m Managed
	signed := map[release.Digest]time.Time{}
	for _, key := range sortedManagedKeys(binaryData) {
		message, err := readMessage(binaryData[key.key])
		if err != nil {
			continue
		}
		m, _ = m.with(key.digest, binaryData[key.key])
		for _, s := range message.signatures {
			if s.err == nil && s.created().After(signed[key.digest]) {
				signed[key.digest] = s.created()
			}
		}
	}
	slices.SortStableFunc(m.entries, func(a, b managedDigest) int { return signed[a.digest].Compare(signed[b.digest]) })
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
	slices.SortFunc(keys, func(a, b managedKey) int {
		return cmp.Or(cmp.Compare(a.digest, b.digest), cmp.Compare(a.number, b.number), cmp.Compare(a.key, b.key))
	})
	return keys[:min(len(keys), maxManagedKeys)]
}

// With returns the messages with those of the evidence, and whether that is another set than before. The digest is the
// newest then; what exceeds the bounds is dropped, the oldest first. Evidence that carries no message, as that of
// signatures beside the image, changes nothing.
func (m Managed) With(digest release.Digest, evidence []release.Evidence) (Managed, bool) {
	out, changed := m, false
	for _, e := range evidence {
		if len(e.Message) == 0 || len(e.Message) > MaxSignatureSize {
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

// BinaryData is the content of the ConfigMap: keys sha256-<hex>-<n>, n from 0, as OpenShift's operator writes them.
func (m Managed) BinaryData() map[string][]byte {
	out := map[string][]byte{}
	for _, e := range m.entries {
		for n, message := range e.messages {
			out[ConfigMapKey(e.digest, n)] = bytes.Clone(message)
		}
	}
	return out
}

// Equal tells whether a ConfigMap holds exactly these messages already.
func (m Managed) Equal(binaryData map[string][]byte) bool {
	return maps.EqualFunc(m.BinaryData(), binaryData, bytes.Equal)
}

// String says that these are signatures seen before.
func (m Managed) String() string { return "signatures seen before" }

// Signatures yields the messages about the digest in the order in which they were seen.
func (m Managed) Signatures(_ context.Context, digest release.Digest) iter.Seq2[Signature, error] {
	return func(yield func(Signature, error) bool) {
		for _, e := range m.entries {
			if e.digest != digest {
				continue
			}
			for n, message := range e.messages {
				key := ConfigMapKey(digest, n)
				s := Signature{Name: key, Location: fmt.Sprintf("ConfigMap %s/%s key %s", api.ConfigManagedNamespace, ManagedName, key), Message: message}
				if !yield(s, nil) {
					return
				}
			}
		}
	}
}
