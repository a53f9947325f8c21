package verify

import (
	"fmt"
	"slices"
)

// Policy says whom to trust and where their OpenPGP signatures are kept. Every keyring, every public key and every
// authority in it is a root of trust, and every root must have signed unless it is a member of a threshold. The zero
// Policy trusts nobody.
type Policy struct {
	// Name says where the policy comes from, such as a file or a ConfigMap; it is part of messages.
	Name string
	// Keyrings are OpenPGP roots: one valid signature by any key of a keyring satisfies it.
	Keyrings []Keyring
	// Stores are URLs (http, https, file) of signature stores, asked at the same time.
	Stores []string
	// OpenPGPRules say what the keyrings accept beyond or short of the default.
	OpenPGPRules
	// SigstoreKeys are roots that sign by a bare key pair; their signatures are attached to the image.
	SigstoreKeys []PublicKey
	// Authorities are roots that sign with certificates; their signatures are attached to the image, too.
	Authorities []Authority
	// Thresholds ask for a number of some of the roots instead of every one.
	Thresholds []Threshold
}

// Threshold is satisfied if so many different signers of its members have signed. A root can be a member of one
// threshold only, and is not asked for by itself then.
type Threshold struct {
	Name     string
	Required int
	// Members are the names of roots of the same policy.
	Members []string
}

// Empty reports whether the policy trusts nobody.
func (p Policy) Empty() bool { return len(p.Keyrings)+len(p.SigstoreKeys)+len(p.Authorities) == 0 }

func (p Policy) label() string {
	if p.Name == "" {
		return "the trust policy"
	}
	return fmt.Sprintf("trust policy %s", p.Name)
}

func (p Policy) validate() error {
	if p.Empty() {
		if p.Name == "" {
			return ErrNoPolicy
		}
		return fmt.Errorf("%s names no key: %w", p.label(), ErrNoPolicy)
	}
	if err := p.uniqueNames(); err != nil {
		return err
	}
	if err := p.OpenPGPRules.validate(); err != nil {
		return fmt.Errorf("%s: %w", p.label(), err)
	}
	for _, k := range p.Keyrings {
		if err := k.check(p.OpenPGPRules); err != nil {
			return fmt.Errorf("%s: keyring %q: %w", p.label(), k.Name, err)
		}
	}
	for _, k := range p.SigstoreKeys {
		if len(k.keys) == 0 {
			return fmt.Errorf("%s: public key %q is empty: make it with NewPublicKey", p.label(), k.Name)
		}
		if err := k.validate(); err != nil {
			return fmt.Errorf("%s: public key %q: %w", p.label(), k.Name, err)
		}
	}
	for _, a := range p.Authorities {
		if err := a.validate(); err != nil {
			return fmt.Errorf("%s: authority %q: %w", p.label(), a.Name, err)
		}
	}
	return p.validateThresholds()
}

func (p Policy) uniqueNames() error {
	seen := map[string]bool{}
	for _, r := range p.roots() {
		switch n := r.name(); {
		case n == "":
			return fmt.Errorf("%s has a key without a name: name every keyring, public key and authority", p.label())
		case seen[n]:
			return fmt.Errorf("%s has two keys named %q: give every keyring, public key and authority a name of its own", p.label(), n)
		default:
			seen[n] = true
		}
	}
	return nil
}

// validateThresholds refuses thresholds that cannot be met, and those that fewer people could meet than they ask for.
func (p Policy) validateThresholds() error {
	memberOf, names := map[string]string{}, map[string]bool{}
	for _, t := range p.Thresholds {
		fail := func(format string, args ...any) error {
			return fmt.Errorf("%s: threshold %q %s", p.label(), t.Name, fmt.Sprintf(format, args...))
		}
		switch {
		case t.Name == "":
			return fail("has no name: give it one")
		case names[t.Name]:
			return fail("is there twice: give every threshold a name of its own")
		case t.Required < 1:
			return fail("requires %d signers: ask for at least 1", t.Required)
		case t.Required > len(t.Members):
			return fail("requires %d of %d members, which can never be: lower it or add members", t.Required, len(t.Members))
		}
		names[t.Name] = true
		owners := map[string]string{}
		for _, m := range t.Members {
			r := p.root(m)
			switch {
			case r == nil:
				return fail("has member %q, which is no root of this policy: name a keyring, public key or authority", m)
			case memberOf[m] == t.Name:
				return fail("has member %q twice: a signer counts once", m)
			case memberOf[m] != "":
				return fail("has member %q, which is a member of threshold %q: a root counts for one threshold", m, memberOf[m])
			}
			memberOf[m] = t.Name
			for _, f := range r.fingerprints() {
				if other, ok := owners[f]; ok && other != m {
					return fail("has one key twice, as %q and as %q: a signer counts once", other, m)
				}
				owners[f] = m
			}
		}
	}
	return nil
}

func (p Policy) root(name string) root {
	for _, r := range p.roots() {
		if r.name() == name {
			return r
		}
	}
	return nil
}

func (p Policy) roots() []root {
	var out []root
	for _, k := range p.Keyrings {
		out = append(out, keyringRoot{Keyring: k, rules: p.OpenPGPRules})
	}
	for _, k := range p.SigstoreKeys {
		out = append(out, publicKeyRoot{k})
	}
	for _, a := range p.Authorities {
		out = append(out, authorityRoot{a})
	}
	return out
}

// demands returns what has to be satisfied: every root that is no member of a threshold, and every threshold.
func (p Policy) demands(roots []root) []demand {
	var out []demand
	member := map[string]bool{}
	for _, t := range p.Thresholds {
		d := demand{threshold: t.Name, need: t.Required}
		for i, r := range roots {
			if slices.Contains(t.Members, r.name()) {
				member[r.name()] = true
				d.roots = append(d.roots, i)
			}
		}
		out = append(out, d)
	}
	for i, r := range roots {
		if !member[r.name()] {
			out = append(out, demand{need: 1, roots: []int{i}})
		}
	}
	return out
}
