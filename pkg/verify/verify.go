// Package verify answers one question: is this digest signed by someone we trust? It takes a policy (whom to trust,
// and where their signatures are kept), sources that reach those places, and an image that is already resolved to a
// digest. It returns evidence, one entry for every root of trust, or an error that says which roots are not
// satisfied and what every place answered. It reads no payload, changes nothing, and remembers nothing.
//
// Three kinds of roots exist. An OpenPGP keyring is satisfied by a signed message that carries a claim about the
// digest; such messages are kept in signature stores. A sigstore public key, and a sigstore certificate authority
// with the identity that it must have certified, are satisfied by a signature that is attached to the image in its
// registry. Every root of a policy must be satisfied, except those that are members of a threshold, of which a number
// must be: a policy with a vendor's keyring and a platform team's key means that both have signed.
//
// Verification says who signed, not how old what they signed is: an older release with a good signature passes here,
// and is stopped by the preconditions of an update.
package verify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/release"
)

const (
	// DefaultStoreTimeout is how long one place may take to answer unless Sources says otherwise.
	DefaultStoreTimeout = 30 * time.Second
	// DefaultSearchTimeout is how long all places together may take unless Sources says otherwise.
	DefaultSearchTimeout = 2 * time.Minute
	// searchWidth bounds how many places are asked at the same time. It is more than ClusterVersion admits, so that a
	// store never waits for the deadline of another.
	searchWidth = 40
	// maxCandidates bounds how many signatures of one digest are looked at in one place, maxNoise how much that is no
	// signature is passed over there.
	maxCandidates = 64
	maxNoise      = 200
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
	// Exclusive stores, if there are any, are asked in place of the policy's, all at the same time, if Local has not
	// answered: those that spec.signatureStores of the cluster names, see ClusterStores. When they are exhausted the
	// search for OpenPGP signatures ends.
	Exclusive []Store
	// Client speaks to http and https stores of the policy; nil means http.DefaultClient. Proxy and certificate
	// authorities are its business, redirects are bounded by the store.
	Client *http.Client
	// Attachments reaches signatures in the image's registry; needed by policies with sigstore keys.
	Attachments Attachments
	// StoreTimeout is how long each place may take; zero means DefaultStoreTimeout.
	StoreTimeout time.Duration
	// SearchTimeout is how long all of them together may take; zero means DefaultSearchTimeout.
	SearchTimeout time.Duration
}

// remoteStores returns the stores that are asked over the network.
func (s Sources) remoteStores(policy Policy) ([]Store, error) {
	if len(s.Exclusive) > 0 {
		return s.Exclusive, nil
	}
	var out []Store
	for _, u := range policy.Stores {
		store, err := OpenStore(u, s.Client)
		if err != nil {
			return nil, fmt.Errorf("opening the signature stores of %s: %w", policy.label(), err)
		}
		out = append(out, store)
	}
	return out, nil
}

// Verifier checks digests against one policy. Make it with New; it is safe for concurrent use.
type Verifier struct {
	policy  string
	roots   []root
	demands []demand
	local   []place
	remote  []place
	timeout time.Duration
	total   time.Duration
	clock   clock.PassiveClock
}

