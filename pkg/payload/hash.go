package payload

import (
	"encoding/base64"
	"hash"
	"hash/fnv"

	"github.com/cluster-version/cvo/pkg/manifest"
)

// payloadHash is the VersionHash of OpenShift's operator: 64-bit FNV-1 over the raw bytes of the included manifests in load order,
// big-endian, in URL-safe base64 with padding. When the original loads a release, it ignores overrides and accepts unknown and disabled
// capabilities, because it applies those rules later. So these do not change the hash, while profile, feature set, feature gates and major
// version do.
type payloadHash struct{ hash.Hash64 }

func newHash() payloadHash { return payloadHash{fnv.New64()} }

func (h payloadHash) add(m *manifest.Manifest) { h.Write(m.Raw) }

func (h payloadHash) String() string { return base64.URLEncoding.EncodeToString(h.Sum(nil)) }
