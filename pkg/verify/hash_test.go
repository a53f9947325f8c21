package verify

import (
	"crypto"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	legacypacket "golang.org/x/crypto/openpgp/packet" //nolint:staticcheck // see openpgp.go
)

func TestWeakHashesAreRefused(t *testing.T) {
	for _, hash := range []crypto.Hash{crypto.MD5, crypto.SHA1, crypto.RIPEMD160} {
		_, err := keyringRoot{}.checkSignature(nil, messageSignature{legacy: &legacypacket.SignatureV3{Hash: hash}}, time.Time{})
		require.ErrorContains(t, err, "hash algorithm "+hash.String()+" is not accepted")
	}
}
