package policy_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
	"github.com/cluster-version/cvo/test/fixture/signing"
)

const digest, otherDigest = signing.Digest, signing.OtherDigest

// Identities in certificates.
const (
	workflow, actions = signing.Workflow, signing.Actions
	alice, accounts   = signing.Alice, signing.Accounts
)

// Short names for functions that make keys and signatures.
var (
	today = signing.Today

	newEntity, public            = signing.NewEntity, signing.Public
	newKey, pemOf, simpleSigning = signing.NewKey, signing.PEM, signing.SimpleSigning
	newSigstore, issue, ci       = signing.NewSigstore, signing.Issue, signing.CI
	attached                     = signing.Attached
)

func indent(data []byte, by string) string {
	return by + strings.ReplaceAll(strings.TrimSpace(string(data)), "\n", "\n"+by)
}

func pemKey(t testing.TB) []byte {
	t.Helper()
	return signing.PEM(t, signing.NewKey(t, "P-256"))
}

// refusal checks an attached signature against every root of the policy, one day after it was made.
func refusal(p policy.Policy, found release.Attachment, image release.Image) error {
	s, err := sigstore.Read(found)
	if err != nil {
		return err
	}
	var failures []error
	for _, k := range p.SigstoreKeys {
		_, err := k.Verify(s, image)
		failures = append(failures, err)
	}
	for _, a := range p.Authorities {
		_, err := a.Verify(s, image, today.Add(24*time.Hour))
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}
