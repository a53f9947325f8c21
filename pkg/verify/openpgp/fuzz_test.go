package openpgp_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify/openpgp"
)

// addGPG adds the keys or the messages that were made with GnuPG.
func addGPG(f *testing.F, messages bool) {
	f.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "gpg", "*.gpg"))
	require.NoError(f, err)
	require.NotEmpty(f, files)
	for _, file := range files {
		if strings.HasSuffix(file, ".msg.gpg") == messages {
			data, err := os.ReadFile(file)
			require.NoError(f, err)
			f.Add(data)
		}
	}
}

//threat:openpgp-messages
func FuzzMessage(f *testing.F) {
	alice := newEntity(f, "alice")
	good := sign(f, alice, claim(digest))
	f.Add(good)
	f.Add(compress(f, packet.CompressionZIP, good))
	f.Add(armored(f, "PGP MESSAGE", good))
	f.Add(literal(f, claim(digest)))
	addGPG(f, true)
	k, err := openpgp.NewKeyring("k", append(gpgFile(f, "rsa2048"), append(gpgFile(f, "ed25519"), binaryKey(f, alice)...)...))
	require.NoError(f, err)
	rules := openpgp.Rules{UnsafeAllowSHA1: true, UnsafeMinimumRSABits: 1024, RefuseExpiredKeys: true}
	f.Fuzz(func(t *testing.T, message []byte) {
		found, err := checkUnder(t, rules, k, message)
		if err != nil {
			assert.Less(t, len(err.Error()), 2000)
			_, again := checkUnder(t, rules, k, message)
			assert.EqualError(t, again, err.Error())
			return
		}
		assert.Equal(t, message, found.Message)
		again, err := checkUnder(t, rules, k, found.Message)
		require.NoError(t, err)
		assert.Equal(t, found, again)
	})
}

//threat:keyrings
func FuzzKeyring(f *testing.F) {
	alice := newEntity(f, "alice")
	f.Add(binaryKey(f, alice))
	f.Add(public(f, alice, newEntity(f, "bob")))
	addGPG(f, false)
	messages := [][]byte{gpgFile(f, "rsa2048.msg"), gpgFile(f, "ed25519.msg"), gpgFile(f, "subkeys.msg"), gpgFile(f, "revoked-1.msg")}
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := openpgp.NewKeyring("k", data)
		again, errAgain := openpgp.NewKeyring("k", data)
		if err != nil {
			require.EqualError(t, errAgain, err.Error())
			return
		}
		assert.Equal(t, k.Skipped(), again.Skipped())
		if k.Validate(openpgp.Rules{}) != nil {
			return // No key in the keyring can sign.
		}
		for _, message := range messages {
			found, err := check(t, k, message)
			assert.Equal(t, err == nil, found.KeyID != "")
		}
	})
}
