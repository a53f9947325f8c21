package apply

import (
	"crypto/sha256"
	"encoding/json"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// Content is the SHA-256 of what Apply sends for a manifest: it changes when the manifest does, and also when
// whatever is put into it does (the owner, an injected proxy, a newer version of this package). Two releases that
// send the same need no request between them. It fails for a manifest that cannot be encoded, as Apply would.
func (a *Applier) Content(m *manifest.Manifest) ([sha256.Size]byte, error) {
	// Whether its kind is namespaced makes no difference to what a manifest of one kind says.
	body, err := a.body(m, true)
	if err != nil {
		return [sha256.Size]byte{}, wrap(m, err)
	}
	data, err := json.Marshal(body)
	if err != nil {
		return [sha256.Size]byte{}, wrap(m, err)
	}
	return sha256.Sum256(data), nil
}
