package verify

import (
	"slices"
	"sync"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/policy"
)

// demand is one requirement of a policy: a signature by one root, or by a number of a threshold's members.
type demand struct {
	// threshold is the name of the threshold; empty if one root is required.
	threshold string
	// additional is the name of the additional policy that has the requirement; empty for the root of trust.
	additional string
	// invalid is the reason why nothing satisfies the demand, which then has no roots; otherwise nil.
	invalid error
	need    int
	// roots are the indexes of the roots; for a threshold, in the order of its members.
	roots []int
}

// requirements returns the roots of the policy and its additional policies, and the demands: every threshold, and every root outside
// thresholds. Names are unique only within one policy.
func requirements(p policy.Policy) ([]root, []demand) {
	roots := rootsOf(p)
	var demands []demand
	member := map[string]bool{}
	for _, t := range p.Thresholds {
		d := demand{threshold: t.Name, need: t.Required}
		for _, name := range t.Members {
			member[name] = true
			d.roots = append(d.roots, slices.IndexFunc(roots, func(r root) bool { return r.name() == name }))
		}
		demands = append(demands, d)
	}
	for i, r := range roots {
		if !member[r.name()] {
			demands = append(demands, demand{need: 1, roots: []int{i}})
		}
	}
	for _, a := range p.Additional {
		if a.Invalid != nil {
			demands = append(demands, demand{additional: a.Name, invalid: a.Invalid, need: 1})
			continue
		}
		more, additional := requirements(a)
		for _, d := range additional {
			d.additional = a.Name
			for i := range d.roots {
				d.roots[i] += len(roots)
			}
			demands = append(demands, d)
		}
		roots = append(roots, more...)
	}
	return roots, demands
}

// tally collects the answers from all places.
type tally struct {
	roots   []root
	demands []demand

	mu sync.Mutex
	// found is the evidence for each root in the order of discovery. A member of a threshold may have evidence of several signers, because
	// a threshold counts a signer only once.
	found   map[int][]release.Evidence
	answers []answer
}

func newTally(roots []root, demands []demand) *tally {
	return &tally{roots: roots, demands: demands, found: map[int][]release.Evidence{}}
}

func (t *tally) add(a answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers = append(t.answers, a)
}

// record stores evidence for a root unless the tally already has evidence with the same key and certificate.
func (t *tally) record(i int, e release.Evidence) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.ContainsFunc(t.found[i], func(o release.Evidence) bool { return slices.Equal(marks(o), marks(e)) }) {
		t.found[i] = append(t.found[i], e)
	}
}

// marks returns the marks that identify a signer, which are keys or identities. For OpenPGP, these are the primary key and the signing key,
// because a subkey can belong to several primary keys. For a certificate, it is the identity, because the certificate's key may exist for
// only one signature.
func marks(e release.Evidence) []string {
	if e.Method == MethodOpenPGP {
		return []string{"key " + e.Fingerprint, "signing key " + e.KeyID}
	}
	out := []string{"key " + e.KeyID}
	if e.Certificate != "" {
		out = append(out, "identity "+e.Issuer+" "+e.Identity)
	}
	return out
}

func (t *tally) done() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !slices.ContainsFunc(t.demands, func(d demand) bool { return len(t.counted(d)) < d.need })
}

// missing returns the indexes of the roots with the given method that still need signatures.
func (t *tally) missing(method string) []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []int
	for _, d := range t.demands {
		if len(t.counted(d)) >= d.need {
			continue
		}
		for _, i := range d.roots {
			if t.roots[i].method() == method {
				out = append(out, i)
			}
		}
	}
	return out
}

// counted returns the evidence that counts, by root. Roots count in the order of the demand. Each uses the first of its evidence whose key
// and identity have not counted for another root. It does not look for another assignment that would count more roots. Administrators
// should give every member of a threshold its own signer, or list the narrower member first.
func (t *tally) counted(d demand) map[int]release.Evidence {
	used := map[string]bool{}
	out := map[int]release.Evidence{}
	for _, i := range d.roots {
		for _, e := range t.found[i] {
			own := marks(e)
			if slices.ContainsFunc(own, func(m string) bool { return used[m] }) {
				continue
			}
			for _, m := range own {
				used[m] = true
			}
			out[i] = e
			break
		}
	}
	return out
}

// evidence returns the evidence that counts, in the policy's order of roots.
func (t *tally) evidence() []release.Evidence {
	t.mu.Lock()
	defer t.mu.Unlock()
	byRoot := map[int]release.Evidence{}
	for _, d := range t.demands {
		for i, e := range t.counted(d) {
			e.Threshold = d.threshold
			byRoot[i] = e
		}
	}
	var out []release.Evidence
	for i := range t.roots {
		if e, ok := byRoot[i]; ok {
			out = append(out, e)
		}
	}
	return out
}

func (t *tally) refusal(digest release.Digest, policy string, cause error) *UnverifiedError {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &UnverifiedError{Digest: digest, Policy: policy, Cause: cause}
	for _, d := range t.demands {
		counted := t.counted(d)
		if len(counted) >= d.need {
			continue
		}
		if d.invalid != nil {
			e.Missing = append(e.Missing, MissingRoot{Name: d.additional, Kind: kindInvalid, Policy: d.additional, Invalid: d.invalid.Error()})
		}
		for _, i := range d.roots {
			if _, ok := counted[i]; !ok {
				e.Missing = append(e.Missing, MissingRoot{
					Name: t.roots[i].name(), Method: t.roots[i].method(), Kind: t.roots[i].kind(), Threshold: d.threshold, Policy: d.additional,
				})
			}
		}
		if d.threshold != "" {
			e.Thresholds = append(e.Thresholds, MissedThreshold{Name: d.threshold, Required: d.need, Found: len(counted), Policy: d.additional})
		}
	}
	for _, a := range t.answers {
		if a.inaccessible != nil && !slices.ContainsFunc(e.Missing, func(m MissingRoot) bool { return m.Method != MethodSigstore }) {
			e.Inaccessible = a.inaccessible
		}
		e.Answers = append(e.Answers, Answer{Store: a.place, Remarks: a.all()})
	}
	e.sort()
	return e
}
