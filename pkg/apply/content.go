package apply

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// formVersion counts the forms in which manifests are sent. Raise it with every change of what is sent for one and the
// same manifest, or clusters that have the old form keep it until the manifest changes. A test tells when it is due.
const formVersion = 1

// Content stands for what Apply sends for a manifest: it changes when the manifest does, and also when whatever is put
// into it does (the owner, an injected proxy, the form of this package). Two releases with the same content need no
// request between them. It is cheap, so that it can be asked at every look at an object: most manifests answer by the
// hash they were loaded with, only what the cluster has a part in, or whose status is not sent, is put together for
// it. It fails for a manifest that cannot be sent.
func (a *Applier) Content(m *manifest.Manifest) ([sha256.Size]byte, error) {
	sum := sha256.New()
	if Injected(m) || isClusterOperator(m) {
		// Whether its kind is namespaced makes no difference to what a manifest of one kind says.
		body, err := a.body(m, true)
		if err != nil {
			return [sha256.Size]byte{}, wrap(m, err)
		}
		data, err := json.Marshal(body)
		if err != nil {
			return [sha256.Size]byte{}, wrap(m, fmt.Errorf("%w: %w", errManifest, err))
		}
		_, _ = fmt.Fprintf(sum, "%d sent ", formVersion)
		_, _ = sum.Write(data)
	} else {
		_, _ = fmt.Fprintf(sum, "%d loaded ", formVersion)
		for _, part := range []string{a.owner.Name, string(a.owner.UID), a.owner.ApplySet} {
			_, _ = io.WriteString(sum, part+"\x00")
		}
		_, _ = sum.Write(m.Content[:])
	}
	return [sha256.Size]byte(sum.Sum(nil)), nil
}
