// Package verify answers one question: is this digest signed by someone we trust? It takes a policy (whom to trust,
// and where their signatures are kept), sources that reach those places, and an image that is already resolved to a
// digest. It returns evidence, one entry for every root of trust, or an error that says which roots are not
// satisfied and what every place answered. It reads no payload, changes nothing, and remembers nothing.
//
// Two kinds of roots exist. An OpenPGP keyring is satisfied by a signed message that carries a claim about the
// digest; such messages are kept in signature stores. A sigstore public key is satisfied by a signature that is
// attached to the image in its registry. Every root of a policy must be satisfied: a policy with a vendor's keyring
// and a platform team's key means that both have signed.
package verify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/release"
)

const (
	// DefaultStoreTimeout is how long one place may take to answer unless Sources says otherwise.
	DefaultStoreTimeout = 30 * time.Second
	// searchWidth bounds how many places are asked at the same time.
	searchWidth = 8
	// maxCandidates bounds how many signatures of one digest are looked at in one place.
	maxCandidates = 64
)

// Attachments finds the signatures that a registry keeps beside an image; package image's Registry does. None is an
// empty list and no error; what could be read is looked at even if it comes together with an error.
type Attachments interface {
	Attachments(ctx context.Context, image release.Image) ([]release.Attachment, error)
}

// Sources are the ways by which a verifier reaches signatures. A policy that needs a way which is missing is refused
// by New.
type Sources struct {
	// Local stores are asked one after the other before anything else: they cost no request to the outside, and they
	// are how disconnected clusters bring signatures in. Usually the ConfigMaps of the cluster.
	Local []Store
	// Client speaks to http and https stores of the policy; nil means http.DefaultClient. Proxy and certificate
	// authorities are its business, redirects are bounded by the store.
	Client *http.Client
	// Attachments reaches signatures in the image's registry; needed by policies with sigstore keys.
	Attachments Attachments
	// StoreTimeout is how long each place may take; zero means DefaultStoreTimeout.
	StoreTimeout time.Duration
}

// Verifier checks digests against one policy. Make it with New; it is safe for concurrent use.
type Verifier struct {
	policy  string
	roots   []root
	local   []place
	remote  []place
	timeout time.Duration
	clock   clock.PassiveClock
}

// New returns a verifier for the policy. It refuses a policy without roots (ErrNoPolicy), with two roots of one
// name, and a policy whose signatures cannot be reached through the sources, so that a verifier never comes into
// being that would accept everything or could accept nothing.
func New(policy Policy, sources Sources, clk clock.PassiveClock) (*Verifier, error) {
	if err := policy.validate(); err != nil {
		return nil, err
	}
	v := &Verifier{policy: policy.Name, roots: policy.roots(), timeout: sources.StoreTimeout, clock: clk}
	if v.timeout <= 0 {
		v.timeout = DefaultStoreTimeout
	}
	if v.clock == nil {
		v.clock = clock.RealClock{}
	}
	if len(policy.Keyrings) > 0 {
		for _, s := range sources.Local {
			v.local = append(v.local, storePlace(s))
		}
		for _, u := range policy.Stores {
			s, err := OpenStore(u, sources.Client)
			if err != nil {
				return nil, fmt.Errorf("opening the signature stores of %s: %w", policy.label(), err)
			}
			v.remote = append(v.remote, storePlace(s))
		}
		if len(v.local)+len(v.remote) == 0 {
			return nil, fmt.Errorf("%s has OpenPGP keyrings but names no place to find their signatures: add a URL to "+
				"spec.openpgp.stores (or a store-* key to the ConfigMap)", policy.label())
		}
	}
	if len(policy.SigstoreKeys) > 0 {
		if sources.Attachments == nil {
			return nil, fmt.Errorf("%s has sigstore public keys, but the image's registry cannot be searched here: "+
				"verify with access to the registry, or remove spec.sigstore", policy.label())
		}
		v.remote = append(v.remote, attachmentPlace(sources.Attachments))
	}
	return v, nil
}

// Verify returns the evidence that every root of the policy has signed the image's digest, in the policy's order.
// Otherwise the error is an *UnverifiedError (errors.Is(err, ErrUnverified)) that says which roots are missing and
// what each place answered. The pullspec is not trusted for anything: what counts is the digest.
func (v *Verifier) Verify(ctx context.Context, image release.Image) ([]release.Evidence, error) {
	if v == nil || len(v.roots) == 0 {
		return nil, ErrNoPolicy
	}
	if image.Digest == "" {
		return nil, fmt.Errorf("%w: release images that are not accessed via digest cannot be verified", ErrUnverified)
	}
	if _, err := release.ParseDigest(string(image.Digest)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnverified, err)
	}
	t := newTally(v.roots)
	for _, p := range v.local {
		t.add(v.search(ctx, p, image, t.missing(p.method)))
		if t.done() {
			return t.evidence(), nil
		}
	}
	v.searchAll(ctx, image, t)
	if t.done() {
		return t.evidence(), nil
	}
	return nil, t.refusal(image.Digest, v.policy, ctx.Err())
}

