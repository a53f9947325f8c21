// Package ownership reads from an object's metadata which of its fields belong to whom. The API server keeps, in
// metadata.managedFields, the set of fields that each writer set; it takes these entries and returns values: a hash of
// what is ours, who else wrote, and what has to change so that fields written before server-side apply become ours.
// It talks to no cluster.
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

// Hash stands for the set of fields that our last apply owns. It changes exactly when somebody else takes, changes or
// removes one of them, or when we apply another set. The zero value stands for none: nothing of the object is ours.
type Hash [16]byte

// String is the hash in hexadecimal, empty for the zero value.
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

// Ours returns the hash of the entry that belongs to our own applies (manager api.FieldManager, operation Apply, no
// subresource). The entry's time is left out: the API server sets it anew when it likes.
func Ours(entries []metav1.ManagedFieldsEntry) Hash {
	for i := range entries {
		e := &entries[i]
		if !ours(e) || e.FieldsV1 == nil {
			continue
		}
		sum := sha256.New()
		_, _ = fmt.Fprintf(sum, "%s\n", e.APIVersion)
		_, _ = io.Copy(sum, e.FieldsV1.GetRawReader())
		return Hash(sum.Sum(nil)[:len(Hash{})])
	}
	return Hash{}
}

// LastChange returns when our own applies last changed the object, to the second; zero if they never did. An apply that
// changes nothing does not count.
func LastChange(entries []metav1.ManagedFieldsEntry) time.Time {
	for i := range entries {
		if e := &entries[i]; ours(e) && e.Time != nil {
			return e.Time.Time
		}
	}
	return time.Time{}
}

// ours reports whether an entry is of our own applies.
func ours(e *metav1.ManagedFieldsEntry) bool {
	return e.Manager == api.FieldManager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == ""
}
