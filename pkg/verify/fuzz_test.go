package verify_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/verify"
)

// addGPG adds the files that GnuPG has made: keys or messages.
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

func FuzzMessage(f *testing.F) {
	alice := newEntity(f, "alice")
	good := sign(f, alice, claim(digest))
	f.Add(good)
	f.Add(compress(f, packet.CompressionZIP, good))
	f.Add(armored(f, "PGP MESSAGE", good))
	f.Add(literal(f, claim(digest)))
	addGPG(f, true)
	k, err := verify.NewKeyring("k", append(gpgFile(f, "rsa2048"), append(gpgFile(f, "ed25519"), binaryKey(f, alice)...)...))
	require.NoError(f, err)
	policy := verify.Policy{
		OpenPGPRules: verify.OpenPGPRules{UnsafeAllowSHA1: true, UnsafeMinimumRSABits: 1024, RefuseExpiredKeys: true}, Keyrings: []verify.Keyring{k},
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		found, err := check(t, policy, message)
		if err != nil {
			require.ErrorIs(t, err, verify.ErrUnverified)
			assert.Less(t, len(err.Error()), 2000)
			_, again := check(t, policy, message)
			assert.EqualError(t, again, err.Error())
			return
		}
		assert.Equal(t, message, found[0].Message)
		kept, _ := verify.Managed{}.With(digest, found)
		again, err := newVerifier(t, policy, verify.Sources{Local: []verify.Store{verify.ReadManaged(kept.BinaryData())}}).Verify(t.Context(), image())
		require.NoError(t, err)
		assert.Equal(t, found[0].KeyID, again[0].KeyID)
	})
}

func FuzzKeyring(f *testing.F) {
	alice := newEntity(f, "alice")
	f.Add(binaryKey(f, alice))
	f.Add(public(f, alice, newEntity(f, "bob")))
	addGPG(f, false)
	messages := [][]byte{gpgFile(f, "rsa2048.msg"), gpgFile(f, "ed25519.msg"), gpgFile(f, "subkeys.msg"), gpgFile(f, "revoked-1.msg")}
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := verify.NewKeyring("k", data)
		again, errAgain := verify.NewKeyring("k", data)
		if err != nil {
			require.EqualError(t, errAgain, err.Error())
			return
		}
		assert.Equal(t, k.Skipped(), again.Skipped())
		policy := verify.Policy{Keyrings: []verify.Keyring{k}}
		v, err := verify.New(policy, verify.Sources{Local: []verify.Store{memory{name: "memory", messages: messages}}}, nil)
		if err != nil {
			return // Nobody in it can sign.
		}
		if _, err := v.Verify(t.Context(), image()); err != nil {
			assert.ErrorIs(t, err, verify.ErrUnverified)
		}
	})
}

func FuzzAtomicClaim(f *testing.F) {
	for _, c := range []string{claim(digest), claim(otherDigest), "{}", `{"critical":null,"optional":{}}`, "[[[[", `{"critical":{"critical":{}}}`} {
		f.Add([]byte(c))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := verify.CheckClaim(data, digest); err == nil {
			assert.Contains(t, string(data), "critical")
			assert.Error(t, verify.CheckClaim(data, otherDigest), "a claim is about one digest")
		}
	})
}

func FuzzConfigMapData(f *testing.F) {
	good := gpgFile(f, "rsa2048.msg")
	for _, key := range []string{
		verify.ConfigMapKey(digest, 0), verify.ConfigMapKey(digest, 9), "sha256-" + digest.Hex(), "sha256-" + digest.Hex() + "-", "sha256--1",
		"sha256-" + digest.Hex() + "-01", "sha256-" + digest.Hex() + "-99999999999999999999", "sha512-1", "",
	} {
		f.Add(key, good)
	}
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		data := map[string][]byte{key: value, verify.ConfigMapKey(otherDigest, 0): good}
		kept := verify.ReadManaged(data)
		written := kept.BinaryData()
		assert.Contains(t, written, verify.ConfigMapKey(otherDigest, 0))
		assert.Equal(t, written, verify.ReadManaged(written).BinaryData())
		for sig, err := range verify.NewConfigMaps(listOf(verify.ConfigMapData{Name: "c", BinaryData: data})).Signatures(t.Context(), digest) {
			require.NoError(t, err)
			assert.Equal(t, value, sig.Message)
			assert.True(t, strings.HasPrefix(key, "sha256-"+digest.Hex()))
		}
	})
}

func FuzzStoreURL(f *testing.F) {
	for _, u := range []string{
		"https://signatures.example/x", " http://h:1/a?b=c#d ", "file:///srv/signatures", "file://localhost/a", "file:a", "//h/x", "https://user:pw@h/%2e%2e/", "ftp://h", "https://[::1]:0/",
	} {
		f.Add(u)
	}
	// Nothing is sent anywhere.
	client := &http.Client{Transport: transportFunc(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Request: r}, nil
	})}
	f.Fuzz(func(t *testing.T, rawURL string) {
		store, err := verify.OpenStore(rawURL, client)
		if err != nil {
			return
		}
		if name := store.String(); strings.HasPrefix(name, "file:") {
			return // What is on this machine is not for fuzzing.
		}
		for _, err := range store.Signatures(t.Context(), digest) {
			assert.Error(t, err)
		}
	})
}
