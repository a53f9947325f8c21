// Package verify checks whether a digest is signed by a trusted key. Its inputs are a policy (the trusted signers and the locations of
// their signatures), sources that give access to these locations, and an image that is already resolved to a digest. It returns evidence,
// one entry for each root of trust, or an error that lists the unsatisfied roots and the result of the search in each place. It reads no
// payload, changes nothing and keeps no state.
//
// There are three kinds of roots. An OpenPGP keyring is satisfied by a signed message with a claim about the digest; signature stores
// contain such messages. A sigstore public key is satisfied by a signature that is attached to the image in its registry. A sigstore
// certificate authority is also satisfied by such a signature if its certificate has an accepted identity. Every root of a policy must be
// satisfied, except members of a threshold, which requires only a number of them. So a policy with a vendor's keyring and a platform team's
// key requires the signatures of both. Additional policies, such as ClusterImagePolicies, only add requirements.
//
// Verification proves the signer, but not the age of the image. An older release with a valid signature passes. The preconditions of an
// update reject it.
package verify

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/store"
)

const (
	// DefaultStoreTimeout is the default time limit for one place.
	DefaultStoreTimeout = 30 * time.Second
	// DefaultSearchTimeout is the default time limit for all places together.
	DefaultSearchTimeout = 2 * time.Minute
	// searchWidth is the maximum number of places searched in parallel. It exceeds the number of stores that ClusterVersion allows, so no
	// store has to wait until another one times out.
	searchWidth = 40
	// maxCandidates is the maximum number of signatures of a digest that are examined in one store. maxNoise is the maximum number of other
	// objects that are skipped there.
	maxCandidates = 64
	maxNoise      = 200
)

// Attachments yields the signatures that are attached to an image in its registry and the mirrors. Package image implements it, and
// bounds their number. Without signatures, it yields nothing. The verifier examines signatures as they come, and stops as soon as they
// satisfy the policy.
type Attachments interface {
	Attachments(ctx context.Context, image release.Image) iter.Seq2[release.Attachment, error]
}

// Sources give a verifier access to signatures. New rejects a policy that needs a missing source.
type Sources struct {
	// Local stores, usually the ConfigMaps of the cluster, are searched first, one after another. They need no external requests, and
	// administrators of disconnected clusters import signatures into them.
	Local []store.Store
	// Exclusive stores, if any, replace the policy's stores. They are the stores in spec.signatureStores of the ClusterVersion, see
	// store.ForCluster. They are searched in parallel if the local stores do not suffice, and no other stores are searched after them.
	Exclusive []store.Store
	// Client is the client for http and https stores of the policy; nil means http.DefaultClient. It determines the proxy and the
	// certificate authorities. The store limits redirects.
	Client *http.Client
	// Attachments reads signatures in the image's registry. It is required for policies with sigstore roots.
	Attachments Attachments
	// Exist looks up an image without signatures, to report a missing image as such. Its error for an image matches failure.ErrNotFound if no
	// registry has it. Nil looks up nothing.
	Exist func(ctx context.Context, images []release.Image) []error
	// StoreTimeout is the time limit for each place; zero means DefaultStoreTimeout.
	StoreTimeout time.Duration
	// SearchTimeout is the time limit for all places together; zero means DefaultSearchTimeout.
	SearchTimeout time.Duration
}

// remoteStores returns the stores that are searched over the network.
func (s Sources) remoteStores(p policy.Policy) ([]store.Store, error) {
	if len(s.Exclusive) > 0 {
		return s.Exclusive, nil
	}
	var out []store.Store
	for _, u := range p.Stores {
		opened, err := store.Open(u, s.Client)
		if err != nil {
			return nil, fmt.Errorf("opening the signature stores of %s: %w", p.Label(), err)
		}
		out = append(out, opened)
	}
	return out, nil
}

// Verifier checks digests against one policy. Create it with New. It is safe for concurrent use.
type Verifier struct {
	policy  string
	roots   []root
	demands []demand
	local   []place
	remote  []place
	exist   func(ctx context.Context, images []release.Image) []error
	timeout time.Duration
	total   time.Duration
	clock   clock.PassiveClock
}

// New returns a verifier for the policy. It rejects an invalid policy and a policy whose signatures the sources cannot reach. So no
// verifier accepts everything, and none rejects everything.
func New(p policy.Policy, sources Sources, clk clock.PassiveClock) (*Verifier, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	v := &Verifier{policy: p.Name, exist: sources.Exist, clock: clk}
	v.roots, v.demands = requirements(p)
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
	if slices.ContainsFunc(v.roots, func(r root) bool { return r.method() == MethodOpenPGP }) {
		for _, s := range sources.Local {
			v.local = append(v.local, storePlace(s))
		}
		stores, err := sources.remoteStores(p)
		if err != nil {
			return nil, err
		}
		for _, s := range stores {
			v.remote = append(v.remote, storePlace(s))
		}
		if len(v.local)+len(v.remote) == 0 {
			return nil, fmt.Errorf("%s has OpenPGP keyrings but no store for their signatures: add a URL to "+
				"spec.openpgp.stores (or a store-* key to the ConfigMap)", p.Label())
		}
	}
	if slices.ContainsFunc(v.roots, func(r root) bool { return r.method() == MethodSigstore }) {
		if sources.Attachments == nil {
			return nil, fmt.Errorf("%s has sigstore roots, but the image's registry cannot be searched: "+
				"verify with access to the registry, or remove spec.sigstore", p.Label())
		}
		v.remote = append(v.remote, attachmentPlace(sources.Attachments))
	}
	return v, nil
}

