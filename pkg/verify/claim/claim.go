// Package claim reads the signed statement that an image with a given digest has a given name. OpenPGP messages and cosign's simple signing
// documents contain this statement in different formats. The inputs are the bytes of a statement and the expected digest. Callers must
// verify the signature before they read the statement.
package claim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/json"

	"github.com/cluster-version/cvo/pkg/release"
)

// Types of claims (containers/image signature format; cosign's simple signing document has the same structure).
const (
	typeAtomic = "atomic container signature"
	typeCosign = "cosign container image signature"
)

// Claim is the part that all formats share.
type Claim struct {
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

// atomicClaim is the format of the claim in release signatures.
type atomicClaim struct {
	Claim    `json:",inline"`
	Optional *struct {
		Creator   string `json:"creator"`
		Timestamp *int64 `json:"timestamp"`
	} `json:"optional"`
}

// SimpleSigning is cosign's format. Signers may add any annotations.
type SimpleSigning struct {
	Claim    `json:",inline"`
	Optional map[string]any `json:"optional"`
}

// CheckAtomic checks the statement inside an OpenPGP signature. It accepts only the exact format. It rejects unknown,
// repeated and differently spelled fields, and anything after the document.
func CheckAtomic(data []byte, digest release.Digest) error {
	var c atomicClaim
	if err := strictJSON(data, &c); err != nil {
		return err
	}
	return c.check(digest, typeAtomic)
}

// ReadSimpleSigning parses a cosign simple signing document. It rejects a document about another digest.
func ReadSimpleSigning(data []byte, digest release.Digest) (SimpleSigning, error) {
	var c SimpleSigning
	if err := strictJSON(data, &c); err != nil {
		return SimpleSigning{}, err
	}
	return c, c.check(digest, typeCosign, typeAtomic)
}

// SignedAt returns the time in the claim, or zero if it has none.
func (c SimpleSigning) SignedAt() time.Time {
	switch t := c.Optional["timestamp"].(type) {
	case int64:
		return time.Unix(t, 0).UTC()
	case float64:
		return time.Unix(int64(t), 0).UTC()
	}
	return time.Time{}
}

func (c Claim) check(digest release.Digest, types ...string) error {
	if !slices.Contains(types, c.Critical.Type) {
		return fmt.Errorf("the signed claim is of type %q, expected %q", c.Critical.Type, types[0])
	}
	if c.Critical.Image.Digest != string(digest) {
		return fmt.Errorf("the signed claim is about another digest, %q", c.Critical.Image.Digest)
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
