package payload

import (
	"encoding/base64"
	"hash"
	"hash/fnv"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// payloadHash is the VersionHash of OpenShift's operator: FNV-1, 64 bits, big-endian, in URL-safe base64 with padding,
// over the raw bytes of the manifests that loading includes, in load order. At load the original checks no overrides
// and lets unknown capabilities pass (disabled ones too: they are left out at apply time), so neither moves the hash;
// profile, feature set, feature gates and major version do.
type payloadHash struct{ hash.Hash64 }

func newHash() payloadHash { return payloadHash{fnv.New64()} }

func (h payloadHash) add(m *manifest.Manifest) { h.Write(m.Raw) }

func (h payloadHash) String() string { return base64.URLEncoding.EncodeToString(h.Sum(nil)) }