// Verify returns evidence that the image's digest satisfies the policy, in the policy's order. Otherwise the error is an *UnverifiedError
// (errors.Is(err, ErrUnverified)) that lists the missing roots and the result of the search in each place. It does not trust the pullspec:
// only the digest counts.
func (v *Verifier) Verify(ctx context.Context, image release.Image) ([]release.Evidence, error) {
	if v == nil || len(v.roots) == 0 {
		return nil, policy.ErrNone
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
	refusal := t.refusal(image.Digest, v.policy, ctx.Err())
	if v.exist != nil && refusal.IsUnsigned() {
		refusal.Absent = v.absent(ctx, image)
	}
	return nil, refusal
}

// absent returns the registry's answer if it lacks the image. Without an answer, the result is nil.
func (v *Verifier) absent(ctx context.Context, image release.Image) error {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	if err := errors.Join(v.exist(ctx, []release.Image{image})...); errors.Is(err, failure.ErrNotFound) {
		return err
	}
	return nil
}

// searchAll searches the local places in order, and then the other places, until the policy is satisfied.
func (v *Verifier) searchAll(ctx context.Context, image release.Image, t *tally) {
	ctx, cancel := context.WithTimeoutCause(ctx, v.total, fmt.Errorf("no answer within %s in total", v.total))
	defer cancel()
	for _, p := range v.local {
		t.add(v.search(ctx, p, image, t))
		if t.done() {
			return
		}
	}
	v.searchRemote(ctx, image, t)
}

// searchRemote searches places in parallel, so that a slow place does not delay others. It stops as soon as the policy is
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
	_ = g.Wait() // Workers return no errors: failures are in the tally.
}

// search examines the signatures in one place until none are left or no root needs more signatures of this method.
func (v *Verifier) search(ctx context.Context, p place, image release.Image, t *tally) answer {
	a := answer{place: p.name}
	ctx, cancel := context.WithTimeoutCause(ctx, v.timeout, fmt.Errorf("no answer within %s", v.timeout))
	defer cancel()
	seen, noise := 0, 0
	for c, err := range p.candidates(ctx, image) {
		if inaccessible, ok := errors.AsType[*failure.AccessError](err); ok && p.method == MethodSigstore {
			a.inaccessible = inaccessible
		}
		if err != nil && ctx.Err() != nil {
			a.end = context.Cause(ctx).Error()
			if a.inaccessible != nil {
				a.end = remark(a.inaccessible) // it names the registry
			}
			break
		}
		if err != nil {
			a.add(remark(err))
			if noise++; noise > maxNoise && !p.bounded {
				a.end = fmt.Sprintf("more than %d objects that are not signatures, the rest is ignored", maxNoise)
				break
			}
			continue
		}
		if seen++; seen > maxCandidates && !p.bounded {
			a.end = fmt.Sprintf("more than %d signatures, the rest is ignored", maxCandidates)
			break
		}
		for _, i := range t.missing(p.method) {
			v.examine(c, image, i, t, &a)
		}
		if len(t.missing(p.method)) == 0 {
			return a
		}
	}
	if seen == 0 && len(a.all()) == 0 {
		a.add(noSignature)
	}
	return a
}

// examine checks one signature against one root.
func (v *Verifier) examine(c candidate, image release.Image, i int, t *tally, a *answer) {
	r := v.roots[i]
	e, err := guarded(func() (release.Evidence, error) { return r.check(c, image, v.clock.Now()) })
	if err != nil {
		a.add(fmt.Sprintf("%s: %s: %v", c.name, r.name(), err))
		return
	}
	e.Root, e.Method, e.Store = r.name(), r.method(), c.location
	t.record(i, e)
}

// guarded converts a panic to an error. Attackers can write signatures, and large libraries parse them. A signature that makes a library
// panic must not crash the process, because it would do so after every restart.
func guarded[T any](read func() (T, error)) (out T, err error) {
	defer func() {
		if r := recover(); r != nil {
			var none T
			out, err = none, fmt.Errorf("reading the signature: panic: %v", r)
		}
	}()
	return read()
}

// ForceUnsafe returns the image as verified although no trusted signature was found, because an administrator used force. The failure is
// recorded and shown. Nothing in this package calls ForceUnsafe: the decision, which concerns a whole platform, is the caller's.
func ForceUnsafe(image release.Image, failure error) release.Verified {
	if failure == nil {
		failure = errors.New("signature verification was skipped by force")
	}
	return release.Verified{Image: image, Forced: failure}
}
