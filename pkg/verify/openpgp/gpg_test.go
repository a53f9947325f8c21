package openpgp_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify/openpgp"
)

// The keys and messages in testdata/gpg were made with GnuPG; see make.sh there.
func gpgFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "gpg", name+".gpg"))
	require.NoError(t, err)
	return data
}

func gpgKeyring(t testing.TB, names ...string) openpgp.Keyring {
	t.Helper()
	var data []byte
	for _, n := range names {
		data = append(data, gpgFile(t, n)...)
	}
	k, err := openpgp.NewKeyring("k", data)
	require.NoError(t, err)
	return k
}

//threat:our-signatures-worth
func TestGnuPGMessagesAreRead(t *testing.T) {
	for _, test := range []struct {
		message, key string
		rules        openpgp.Rules
		// algorithm is set if the message is accepted; otherwise want is part of the error.
		algorithm, want string
	}{
		{message: "rsa2048", key: "rsa2048", algorithm: "RSA-2048/SHA-256"},
		{message: "rsa1024", key: "rsa1024", want: "it has 1024 bits, at least 2048 are required"},
		{message: "rsa1024", key: "rsa1024", rules: openpgp.Rules{UnsafeMinimumRSABits: 1024}, algorithm: "RSA-1024/SHA-256"},
		{message: "dsa2048", key: "dsa2048", algorithm: "DSA-2048/SHA-256"},
		{message: "dsa1024", key: "dsa1024", want: "it has 1024 bits, at least 2048 are required"},
		{message: "dsa1024", key: "dsa1024", rules: openpgp.Rules{UnsafeMinimumRSABits: 1024}, algorithm: "DSA-1024/SHA-256"},
		{message: "nistp256", key: "nistp256", algorithm: "ECDSA-P256/SHA-256"},
		{message: "brainpoolP256r1", key: "brainpoolP256r1", algorithm: "ECDSA-BrainpoolP256/SHA-256"},
		{message: "ed25519", key: "ed25519", algorithm: "Ed25519/SHA-256"},
		{message: "compressed-none", key: "rsa2048", algorithm: "RSA-2048/SHA-512"},
		{message: "compressed-zip", key: "rsa2048", algorithm: "RSA-2048/SHA-512"},
		{message: "compressed-zlib", key: "rsa2048", algorithm: "RSA-2048/SHA-512"},
		{message: "compressed-bzip2", key: "rsa2048", algorithm: "RSA-2048/SHA-512"},
		{message: "textmode", key: "rsa2048", algorithm: "RSA-2048/SHA-512"},
		{message: "armored", key: "ed25519", algorithm: "Ed25519/SHA-256"},
		{message: "sha1", key: "rsa2048", want: "hash algorithm SHA-1 is not accepted"},
		{message: "sha1", key: "rsa2048", rules: openpgp.Rules{UnsafeAllowSHA1: true}, algorithm: "RSA-2048/SHA-1"},
		{message: "sha512", key: "rsa2048", algorithm: "RSA-2048/SHA-512"},
		{message: "two-signers", key: "rsa2048", algorithm: "RSA-2048/SHA-512"},
		{message: "two-signers", key: "ed25519", algorithm: "Ed25519/SHA-256"},
		{message: "notation", key: "rsa2048", algorithm: "RSA-2048/SHA-512"},
		{message: "critical-notation", key: "rsa2048", want: `critical notation "signer@example.com"`},
		{message: "expired-signature", key: "rsa2048", want: "expired at 2026-03-02T12:00:00Z"},
		{message: "detached", key: "rsa2048", want: "a detached signature"},
		{message: "clearsigned", key: "rsa2048", want: "a PGP SIGNED MESSAGE, expected a PGP MESSAGE"},
		{message: "expired-key", key: "expired-key", algorithm: "Ed25519/SHA-256"},
		{message: "expired-key", key: "expired-key", rules: openpgp.Rules{RefuseExpiredKeys: true}, want: "has expired"},
		{message: "subkeys", key: "subkeys", algorithm: "RSA-2048/SHA-512"},
		{message: "elgamal", key: "elgamal", algorithm: "DSA-2048/SHA-256"},
		{message: "revoked-0", key: "revoked-0", want: `is revoked (no reason given: "no more")`},
		{message: "revoked-1", key: "revoked-1", want: `is revoked (compromised: "no more")`},
		// If dates could be trusted, a superseded or retired key could still vouch for its earlier signatures.
		{message: "revoked-2", key: "revoked-2", want: `is revoked (superseded: "no more")`},
		{message: "revoked-3", key: "revoked-3", want: `is revoked (retired: "no more")`},
		{message: "revoked-uid", key: "revoked-uid", algorithm: "Ed25519/SHA-256"},
	} {
		t.Run("it reads "+test.message, func(t *testing.T) {
			found, err := checkAt(t, today.Add(25*time.Hour), test.rules, gpgKeyring(t, test.key, "sound"), gpgFile(t, test.message+".msg"))
			if test.want != "" {
				require.ErrorContains(t, err, test.want)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.algorithm, found.Algorithm)
			assert.Equal(t, today, found.SignedAt)
			assert.Equal(t, test.key+" <"+test.key+"@example.com>", found.Identity)
		})
	}
}
