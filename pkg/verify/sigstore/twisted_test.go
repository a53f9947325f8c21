package sigstore_test

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
	"github.com/cluster-version/cvo/test/fixture/sigstoretest"
)

// joined adds a field of one bundle to another as text, so that the field may occur twice.
func joined(t testing.TB, a, b release.Attachment, field string) release.Attachment {
	t.Helper()
	var fields map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(b.Payload, &fields))
	require.NotEmpty(t, fields[field])
	a.Payload = []byte(strings.TrimSuffix(string(a.Payload), "}") + `,"` + field + `":` + string(fields[field]) + "}")
	return a
}

// withSignatures returns a DSSE bundle with the signatures of other bundles.
func withSignatures(t testing.TB, a release.Attachment, from ...release.Attachment) release.Attachment {
	t.Helper()
	var all []any
	for _, f := range from {
		var doc struct {
			DsseEnvelope struct {
				Signatures []any `json:"signatures"`
			} `json:"dsseEnvelope"`
		}
		require.NoError(t, json.Unmarshal(f.Payload, &doc))
		all = append(all, doc.DsseEnvelope.Signatures...)
	}
	return editJSON(t, a, func(any) any { return all }, "dsseEnvelope", "signatures")
}

func TestContradictoryBundlesAreRejected(t *testing.T) {
	key, other := newKey(t, "P-256"), newKey(t, "P-256")
	good, evil := envelope(t, key, statement(digest, sigstore.SignPredicate)), envelope(t, other, statement(digest, sigstore.SignPredicate))
	elsewhere := envelope(t, key, statement(otherDigest, sigstore.SignPredicate))
	for _, test := range []struct {
		name  string
		found release.Attachment
	}{
		{"a message signature by another key next to a statement", joined(t, elsewhere, messageBundle(t, signDigest(t, other, digest), digest), "messageSignature")},
		{"a message signature of this digest and a statement about another", joined(t, messageBundle(t, signDigest(t, other, digest), digest), good, "dsseEnvelope")},
		{"two envelopes, the second about this digest", joined(t, elsewhere, evil, "dsseEnvelope")},
		{"two envelopes, the second about another", joined(t, evil, elsewhere, "dsseEnvelope")},
		{"no signature", withSignatures(t, good)},
		{"the signature of another key", withSignatures(t, good, evil)},
		{"the signature of another statement", withSignatures(t, good, elsewhere)},
		{"signatures of other keys", withSignatures(t, good, evil, elsewhere, evil)},
		{"a subject with two digests", envelope(t, key, strings.Replace(statement(otherDigest, sigstore.SignPredicate), `"sha256":`, `"sha256":"`+digest.Hex()+`","sha256":`, 1))},
		{"a digest under another name", envelope(t, key, strings.Replace(statement(digest, sigstore.SignPredicate), `"sha256":`, `"SHA256":`, 1))},
		{"a digest with a suffix", envelope(t, key, strings.Replace(statement(digest, sigstore.SignPredicate), digest.Hex(), digest.Hex()+"00", 1))},
		{"an empty digest", envelope(t, key, strings.Replace(statement(digest, sigstore.SignPredicate), digest.Hex(), "", 1))},
		{"nothing", release.Attachment{Store: "a", MediaType: sigstore.BundleMediaType}},
		{"null", release.Attachment{Store: "a", MediaType: sigstore.BundleMediaType, Payload: []byte("null")}},
	} {
		t.Run("it rejects "+test.name, func(t *testing.T) {
			_, err := verifyKey(publicKey(t, "team", key), image(), test.found)
			require.Error(t, err)
		})
	}
}

// TestLogEntriesOfOtherSignaturesAreRejected checks that a valid signature of the right claim is rejected if its log entry belongs to
// another signature.
func TestLogEntriesOfOtherSignaturesAreRejected(t *testing.T) {
	s := newSigstore(t)
	signer, again := ci(t, s), ci(t, s)
	a := sigstore.Authority{Name: "ci", Identities: byWorkflow(), TrustRoot: trustIn(t, s)}
	classic := func(by *sigstoretest.Signer, d release.Digest) release.Attachment {
		return attached(t)(s.Classic(by, []byte(simpleSigning(d)), sigstoretest.Form{}))
	}
	own := classic(signer, digest)
	for name, from := range map[string]release.Attachment{
		"another signature by the same certificate": classic(signer, otherDigest), "another certificate of the same person": classic(again, digest),
		"the same claim, signed again": classic(signer, digest),
	} {
		t.Run("it rejects the log entry of "+name, func(t *testing.T) {
			twisted := annotated(own, sigstore.LogAnnotation, from.Annotations[sigstore.LogAnnotation])
			_, err := verifyAttached(t, a, image(), twisted)
			require.ErrorContains(t, err, "no entry in a trusted transparency log")
			_, err = verifyAttached(t, a, image(), own)
			require.NoError(t, err)
		})
	}
}

