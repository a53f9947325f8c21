// Package policy defines which signatures a release needs. It reads trust files, the trust policy of a cluster, the keys that a release
// ships for its successors, and ClusterImagePolicies. It returns a Policy: keys, certificate identities, thresholds, and the stores with
// their signatures. It rejects a policy that no signature could satisfy or that would accept any signer. Package verify searches for
// signatures and verifies them.
package policy

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cluster-version/cvo/pkg/verify/openpgp"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
)

// ErrNone means that there is no root of trust, so no image can be accepted.
var ErrNone = errors.New("no image is accepted, because no root of trust is configured: set a trust policy with --trust FILE, " +
	"or ship a ConfigMap with the annotation release.openshift.io/verification-config-map in the release")

// Policy contains the trusted signers and the locations of their OpenPGP signatures. Every keyring, public key and authority in it is a
// root of trust, and every root must sign unless it is a member of a threshold. The zero Policy accepts nothing.
type Policy struct {
	// Name is the source of the policy, such as a file or a ConfigMap. Error messages contain it.
	Name string
	// Object is the name of the ClusterImagePolicy; empty for other policies.
	Object string
	// Keyrings are OpenPGP roots. One valid signature with any key of a keyring satisfies it.
	Keyrings []openpgp.Keyring
	// Stores are URLs (http, https, file) of signature stores, searched in parallel.
	Stores []string
	// Rules make the keyrings stricter or laxer than the default.
	openpgp.Rules
	// SigstoreKeys are roots that sign with a bare key pair. Their signatures are attached to the image.
	SigstoreKeys []sigstore.PublicKey
	// Authorities are roots that sign with certificates. Their signatures are also attached to the image.
	Authorities []sigstore.Authority
	// Thresholds require a number of some roots instead of all of them.
	Thresholds []Threshold
	// Additional policies, such as the ClusterImagePolicies that match an image, must each be satisfied as well. They never replace a root:
	// additional policies alone accept nothing. Their OpenPGP signatures are searched in the Stores of this policy.
	Additional []Policy
	// Invalid explains why no signature can satisfy the policy; nil if it is valid. Only an additional policy can be invalid. It then rejects
	// every image, so that messages still list the other requirements.
	Invalid error
}

// Threshold is satisfied if the required number of its members have signed. Members count in their order. A key or identity that has
// counted for one member does not count for another. A root can be a member of only one threshold. A member's own signature is not
// required.
type Threshold struct {
	Name     string
	Required int
	// Members are the names of roots of the same policy, in file order.
	Members []string
}

// Empty reports whether the policy has no root of trust.
func (p Policy) Empty() bool { return len(p.Keyrings)+len(p.SigstoreKeys)+len(p.Authorities) == 0 }

// Label describes the policy in messages.
func (p Policy) Label() string {
	if p.Name == "" {
		return "the trust policy"
	}
	return fmt.Sprintf("trust policy %s", p.Name)
}

// Validate rejects a policy without a root (ErrNone), with two roots of the same name, with a root that no signature could satisfy, or with
// a threshold that cannot be reached. It accepts additional policies with a reason in Invalid.
func (p Policy) Validate() error {
	if p.Invalid != nil {
		return fmt.Errorf("%s: %w", p.Label(), p.Invalid)
	}
	if p.Empty() {
		if p.Name == "" {
			return ErrNone
		}
		return fmt.Errorf("%s lists no key: %w", p.Label(), ErrNone)
	}
	if err := p.uniqueNames(); err != nil {
		return err
	}
	if err := p.Rules.Validate(); err != nil {
		return fmt.Errorf("%s: %w", p.Label(), err)
	}
	for _, k := range p.Keyrings {
		if err := k.Validate(p.Rules); err != nil {
			return fmt.Errorf("%s: keyring %q: %w", p.Label(), k.Name, err)
		}
	}
	for _, k := range p.SigstoreKeys {
		if err := k.Validate(); err != nil {
			return fmt.Errorf("%s: public key %q: %w", p.Label(), k.Name, err)
		}
	}
	for _, a := range p.Authorities {
		if err := a.Validate(); err != nil {
			return fmt.Errorf("%s: authority %q: %w", p.Label(), a.Name, err)
		}
	}
	if err := p.validateThresholds(); err != nil {
		return err
	}
	for _, a := range p.Additional {
		if a.Invalid != nil {
			continue
		}
		if err := a.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// RootNames returns the names of the roots of trust, keyrings first, then public keys and authorities, each in file order.
func (p Policy) RootNames() []string {
	var out []string
	for _, k := range p.Keyrings {
		out = append(out, k.Name)
	}
	for _, k := range p.SigstoreKeys {
		out = append(out, k.Name)
	}
	for _, a := range p.Authorities {
		out = append(out, a.Name)
	}
	return out
}

func (p Policy) uniqueNames() error {
	seen := map[string]bool{}
	for _, n := range p.RootNames() {
		switch {
		case n == "":
			return fmt.Errorf("%s has a key without a name: name every keyring, public key and authority", p.Label())
		case seen[n]:
			return fmt.Errorf("%s has two keys named %q: give each keyring, public key and authority its own name", p.Label(), n)
		default:
			seen[n] = true
		}
	}
	return nil
}

// validateThresholds rejects thresholds without members, with an unknown member, or with more required signers than members. It accepts
// members that share a key, so that an installed policy stays valid. The key counts once, and Warnings reports it.
func (p Policy) validateThresholds() error {
	roots := p.RootNames()
	memberOf, names := map[string]string{}, map[string]bool{}
	for _, t := range p.Thresholds {
		fail := func(format string, args ...any) error {
			return fmt.Errorf("%s: threshold %q %s", p.Label(), t.Name, fmt.Sprintf(format, args...))
		}
		switch {
		case t.Name == "":
			return fail("has no name: give it one")
		case names[t.Name]:
			return fail("is listed twice: give each threshold its own name")
		case t.Required < 1:
			return fail("requires %d signers: require at least 1", t.Required)
		case t.Required > len(t.Members):
			return fail("requires %d of %d members, which is impossible: lower it or add members", t.Required, len(t.Members))
		}
		names[t.Name] = true
		for _, m := range t.Members {
			switch {
			case !slices.Contains(roots, m):
				return fail("has member %q, which is not a root of this policy: name a keyring, public key or authority", m)
			case memberOf[m] == t.Name:
				return fail("has member %q twice: a signer counts once", m)
			case memberOf[m] != "":
				return fail("has member %q, which is a member of threshold %q: a root can be a member of only one threshold", m, memberOf[m])
			}
			memberOf[m] = t.Name
		}
	}
	return nil
}

// fingerprints returns the long-lived keys that satisfy a root.
func (p Policy) fingerprints(root string) []string {
	for _, k := range p.Keyrings {
		if k.Name == root {
			return k.Fingerprints()
		}
	}
	for _, k := range p.SigstoreKeys {
		if k.Name == root {
			return k.Fingerprints()
		}
	}
	return nil
}
