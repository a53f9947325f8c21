// Package ownership derives the owners of an object's fields from its metadata. In metadata.managedFields, the API server records the
// fields that each writer set. The package takes these entries and returns values: a hash of our fields, the other writers, and the changes
// that give us ownership of fields written before server-side apply. It does not access a cluster.
package ownership

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// Hash identifies the set of fields that our last apply owns. It changes when another manager takes, changes or removes one of these
// fields, and when our manager applies another set. It does not change when our manager applies other values to the same fields; Time shows
// that. The zero value means that we own none of the object's fields.
type Hash [16]byte

// String returns the hash in hexadecimal, or "" for the zero value.
func (h Hash) String() string {
	if h == (Hash{}) {
		return ""
	}
	return hex.EncodeToString(h[:])
}

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(text []byte) error {
	*h = Hash{}
	if len(text) == 0 {
		return nil
	}
	if hex.DecodedLen(len(text)) != len(h) {
		return fmt.Errorf("hash %q: want %d hexadecimal digits", text, hex.EncodedLen(len(h)))
	}
	if _, err := hex.Decode(h[:], text); err != nil {
		return fmt.Errorf("hash %q: %w", text, err)
	}
	return nil
}

// Ours returns the hash of the entry of our own applies (manager api.FieldManager, operation Apply, no subresource). The hash does not
// cover the entry's time; see Time.
func Ours(entries []metav1.ManagedFieldsEntry) Hash {
	for i := range entries {
		e := &entries[i]
		if !isOurs(e) || e.FieldsV1 == nil {
			continue
		}
		sum := sha256.New()
		_, _ = fmt.Fprintf(sum, "%s\n", e.APIVersion)
		_, _ = io.Copy(sum, e.FieldsV1.GetRawReader())
		return Hash(sum.Sum(nil)[:len(Hash{})])
	}
	return Hash{}
}

// Applied reports whether we have applied the object, so that the entries include our own.
func Applied(entries []metav1.ManagedFieldsEntry) bool { return Ours(entries) != Hash{} }

// Time returns the time of our own entry in seconds since 1970, or 0 if there is none. The API server updates the time when an apply under
// our manager's name changes the object, but not when an apply changes nothing, another manager writes, or a subresource is written. So if
// the time differs from the one in our last response, another writer uses our manager's name. Compare it only for equality: it comes from
// the clock of any of the API servers, in whole seconds.
func Time(entries []metav1.ManagedFieldsEntry) int64 {
	if at := LastChange(entries); !at.IsZero() {
		return at.Unix()
	}
	return 0
}

// LastChange returns the time of the last change by our own applies, in whole seconds, or zero if there was none. An apply that changes
// nothing does not count.
func LastChange(entries []metav1.ManagedFieldsEntry) time.Time {
	for i := range entries {
		if e := &entries[i]; isOurs(e) && e.Time != nil {
			return e.Time.Time
		}
	}
	return time.Time{}
}

// isOurs reports whether an entry belongs to our own applies.
func isOurs(e *metav1.ManagedFieldsEntry) bool {
	return e.Manager == api.FieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
}
