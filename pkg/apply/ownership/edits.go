package ownership

import (
	"crypto/sha256"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Edits returns a hash of all entries except those of subresources, with their times. It changes with every write except to status, unless
// the same manager writes the same fields twice within a second.
func Edits(entries []metav1.ManagedFieldsEntry) Hash {
	sum := sha256.New()
	for i := range entries {
		e := &entries[i]
		if e.Subresource != "" {
			continue
		}
		_, _ = fmt.Fprintf(sum, "%s %s %s ", e.Manager, e.Operation, e.APIVersion)
		if e.Time != nil {
			_, _ = fmt.Fprint(sum, e.Time.Unix())
		}
		_, _ = fmt.Fprintln(sum)
		if e.FieldsV1 != nil {
			_, _ = io.Copy(sum, e.FieldsV1.GetRawReader())
		}
	}
	return Hash(sum.Sum(nil)[:len(Hash{})])
}
