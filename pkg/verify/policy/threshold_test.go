package policy_test

import (
	"crypto"
	"testing"

	pgp "github.com/ProtonMail/go-crypto/openpgp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify/openpgp"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
)

func publicKey(t testing.TB, name string, key crypto.Signer) sigstore.PublicKey {
	t.Helper()
	k, err := sigstore.NewPublicKey(name, pemOf(t, key))
	require.NoError(t, err)
	return k
}

func keyring(t testing.TB, name string, entities ...*pgp.Entity) openpgp.Keyring {
	t.Helper()
	k, err := openpgp.NewKeyring(name, public(t, entities...))
	require.NoError(t, err)
	return k
}

func TestInvalidThresholdsAreRejected(t *testing.T) {
	a, b := newKey(t, "P-256"), newKey(t, "P-256")
	vendor := newEntity(t, "vendor")
	trust := policy.Policy{
		SigstoreKeys: []sigstore.PublicKey{publicKey(t, "a", a), publicKey(t, "b", b)},
		Keyrings:     []openpgp.Keyring{keyring(t, "one", vendor)}, Stores: []string{"https://x"},
	}
	for _, test := range []struct {
		name       string
		thresholds []policy.Threshold
		want       string
	}{
		{"no name", []policy.Threshold{{Required: 1, Members: []string{"a"}}}, "has no name"},
		{"one name twice", []policy.Threshold{{Name: "x", Required: 1, Members: []string{"a"}}, {Name: "x", Required: 1, Members: []string{"b"}}}, "is listed twice"},
		{"no required member", []policy.Threshold{{Name: "x", Members: []string{"a"}}}, "require at least 1"},
		{"more required members than listed", []policy.Threshold{{Name: "x", Required: 3, Members: []string{"a", "b"}}}, "which is impossible"},
		{"a member that is not a root", []policy.Threshold{{Name: "x", Required: 1, Members: []string{"a", "c"}}}, `has member "c", which is not a root`},
		{"a member twice", []policy.Threshold{{Name: "x", Required: 1, Members: []string{"a", "a"}}}, `has member "a" twice`},
		{"a member of two thresholds", []policy.Threshold{{Name: "x", Required: 1, Members: []string{"a"}}, {Name: "y", Required: 1, Members: []string{"a", "b"}}}, `a member of threshold "x"`},
	} {
		t.Run("it rejects "+test.name, func(t *testing.T) {
			p := trust
			p.Thresholds = test.thresholds
			require.ErrorContains(t, p.Validate(), test.want)
		})
	}
}

// TestMembersThatShareASignerCauseAWarning checks that a policy with such members stays valid and that Warnings reports them.
func TestMembersThatShareASignerCauseAWarning(t *testing.T) {
	a, b := newKey(t, "P-256"), newKey(t, "P-256")
	vendor, other := newEntity(t, "vendor"), newEntity(t, "other")
	s := newSigstore(t)
	root, err := sigstore.NewTrustRoot(sigstore.TrustRootOptions{Roots: s.Roots(), LogKeys: s.LogKey()})
	require.NoError(t, err)
	authority := func(name string, identities ...sigstore.Identity) sigstore.Authority {
		return sigstore.Authority{Name: name, TrustRoot: root, Identities: identities}
	}
	trust := policy.Policy{
		SigstoreKeys: []sigstore.PublicKey{publicKey(t, "a", a), publicKey(t, "b", b), publicKey(t, "again", a)},
		Keyrings:     []openpgp.Keyring{keyring(t, "one", vendor), keyring(t, "both", vendor, other), keyring(t, "other", newEntity(t, "third"))},
		Authorities: []sigstore.Authority{
			authority("alice", sigstore.Identity{Issuer: accounts, Email: alice}),
			authority("anyone", sigstore.Identity{Issuer: accounts, SubjectRegexp: ".*@example.com"}),
			authority("elsewhere", sigstore.Identity{Issuer: actions, SubjectRegexp: ".*@example.com"}),
			authority("workflow", sigstore.Identity{Issuer: actions, URI: workflow}),
		},
	}
	for _, test := range []struct {
		name    string
		members []string
		want    string
	}{
		{"reports a key under two names", []string{"a", "again"}, `members "a" and "again" share key `},
		{"reports a key in two keyrings", []string{"one", "both"}, `members "one" and "both" share key `},
		{"reports an identity that two members accept", []string{"alice", "anyone"}, `members "alice" and "anyone" share an identity (email alice@example.com`},
		{"reports such an identity in any order", []string{"anyone", "alice"}, `members "anyone" and "alice" share an identity`},
		{"accepts members with keys of their own", []string{"a", "b", "one", "other"}, ""},
		{"accepts members with identities of their own", []string{"alice", "elsewhere", "workflow"}, ""},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			p := trust
			p.Thresholds = []policy.Threshold{{Name: "two", Required: 2, Members: test.members}}
			require.NoError(t, p.Validate())
			warnings := p.Warnings()
			if test.want == "" {
				assert.Empty(t, warnings)
				return
			}
			require.Len(t, warnings, 1)
			assert.Contains(t, warnings[0], `threshold "two": `+test.want)
		})
	}
}