// signedBy issues a certificate from a template, with a new key.
func signedBy(t testing.TB, c, parent *x509.Certificate, parentKey crypto.Signer) (*x509.Certificate, crypto.Signer) {
	t.Helper()
	key := newKey(t, "P-256")
	if parentKey == nil {
		parent, parentKey = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), parentKey)
	require.NoError(t, err)
	made, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return made, key
}

func TestCertificatesNotForSigningAreRejected(t *testing.T) {
	authorityOf := func(name string) *x509.Certificate {
		c := template(name)
		c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign
		return c
	}
	person := func(change ...func(*x509.Certificate)) *x509.Certificate {
		c := template("person")
		c.KeyUsage, c.EmailAddresses, c.ExtKeyUsage = x509.KeyUsageDigitalSignature, []string{alice}, []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}
		for _, edit := range change {
			edit(c)
		}
		return c
	}
	root, rootKey := signedBy(t, authorityOf("root"), nil, nil)
	bob, bobKey := signedBy(t, person(func(c *x509.Certificate) { c.EmailAddresses = []string{"bob@example.com"} }), root, rootKey)
	narrow := authorityOf("narrow")
	narrow.PermittedEmailAddresses, narrow.PermittedDNSDomainsCritical = []string{"partner.example"}, true
	partner, partnerKey := signedBy(t, narrow, root, rootKey)
	servers := authorityOf("servers")
	servers.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	serverAuthority, serverKey := signedBy(t, servers, root, rootKey)
	self, selfKey := signedBy(t, person(func(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign }), nil, nil)
	trust, err := sigstore.NewTrustRoot(sigstore.TrustRootOptions{Roots: []byte(pemOfDER(root.Raw))})
	require.NoError(t, err)

	for _, test := range []struct {
		name      string
		leaf      *x509.Certificate
		issuer    *x509.Certificate
		issuerKey crypto.Signer
		refusal   string
	}{
		{"it accepts a certificate for signing", person(), root, rootKey, ""},
		{"it rejects a certificate for servers", person(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), root, rootKey, "incompatible key usage"},
		{"it rejects a certificate of an authority for servers", person(), serverAuthority, serverKey, "incompatible key usage"},
		{"it rejects a certificate that is not valid yet", person(func(c *x509.Certificate) { c.NotBefore = today.AddDate(0, 1, 0) }), root, rootKey, "not yet valid"},
		{"it rejects an expired certificate", person(func(c *x509.Certificate) { c.NotAfter = today }), root, rootKey, "has expired"},
		{"it rejects a certificate of an unauthorized issuer", person(), bob, bobKey, "parent certificate cannot sign this kind of certificate"},
		{"it rejects a certificate outside its authority's name constraints", person(), partner, partnerKey, "not permitted"},
		{"it rejects a self-signed certificate", person(), self, selfKey, "unknown authority"},
		{"it rejects an address that differs in case", person(func(c *x509.Certificate) { c.EmailAddresses = []string{"Alice@example.com"} }), root, rootKey, "expected email"},
		{"it rejects an address with surrounding text", person(func(c *x509.Certificate) {
			c.EmailAddresses = []string{alice + " ", "\t" + alice, alice + ".evil.example"}
		}), root, rootKey, "expected email"},
		{"it rejects an address as another kind of name", person(func(c *x509.Certificate) {
			c.EmailAddresses, c.Subject.CommonName, c.URIs = nil, alice, []*url.URL{{Scheme: "mailto", Opaque: alice}}
		}), root, rootKey, "expected email"},
	} {
		t.Run(test.name, func(t *testing.T) {
			leaf, key := signedBy(t, test.leaf, test.issuer, test.issuerKey)
			found := tagged(t, key, simpleSigning(digest))
			found.Annotations[sigstore.CertificateAnnotation], found.Annotations[sigstore.ChainAnnotation] = pemOfDER(leaf.Raw), pemOfDER(test.issuer.Raw)
			_, err := verifyAttached(t, sigstore.Authority{Name: "pki", TrustRoot: trust, Identities: []sigstore.Identity{{Email: alice}}}, image(), found)
			if test.refusal == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.refusal)
		})
	}
}
