package policy

import (
	"fmt"
	"slices"

	"github.com/cluster-version/cvo/pkg/verify/sigstore"
)

// Warnings reports the members of a threshold that one signer could satisfy, because they share a key or accept the same certificate
// identity. Such a signer counts only once, so the threshold may need more signers than its author intended, or may be unreachable.
func (p Policy) Warnings() []string {
	var out []string
	for _, t := range p.Thresholds {
		for i, second := range t.Members {
			for _, first := range t.Members[:i] {
				if shared := p.shared(first, second); shared != "" {
					out = append(out, fmt.Sprintf("threshold %q: members %q and %q share %s, which counts for only one of them", t.Name, first, second, shared))
				}
			}
		}
	}
	return out
}

// shared describes a key or an identity that satisfies both roots. It is empty if none is known.
func (p Policy) shared(first, second string) string {
	keys := p.fingerprints(second)
	for _, key := range p.fingerprints(first) {
		if slices.Contains(keys, key) {
			return "key " + key
		}
	}
	identities := p.identities(second)
	for _, a := range p.identities(first) {
		if at := slices.IndexFunc(identities, a.Overlaps); at >= 0 {
			return "an identity (" + a.String() + "; " + identities[at].String() + ")"
		}
	}
	return ""
}

// identities returns the certificate identities that satisfy a root.
func (p Policy) identities(root string) []sigstore.Identity {
	for _, a := range p.Authorities {
		if a.Name == root {
			return a.Identities
		}
	}
	return nil
}
