package verify

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
)

// Methods of evidence.
const (
	MethodOpenPGP  = "openpgp"
	MethodSigstore = "sigstore"
)

// Kinds of roots, as messages name them.
const (
	kindKeyring   = "keyring"
	kindPublicKey = "public key"
	kindAuthority = "certificate identity"
)

// root is one thing to be satisfied. Further kinds of trust are further implementations.
type root interface {
	name() string
	method() string
	kind() string
	// fingerprints are those of the long-lived keys that satisfy it.
	fingerprints() []string
	// check returns who signed if the candidate is a valid signature of the image's digest by this root. Root, Method
	// and Store of the evidence are filled in by the caller.
	check(c candidate, image release.Image, now time.Time) (release.Evidence, error)
}

// candidate is one signature as it was found; either message or sigstore is set.
type candidate struct {
	// name tells it from its neighbours in the same place; location is the whole address.
	name, location string
	message        *signedMessage
	// sigstore reads the signature, once for all roots.
	sigstore func() (*signed, error)
}

// place is anywhere that signatures of one method are searched.
type place struct {
	name       string
	method     string
	candidates func(ctx context.Context, image release.Image) iter.Seq2[candidate, error]
}

// What a place may contribute to an error: it is shown in the status of an object, and a store that anyone can write to
// decides how much there is to say.
const (
	maxRemarks      = 20
	maxRemarkLength = 400
)

// answer is what one place gave.
type answer struct {
	place   string
	remarks []string
	// unsaid counts what was too much, end comes after it.
	unsaid int
	end    string
}

func (a *answer) remark(s string) {
	if len(a.remarks) == maxRemarks {
		a.unsaid++
		return
	}
	a.remarks = append(a.remarks, api.Excerpt(s, maxRemarkLength))
}

// told returns all that is to be said.
func (a *answer) told() []string {
	out := slices.Clone(a.remarks)
	if a.unsaid > 0 {
		out = append(out, fmt.Sprintf("and %d more", a.unsaid))
	}
	if a.end != "" {
		out = append(out, a.end)
	}
	return out
}

// storePlace searches a signature store for OpenPGP messages.
func storePlace(s Store) place {
	return place{
		name: s.String(), method: MethodOpenPGP,
		candidates: func(ctx context.Context, image release.Image) iter.Seq2[candidate, error] {
			return func(yield func(candidate, error) bool) {
				for sig, err := range s.Signatures(ctx, image.Digest) {
					c := candidate{name: sig.Name, location: sig.Location}
					if err == nil {
						c.message, err = guarded(func() (*signedMessage, error) { return readMessage(sig.Message) })
						if err != nil {
							err = &signatureError{name: sig.Name, err: err}
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

// attachmentPlace searches the image's registry.
func attachmentPlace(source Attachments) place {
	return place{
		name: "signatures attached to the image", method: MethodSigstore,
		candidates: func(ctx context.Context, image release.Image) iter.Seq2[candidate, error] {
			return func(yield func(candidate, error) bool) {
				// Some may be there although others could not be read.
				found, err := source.Attachments(ctx, image)
				for i := range found {
					c := candidate{name: found[i].Store, location: found[i].Store}
					c.sigstore = sync.OnceValues(func() (*signed, error) { return readSigned(found[i]) })
					if !yield(c, nil) {
						return
					}
				}
				if err != nil {
					yield(candidate{}, err)
				}
			}
		},
	}
}

// signatureError names the signature that could not be read.
type signatureError struct {
	name string
	err  error
}

func (e *signatureError) Error() string { return e.name + ": " + e.err.Error() }
func (e *signatureError) Unwrap() error { return e.err }
