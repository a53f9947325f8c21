package sigstore_test

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
	"github.com/cluster-version/cvo/test/fixture"
	"github.com/cluster-version/cvo/test/fixture/sigstoretest"
)

// hugeKey returns a key whose numbers have the given number of bits. It has no private key: it only makes verifiers compute.
func hugeKey(bits int) *rsa.PublicKey {
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits))
	return &rsa.PublicKey{N: n.Sub(n, big.NewInt(1)), E: math.MaxInt32}
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: today, NotAfter: today.AddDate(1, 0, 0),
		BasicConstraintsValid: true,
	}
}

func pemOfDER(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// costlyChain returns a certificate for alice that claims an issuer whose key has the given number of bits, and that issuer's certificate.
// The signature is as long as the key, and invalid.
func costlyChain(t *testing.T, leafKey crypto.PublicKey, bits int) (leaf, issuer string) {
	t.Helper()
	small, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	authority := template("costly")
	authority.IsCA, authority.KeyUsage = true, x509.KeyUsageCertSign
	huge, err := x509.CreateCertificate(rand.Reader, authority, template("nobody"), hugeKey(bits), small)
	require.NoError(t, err)
	subject := template("leaf")
	subject.EmailAddresses = []string{alice}
	der, err := x509.CreateCertificate(rand.Reader, subject, authority, leafKey, small)
	require.NoError(t, err)
	var parts struct {
		Body, Algorithm asn1.RawValue
		Signature       asn1.BitString
	}
	_, err = asn1.Unmarshal(der, &parts)
	require.NoError(t, err)
	parts.Signature = asn1.BitString{Bytes: bytes.Repeat([]byte{1}, bits/8), BitLength: bits}
	der, err = asn1.Marshal(parts)
	require.NoError(t, err)
	return pemOfDER(der), pemOfDER(huge)
}

func TestCostlyCertificatesAreRejected(t *testing.T) {
	s := newSigstore(t)
	claimed := simpleSigning(digest)
	key := newKey(t, "P-256")
	good := issue(t, s, sigstoretest.Subject{Email: alice, NotBefore: today, NotAfter: today.AddDate(1, 0, 0), Unlogged: true})
	withChain := func(leaf, chain string) release.Attachment {
		return release.Attachment{
			Store: "registry.example/a", MediaType: sigstore.SimpleSigningMediaType, Payload: []byte(claimed), Annotations: map[string]string{
				sigstore.SignatureAnnotation:   base64.StdEncoding.EncodeToString([]byte("none")),
				sigstore.CertificateAnnotation: leaf, sigstore.ChainAnnotation: chain,
			},
		}
	}
	leaf, issuer := costlyChain(t, key.Public(), 1_000_000)
	own, ownIssuer := costlyChain(t, hugeKey(1_000_000), 2048)
	for _, test := range []struct {
		name    string
		hostile release.Attachment
	}{
		{"it does not compute with an issuer's huge key", withChain(leaf, issuer)},
		{"it does not compute with a signer's huge key", withChain(own, ownIssuer)},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := sigstore.Authority{
				Name: "pki", Identities: []sigstore.Identity{{Email: alice}},
				TrustRoot: trustIn(t, s, func(o *sigstore.TrustRootOptions) { o.LogKeys, o.CertificateLogKeys = nil, nil }),
			}
			fixture.Bounded(t, func() {
				_, err := verifyAttached(t, a, image(), test.hostile)
				require.ErrorContains(t, err, "RSA with 1000000 bits is too large")
			})
			_, err := verifyAttached(t, a, image(), attached(t)(s.Classic(good, []byte(claimed), sigstoretest.Form{Unlogged: true})))
			require.NoError(t, err)
		})
	}
}

func TestCostlyTimestampsAreRejected(t *testing.T) {
	s := newSigstore(t)
	signer := issue(t, s, sigstoretest.Subject{URI: workflow, Issuer: actions})
	huge := func([]byte) ([]byte, error) { return make([]byte, 17<<10), nil }
	a := sigstore.Authority{Name: "ci", Identities: byWorkflow(), TrustRoot: trustIn(t, s)}
	for _, found := range []release.Attachment{
		attached(t)(s.Classic(signer, []byte(simpleSigning(digest)), sigstoretest.Form{Timestamp: huge})),
		attached(t)(s.Statement(signer, []byte(statement(digest, sigstore.SignPredicate)), sigstoretest.Form{Timestamp: huge})),
	} {
		_, err := verifyAttached(t, a, image(), found)
		require.ErrorContains(t, err, "it contains a timestamp larger than 16384 bytes")
	}
}
