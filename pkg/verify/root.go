package verify

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/openpgp"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
	"github.com/cluster-version/cvo/pkg/verify/store"
)

// Values of Evidence.Method.
const (
	MethodOpenPGP  = "openpgp"
	MethodSigstore = "sigstore"
)

// Kinds of roots, as in messages.
const (
	kindKeyring   = "keyring"
	kindPublicKey = "public key"
	kindAuthority = "certificate identity"
	kindInvalid   = "invalid policy"
)

// root is one root of trust. Each kind of root has an implementation.
type root interface {
	name() string
	method() string
	kind() string
	// check returns the signer if the candidate is a valid signature of the image's digest by this root. The caller sets Root, Method and
	// Store of the evidence.
	check(c candidate, image release.Image, now time.Time) (release.Evidence, error)
}

// keyringRoot is satisfied by a message signed with any key of the keyring.
type keyringRoot struct {
	keyring openpgp.Keyring
	rules   openpgp.Rules
}

func (r keyringRoot) name() string   { return r.keyring.Name }
func (r keyringRoot) method() string { return MethodOpenPGP }
func (r keyringRoot) kind() string   { return kindKeyring }

func (r keyringRoot) check(c candidate, image release.Image, now time.Time) (release.Evidence, error) {
	if c.message == nil {
		return release.Evidence{}, errors.New("not an OpenPGP message")
	}
	return r.keyring.Verify(c.message, image.Digest, r.rules, now)
}

// publicKeyRoot is satisfied by an attached signature with one of the keys.
type publicKeyRoot struct{ key sigstore.PublicKey }

func (r publicKeyRoot) name() string   { return r.key.Name }
func (r publicKeyRoot) method() string { return MethodSigstore }
func (r publicKeyRoot) kind() string   { return kindPublicKey }

func (r publicKeyRoot) check(c candidate, image release.Image, _ time.Time) (release.Evidence, error) {
	s, err := c.attached()
	if err != nil {
		return release.Evidence{}, err
	}
	return r.key.Verify(s, image)
}

// authorityRoot is satisfied by an attached signature with a certificate that the authority issued to one of the identities.
type authorityRoot struct{ authority sigstore.Authority }

func (r authorityRoot) name() string   { return r.authority.Name }
func (r authorityRoot) method() string { return MethodSigstore }
func (r authorityRoot) kind() string   { return kindAuthority }

func (r authorityRoot) check(c candidate, image release.Image, now time.Time) (release.Evidence, error) {
	s, err := c.attached()
	if err != nil {
		return release.Evidence{}, err
	}
	return r.authority.Verify(s, image, now)
}

// rootsOf returns the roots of a policy in the order of its RootNames.
func rootsOf(p policy.Policy) []root {
	var out []root
	for _, k := range p.Keyrings {
		out = append(out, keyringRoot{keyring: k, rules: p.Rules})
	}
	for _, k := range p.SigstoreKeys {
		out = append(out, publicKeyRoot{k})
	}
	for _, a := range p.Authorities {
		out = append(out, authorityRoot{a})
	}
	return out
}

// candidate is one unverified signature. Either message or sigstore is set.
type candidate struct {
	// name identifies the signature within its place. location is its full address.
	name, location string
	message        *openpgp.Message
	// sigstore parses the signature, only once for all roots.
	sigstore func() (*sigstore.Signature, error)
}

func (c candidate) attached() (*sigstore.Signature, error) {
	if c.sigstore == nil {
		return nil, errors.New("not attached to the image")
	}
	return c.sigstore()
}

// place is a location with signatures for one method.
type place struct {
	name   string
	method string
	// bounded reports whether candidates limits the number of signatures itself.
	bounded    bool
	candidates func(ctx context.Context, image release.Image) iter.Seq2[candidate, error]
}

// Limits for the remarks about a place in an error. Errors appear in the status of an object, and everyone who can write to a store decides
// how many signatures it contains.
const (
	maxRemarks      = 20
	maxRemarkLength = 400
)

// answer is the result of the search in one place.
type answer struct {
	place   string
	remarks []string
	// dropped counts the remarks beyond the limit. end is the last remark, which follows that count.
	dropped int
	end     string
	// inaccessible is the error of the image's registry if it gave no access to its content; otherwise nil.
	inaccessible error
}

func (a *answer) add(s string) {
	if len(a.remarks) == maxRemarks {
		a.dropped++
		return
	}
	a.remarks = append(a.remarks, printable.Excerpt(s, maxRemarkLength))
}

// all returns the remarks and the number of dropped ones.
func (a *answer) all() []string {
	out := slices.Clone(a.remarks)
	if a.dropped > 0 {
		out = append(out, fmt.Sprintf("and %d more", a.dropped))
	}
	if a.end != "" {
		out = append(out, a.end)
	}
	return out
}

// storePlace searches a signature store for OpenPGP messages.
func storePlace(s store.Store) place {
	return place{
		name: s.String(), method: MethodOpenPGP,
		candidates: func(ctx context.Context, image release.Image) iter.Seq2[candidate, error] {
			return func(yield func(candidate, error) bool) {
				for sig, err := range s.Signatures(ctx, image.Digest) {
					c := candidate{name: sig.Name, location: sig.Location}
					if err == nil {
						c.message, err = guarded(func() (*openpgp.Message, error) { return openpgp.ReadMessage(sig.Message) })
						if err != nil {
							err = &store.SignatureError{Name: sig.Name, Err: err}
						}
					}
					if !yield(c, err) {
						return
					}
				}
			}
		},
	}
}

// attachmentPlace searches the image's registry and its mirrors. Their limits are separate, so that one of them cannot hide the signatures
// of another.
func attachmentPlace(source Attachments) place {
	return place{
		name: "signatures attached to the image", method: MethodSigstore, bounded: true,
		candidates: func(ctx context.Context, image release.Image) iter.Seq2[candidate, error] {
			return func(yield func(candidate, error) bool) {
				for found, err := range source.Attachments(ctx, image) {
					c := candidate{name: found.Store, location: found.Store}
					c.sigstore = sync.OnceValues(func() (*sigstore.Signature, error) { return sigstore.Read(found) })
					if !yield(c, err) {
						return
					}
				}
			}
		},
	}
}
