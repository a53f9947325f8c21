package openpgp_test

import (
	"testing"
	"time"

	pgp "github.com/ProtonMail/go-crypto/openpgp"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/openpgp"
	"github.com/cluster-version/cvo/test/fixture/signing"
)

const digest, otherDigest = signing.Digest, signing.OtherDigest

// Short names for functions that make keys and messages.
var (
	today = signing.Today

	newEntity, public, claim, sign       = signing.NewEntity, signing.Public, signing.Claim, signing.Sign
	compress, literal, armored, edit     = signing.Compress, signing.Literal, signing.Armored, signing.Edit
	rsaKey, header, packetOf, partial    = signing.RSAKey, signing.Header, signing.Packet, signing.Partial
	literalOf, messageOf, mpi, subpacket = signing.LiteralPacket, signing.Message, signing.MPI, signing.Subpacket
	createdSubpacket, issuerSubpacket    = signing.CreatedSubpacket, signing.IssuerSubpacket
	signV3, signV4                       = signing.SignV3, signing.SignV4
)

func keyring(t testing.TB, name string, entities ...*pgp.Entity) openpgp.Keyring {
	t.Helper()
	k, err := openpgp.NewKeyring(name, public(t, entities...))
	require.NoError(t, err)
	return k
}

// check verifies a message about the digest one day after it was signed.
func check(t testing.TB, k openpgp.Keyring, message []byte) (release.Evidence, error) {
	t.Helper()
	return checkUnder(t, openpgp.Rules{}, k, message)
}

func checkUnder(t testing.TB, rules openpgp.Rules, k openpgp.Keyring, message []byte) (release.Evidence, error) {
	t.Helper()
	return checkAt(t, today.Add(24*time.Hour), rules, k, message)
}

func checkAt(t testing.TB, now time.Time, rules openpgp.Rules, k openpgp.Keyring, message []byte) (release.Evidence, error) {
	t.Helper()
	m, err := openpgp.ReadMessage(message)
	if err != nil {
		return release.Evidence{}, err
	}
	return k.Verify(m, digest, rules, now)
}
