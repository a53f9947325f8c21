package verify

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/json"

	"github.com/cluster-version/cvo/pkg/release"
)

// Types of claims (containers/image signature format; cosign's simple signing document has the same shape).
const (
	claimAtomic = "atomic container signature"
	claimCosign = "cosign container image signature"
)

// claim is the signed statement that a digest is an image of a name.
type claim struct {
	Critical struct {
		Type  string `json:"type"`
		Image struct {
			Digest string `json:"docker-manifest-digest"`
		} `json:"image"`
		Identity struct {
			Reference string `json:"docker-reference"`
		} `json:"identity"`
	} `json:"critical"`
}

// atomicClaim is the claim as release signatures carry it.
type atomicClaim struct {
	claim    `json:",inline"`
	Optional *struct {
		Creator   string `json:"creator"`
		Timestamp *int64 `json:"timestamp"`
	} `json:"optional"`
}

// cosignClaim may carry any annotations the signer gave.
type cosignClaim struct {
	claim    `json:",inline"`
	Optional map[string]any `json:"optional"`
}

// checkAtomicClaim checks the statement inside an OpenPGP signature. Only the exact form is accepted: unknown,
// repeated or differently spelled fields and anything after the document are refused.
func checkAtomicClaim(data []byte, digest release.Digest) error {
	var c atomicClaim
	if err := strictJSON(data, &c); err != nil {
		return err
	}
	return c.check(digest, claimAtomic)
}

// checkSimpleSigning checks a cosign simple signing document.
func checkSimpleSigning(data []byte, digest release.Digest) (cosignClaim, error) {
	var c cosignClaim
	if err := strictJSON(data, &c); err != nil {
		return cosignClaim{}, err
	}
	return c, c.check(digest, claimCosign, claimAtomic)
}

// signedAt is when the claim says it was made; zero if it does not say.
func (c cosignClaim) signedAt() time.Time {
	switch t := c.Optional["timestamp"].(type) {
	case int64:
		return time.Unix(t, 0).UTC()
	case float64:
		return time.Unix(int64(t), 0).UTC()
	}
	return time.Time{}
}

func (c claim) check(digest release.Digest, types ...string) error {
	if !slices.Contains(types, c.Critical.Type) {
		return fmt.Errorf("the signed claim is of type %q, expected %q", c.Critical.Type, types[0])
	}
	if c.Critical.Image.Digest != string(digest) {
		return fmt.Errorf("the signed claim is about digest %q, not about this one", c.Critical.Image.Digest)
	}
	if c.Critical.Identity.Reference == "" {
		return errors.New("the signed claim has no docker-reference in critical.identity")
	}
	return nil
}

func strictJSON(data []byte, into any) error {
	strict, err := json.UnmarshalStrict(data, into)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	if err != nil {
		return fmt.Errorf("reading the signed claim: %w", err)
	}
	return nil
}
