package body

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"

	"github.com/cluster-version/cvo/pkg/apply/inject"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// formVersion is the version of the form in which manifests are sent. Increment it whenever an unchanged manifest results in a different
// object. Otherwise, clusters keep the old form until the manifest changes. A test fails if the increment is missing.
const formVersion = 1

// Hash returns a hash of the object to send for a manifest. It changes with the manifest and with everything that is added to it: the
// owner, an injected proxy, the form of this package. If an object has the same hash in two releases, an update between them needs no
// request for it. Hash is cheap enough to be called for every check of an object, because most manifests use the hash from loading. It
// builds only objects with injections and objects whose status is not sent. It fails for a manifest that cannot be sent.
func (b Builder) Hash(m *manifest.Manifest) ([sha256.Size]byte, error) {
	sum := sha256.New()
	if inject.Requested(m) || IsClusterOperator(m) {
		// Whether the kind is namespaced does not matter, because it is the same for all manifests of one kind.
		object, err := b.object(m, true)
		if err != nil {
			return [sha256.Size]byte{}, err
		}
		data, err := json.Marshal(object)
		if err != nil {
			return [sha256.Size]byte{}, fmt.Errorf("%w: %w", ErrManifest, err)
		}
		_, _ = fmt.Fprintf(sum, "%d sent ", formVersion)
		_, _ = sum.Write(data)
	} else {
		_, _ = fmt.Fprintf(sum, "%d loaded ", formVersion)
		for _, part := range []string{b.Owner.Name, string(b.Owner.UID), b.Owner.ApplySet} {
			_, _ = io.WriteString(sum, part+"\x00")
		}
		_, _ = sum.Write(m.Content[:])
	}
	return [sha256.Size]byte(sum.Sum(nil)), nil
}