// searchAll asks the remaining places at the same time, so that a slow one holds nobody back, and stops as soon as
// every root is satisfied.
func (v *Verifier) searchAll(ctx context.Context, image release.Image, t *tally) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(searchWidth)
	for _, p := range v.remote {
		missing := t.missing(p.method)
		if len(missing) == 0 {
			continue
		}
		g.Go(func() error {
			t.add(v.search(ctx, p, image, missing))
			if t.done() {
				cancel()
			}
			return nil
		})
	}
	_ = g.Wait() // No worker returns an error: an answer that is one is part of the tally.
}

// search looks at every signature in one place until the wanted roots are satisfied or the place has no more.
func (v *Verifier) search(ctx context.Context, p place, image release.Image, wanted []int) answer {
	a := answer{place: p.name, found: map[int]release.Evidence{}}
	ctx, cancel := context.WithTimeoutCause(ctx, v.timeout, fmt.Errorf("no answer within %s", v.timeout))
	defer cancel()
	seen := 0
	for c, err := range p.candidates(ctx, image) {
		if err != nil {
			a.remark(v.explain(ctx, err))
			continue
		}
		if seen++; seen > maxCandidates {
			a.remark(fmt.Sprintf("more than %d signatures, the rest is not looked at", maxCandidates))
			break
		}
		if v.examine(c, image.Digest, wanted, &a); len(a.found) == len(wanted) {
			return a
		}
	}
	if seen == 0 && len(a.remarks) == 0 {
		a.remark("no signature found")
	}
	return a
}

// examine holds one signature against every wanted root that has none yet.
func (v *Verifier) examine(c candidate, digest release.Digest, wanted []int, a *answer) {
	for _, i := range wanted {
		if _, ok := a.found[i]; ok {
			continue
		}
		r := v.roots[i]
		e, err := r.check(c, digest, v.clock.Now())
		if err != nil {
			a.remark(fmt.Sprintf("%s: %s: %v", c.name, r.name(), err))
			continue
		}
		e.Root, e.Method, e.Store = r.name(), r.method(), c.location
		a.found[i] = e
	}
}

func (v *Verifier) explain(ctx context.Context, err error) string {
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
		return cause.Error()
	}
	return plainNetworkError(err)
}

// ForceUnsafe returns the image as verified although nobody trusted has signed it: the administrator forced past the
// failure, which is kept and shown. Who calls it decides about a whole platform; nothing in this package does.
func ForceUnsafe(image release.Image, failure error) release.Verified {
	if failure == nil {
		failure = errors.New("signature verification was skipped by force")
	}
	return release.Verified{Image: image, Forced: failure}
}

// tally collects the answers of all places.
type tally struct {
	roots []root

	mu      sync.Mutex
	found   map[int]release.Evidence
	answers []answer
}

func newTally(roots []root) *tally { return &tally{roots: roots, found: map[int]release.Evidence{}} }

func (t *tally) add(a answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers = append(t.answers, a)
	for i, e := range a.found {
		if _, ok := t.found[i]; !ok {
			t.found[i] = e
		}
	}
}

func (t *tally) done() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.found) == len(t.roots)
}

// missing returns the roots of one method that have no evidence yet, by position.
func (t *tally) missing(method string) []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []int
	for i, r := range t.roots {
		if _, ok := t.found[i]; !ok && r.method() == method {
			out = append(out, i)
		}
	}
	return out
}

func (t *tally) evidence() []release.Evidence {
	out := make([]release.Evidence, len(t.roots))
	for i := range t.roots {
		out[i] = t.found[i]
	}
	return out
}

func (t *tally) refusal(digest release.Digest, policy string, cause error) error {
	e := &UnverifiedError{Digest: digest, Policy: policy, Cause: cause}
	for i, r := range t.roots {
		if _, ok := t.found[i]; ok {
			continue
		}
		e.Missing = append(e.Missing, MissingRoot{Name: r.name(), Method: r.method()})
	}
	for _, a := range t.answers {
		e.Answers = append(e.Answers, Answer{Store: a.place, Remarks: a.remarks})
	}
	e.sort()
	return e
}
