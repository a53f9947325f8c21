package store

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
)

// ConfigMapData is the part of a ConfigMap that signatures need.
type ConfigMapData struct {
	Namespace, Name string
	BinaryData      map[string][]byte
}

// ConfigMaps is the signature store inside the cluster: ConfigMaps in namespace openshift-config-managed with the label
// release.openshift.io/verification-signatures. The keys of their binaryData are <algorithm>-<hash>, optionally followed by -<n>.
type ConfigMaps struct {
	list func(ctx context.Context) ([]ConfigMapData, error)
}

// NewConfigMaps returns a store of the ConfigMaps that list returns. list selects them by namespace and label. It is called once for each
// verification.
func NewConfigMaps(list func(ctx context.Context) ([]ConfigMapData, error)) ConfigMaps {
	return ConfigMaps{list: list}
}

// String describes the location of the ConfigMaps.
func (c ConfigMaps) String() string { return "ConfigMaps in " + api.ConfigManagedNamespace }

// Signatures yields the digest's signatures in the order of the ConfigMap names and the numbers. A longer key that merely begins with the
// digest's key does not count.
func (c ConfigMaps) Signatures(ctx context.Context, digest release.Digest) iter.Seq2[Signature, error] {
	return func(yield func(Signature, error) bool) {
		maps, err := c.list(ctx)
		if err != nil {
			yield(Signature{}, fmt.Errorf("listing ConfigMaps: %w", err))
			return
		}
		for _, k := range signatureKeys(maps, digest) {
			cm := maps[k.at]
			s := Signature{Name: cm.Name + "[" + k.key + "]", Message: cm.BinaryData[k.key]}
			s.Location = fmt.Sprintf("ConfigMap %s/%s key %s", cm.Namespace, cm.Name, k.key)
			if len(s.Message) == 0 {
				continue
			}
			if !yield(s, nil) {
				return
			}
		}
	}
}

type signatureKey struct {
	at     int
	number int
	key    string
}

func signatureKeys(maps []ConfigMapData, digest release.Digest) []signatureKey {
	var keys []signatureKey
	for i, cm := range maps {
		for key := range cm.BinaryData {
			if n, ok := keyNumber(key, digest); ok {
				keys = append(keys, signatureKey{at: i, number: n, key: key})
			}
		}
	}
	sorted.By(keys, func(a, b signatureKey) int {
		return cmp.Or(
			cmp.Compare(maps[a.at].Namespace, maps[b.at].Namespace),
			cmp.Compare(maps[a.at].Name, maps[b.at].Name),
			cmp.Compare(a.number, b.number),
			cmp.Compare(a.key, b.key))
	})
	return keys
}

// ConfigMapKey returns the binaryData key of the n-th signature of a digest.
func ConfigMapKey(digest release.Digest, n int) string {
	return fmt.Sprintf("%s-%d", configMapPrefix(digest), n)
}

func configMapPrefix(digest release.Digest) string { return "sha256-" + digest.Hex() }

func keyNumber(key string, digest release.Digest) (int, bool) {
	rest, ok := strings.CutPrefix(key, configMapPrefix(digest))
	if !ok || rest == "" {
		return -1, ok
	}
	digits, ok := strings.CutPrefix(rest, "-")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	return int(n), err == nil
}
