package verify_test

import (
	"context"
	"crypto"
	"fmt"
	"iter"
	"os"
	"testing"
	"time"

	pgp "github.com/ProtonMail/go-crypto/openpgp"
	"github.com/stretchr/testify/require"
	testclock "k8s.io/utils/clock/testing"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/openpgp"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
	"github.com/cluster-version/cvo/pkg/verify/store"
	"github.com/cluster-version/cvo/test/fixture/signing"
	"github.com/cluster-version/cvo/test/fixture/sigstoretest"
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

	newEntity, public, claim, sign    = signing.NewEntity, signing.Public, signing.Claim, signing.Sign
	compress, literal                 = signing.Compress, signing.Literal
	rsaKey, packetOf, literalOf       = signing.RSAKey, signing.Packet, signing.LiteralPacket
	messageOf, signV4                 = signing.Message, signing.SignV4
	createdSubpacket, issuerSubpacket = signing.CreatedSubpacket, signing.IssuerSubpacket
	newKey, pemOf, tagged, image      = signing.NewKey, signing.PEM, signing.Tagged, signing.Image
	simpleSigning, statement          = signing.SimpleSigning, signing.Statement
	newSigstore, issue, ci, attached  = signing.NewSigstore, signing.Issue, signing.CI, signing.Attached
)

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}

func keyring(t testing.TB, name string, entities ...*pgp.Entity) openpgp.Keyring {
	t.Helper()
	k, err := openpgp.NewKeyring(name, public(t, entities...))
	require.NoError(t, err)
	return k
}

// memory is a store of messages for one digest.
type memory struct {
	name     string
	messages [][]byte
	asked    *int
}

func (m memory) String() string { return m.name }

func (m memory) Signatures(_ context.Context, d release.Digest) iter.Seq2[store.Signature, error] {
	return func(yield func(store.Signature, error) bool) {
		if m.asked != nil {
			*m.asked++
		}
		if d != digest {
			return
		}
		for i, message := range m.messages {
			name := fmt.Sprintf("signature-%d", i+1)
			if !yield(store.Signature{Name: name, Location: m.name + "/" + name, Message: message}, nil) {
				return
			}
		}
	}
}

// check verifies the digest against keyrings, with the messages in one store.
func check(t testing.TB, trust policy.Policy, messages ...[]byte) ([]release.Evidence, error) {
	t.Helper()
	return newVerifier(t, trust, verify.Sources{Local: []store.Store{memory{name: "memory", messages: messages}}}).Verify(t.Context(), image())
}

func newVerifier(t testing.TB, trust policy.Policy, sources verify.Sources) *verify.Verifier {
	t.Helper()
	v, err := verify.New(trust, sources, testclock.NewFakePassiveClock(today.Add(24*time.Hour)))
	require.NoError(t, err)
	return v
}

// listOf returns a function that lists the given ConfigMaps.
func listOf(maps ...store.ConfigMapData) func(context.Context) ([]store.ConfigMapData, error) {
	return func(context.Context) ([]store.ConfigMapData, error) { return maps, nil }
}

// attachments are the signatures that a registry keeps next to the image.
type attachments struct {
	found []release.Attachment
	err   error
}

func (a attachments) Attachments(context.Context, release.Image) iter.Seq2[release.Attachment, error] {
	return func(yield func(release.Attachment, error) bool) {
		for _, found := range a.found {
			if !yield(found, nil) {
				return
			}
		}
		if a.err != nil {
			yield(release.Attachment{}, a.err)
		}
	}
}

func publicKey(t testing.TB, name string, key crypto.Signer) sigstore.PublicKey {
	t.Helper()
	k, err := sigstore.NewPublicKey(name, pemOf(t, key))
	require.NoError(t, err)
	return k
}

// trustIn returns a trust root with all parts of the deployment.
func trustIn(t testing.TB, s *sigstoretest.Deployment, change ...func(*sigstore.TrustRootOptions)) sigstore.TrustRoot {
	t.Helper()
	o := sigstore.TrustRootOptions{
		Roots: s.Roots(), Intermediates: s.Intermediates(), LogKeys: s.LogKey(), CertificateLogKeys: s.CertificateLogKey(),
	}
	for _, c := range change {
		c(&o)
	}
	root, err := sigstore.NewTrustRoot(o)
	require.NoError(t, err)
	return root
}

func byWorkflow() []sigstore.Identity {
	return []sigstore.Identity{{Issuer: actions, URI: workflow}}
}

func pemKey(t testing.TB) []byte {
	t.Helper()
	return signing.PEM(t, signing.NewKey(t, "P-256"))
}