// New returns a verifier for the policy. It refuses a policy without roots (ErrNoPolicy), with two roots of one
// name, and a policy whose signatures cannot be reached through the sources, so that a verifier never comes into
// being that would accept everything or could accept nothing.
func New(policy Policy, sources Sources, clk clock.PassiveClock) (*Verifier, error) {
	if err := policy.validate(); err != nil {
		return nil, err
	}
	v := &Verifier{policy: policy.Name, roots: policy.roots(), clock: clk}
	v.demands = policy.demands(v.roots)
	v.timeout, v.total = DefaultStoreTimeout, DefaultSearchTimeout
	if sources.StoreTimeout > 0 {
		v.timeout = sources.StoreTimeout
	}
	if sources.SearchTimeout > 0 {
		v.total = sources.SearchTimeout
	}
	if v.clock == nil {
		v.clock = clock.RealClock{}
	}
	if len(policy.Keyrings) > 0 {
		for _, s := range sources.Local {
			v.local = append(v.local, storePlace(s))
		}
		stores, err := sources.remoteStores(policy)
		if err != nil {
			return nil, err
		}
		for _, s := range stores {
			v.remote = append(v.remote, storePlace(s))
		}
		if len(v.local)+len(v.remote) == 0 {
			return nil, fmt.Errorf("%s has OpenPGP keyrings but names no place to find their signatures: add a URL to "+
				"spec.openpgp.stores (or a store-* key to the ConfigMap)", policy.label())
		}
	}
	if len(policy.SigstoreKeys)+len(policy.Authorities) > 0 {
		if sources.Attachments == nil {
			return nil, fmt.Errorf("%s has sigstore roots, but the image's registry cannot be searched here: "+
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
	t := newTally(v.roots, v.demands)
	v.searchAll(ctx, image, t)
	if t.done() {
		return t.evidence(), nil
	}
	return nil, t.refusal(image.Digest, v.policy, ctx.Err())
}

// searchAll asks the local places in their order, then the others, until every root is satisfied.
func (v *Verifier) searchAll(ctx context.Context, image release.Image, t *tally) {
	ctx, cancel := context.WithTimeoutCause(ctx, v.total, fmt.Errorf("no answer within %s in all", v.total))
	defer cancel()
	for _, p := range v.local {
		t.add(v.search(ctx, p, image, t))
		if t.done() {
			return
		}
	}
	v.searchRemote(ctx, image, t)
}

// searchRemote asks places at the same time, so that a slow one holds nobody back, and stops as soon as every root is
// satisfied.
func (v *Verifier) searchRemote(ctx context.Context, image release.Image, t *tally) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(searchWidth)
	for _, p := range v.remote {
		if len(t.missing(p.method)) == 0 {
			continue
		}
		g.Go(func() error {
			t.add(v.search(ctx, p, image, t))
			if t.done() {
				cancel()
			}
			return nil
		})
	}
	_ = g.Wait() // No worker returns an error: an answer that is one is part of the tally.
}

// search looks at every signature in one place until nothing that is kept there is missing or the place has no more.
func (v *Verifier) search(ctx context.Context, p place, image release.Image, t *tally) answer {
	a := answer{place: p.name}
	ctx, cancel := context.WithTimeoutCause(ctx, v.timeout, fmt.Errorf("no answer within %s", v.timeout))
	defer cancel()
	seen, noise := 0, 0
	for c, err := range p.candidates(ctx, image) {
		if ctx.Err() != nil {
			a.end = context.Cause(ctx).Error()
			break
		}
		if err != nil {
			a.remark(plainNetworkError(err))
			if noise++; noise > maxNoise {
				a.end = fmt.Sprintf("more than %d that are no signatures, the rest is not looked at", maxNoise)
				break
			}
			continue
		}
		if seen++; seen > maxCandidates {
			a.end = fmt.Sprintf("more than %d signatures, the rest is not looked at", maxCandidates)
			break
		}
		for _, i := range t.missing(p.method) {
			v.examine(c, image, i, t, &a)
		}
		if len(t.missing(p.method)) == 0 {
			return a
		}
	}
	if seen == 0 && len(a.told()) == 0 {
		a.remark("no signature found")
	}
	return a
}

// examine holds one signature against one root.
func (v *Verifier) examine(c candidate, image release.Image, i int, t *tally, a *answer) {
	r := v.roots[i]
	e, err := guarded(func() (release.Evidence, error) { return r.check(c, image, v.clock.Now()) })
	if err != nil {
		a.remark(fmt.Sprintf("%s: %s: %v", c.name, r.name(), err))
		return
	}
	e.Root, e.Method, e.Store = r.name(), r.method(), c.location
	t.record(i, e)
}

// guarded makes a panic an error. Signatures are written by strangers and read by large libraries: one that stumbles over
// a signature must not take the process along, for whoever can offer it could do so again at every start.
func guarded[T any](read func() (T, error)) (out T, err error) {
	defer func() {
		if r := recover(); r != nil {
			var none T
			out, err = none, fmt.Errorf("it cannot be read: %v", r)
		}
	}()
	return read()
}

// ForceUnsafe returns the image as verified although nobody trusted has signed it: the administrator forced past the
// failure, which is kept and shown. Who calls it decides about a whole platform; nothing in this package does.
func ForceUnsafe(image release.Image, failure error) release.Verified {
	if failure == nil {
		failure = errors.New("signature verification was skipped by force")
	}
	return release.Verified{Image: image, Forced: failure}
}
