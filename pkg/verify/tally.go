package verify

import (
	"slices"
	"sync"

	"github.com/cluster-version/cvo/pkg/release"
)

// demand is something that a policy asks for: that one root has signed, or a number of several.
type demand struct {
	// threshold is the name of the threshold, empty if the demand is for one root.
	threshold string
	need      int
	roots     []int
}

// tally collects the answers of all places.
type tally struct {
	roots   []root
	demands []demand

	mu sync.Mutex
	// found is the evidence for each root. A member of a threshold may have several, of different signers, because
	// a signer counts only once there.
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

// record keeps evidence for a root, unless there is some by the same key and certificate.
func (t *tally) record(i int, e release.Evidence) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.ContainsFunc(t.found[i], func(o release.Evidence) bool { return slices.Equal(marks(o), marks(e)) }) {
		t.found[i] = append(t.found[i], e)
	}
}

// marks are by what a signer is known again: the key, with OpenPGP the primary key and the one that signed, which may be
// a subkey of several; and the identity for which a certificate was issued, whose key may be made for one signature.
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

// signers tells those who sign apart: whoever shares a key or an identity with somebody is the same.
type signers map[string]string

func (s signers) find(mark string) string {
	for s[mark] != "" && s[mark] != mark {
		mark = s[mark]
	}
	return mark
}

func (s signers) add(e release.Evidence) {
	all := marks(e)
	for _, m := range all[1:] {
		if a, b := s.find(all[0]), s.find(m); a != b {
			s[b] = a
		}
	}
}

func (s signers) of(e release.Evidence) string { return s.find(marks(e)[0]) }

func (t *tally) done() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !slices.ContainsFunc(t.demands, func(d demand) bool { return len(t.counted(d)) < d.need })
}

// missing returns the roots of one method of which a signature is still of use, by position.
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

// counted chooses for as many roots of a demand as possible one evidence each, every signer once: a maximum matching
// of roots to signers, by augmenting paths.
func (t *tally) counted(d demand) map[int]release.Evidence {
	who := signers{}
	for _, i := range d.roots {
		for _, e := range t.found[i] {
			who.add(e)
		}
	}
	taken := map[string]int{}
	chosen := map[int]release.Evidence{}
	var assign func(root int, tried map[string]bool) bool
	assign = func(root int, tried map[string]bool) bool {
		for _, e := range t.found[root] {
			s := who.of(e)
			if tried[s] {
				continue
			}
			tried[s] = true
			if other, ok := taken[s]; !ok || assign(other, tried) {
				taken[s], chosen[root] = root, e
				return true
			}
		}
		return false
	}
	for _, i := range d.roots {
		assign(i, map[string]bool{})
	}
	return chosen
}

// evidence returns what counts, in the policy's order of roots.
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

func (t *tally) refusal(digest release.Digest, policy string, cause error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &UnverifiedError{Digest: digest, Policy: policy, Cause: cause}
	for _, d := range t.demands {
		counted := t.counted(d)
		if len(counted) >= d.need {
			continue
		}
		for _, i := range d.roots {
			if _, ok := counted[i]; !ok {
				e.Missing = append(e.Missing, MissingRoot{
					Name: t.roots[i].name(), Method: t.roots[i].method(), Kind: t.roots[i].kind(), Threshold: d.threshold,
				})
			}
		}
		if d.threshold != "" {
			e.Thresholds = append(e.Thresholds, MissedThreshold{Name: d.threshold, Required: d.need, Found: len(counted)})
		}
	}
	for _, a := range t.answers {
		e.Answers = append(e.Answers, Answer{Store: a.place, Remarks: a.told()})
	}
	e.sort()
	return e
}
