package sigstore_test

import (
	"encoding/pem"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
	"github.com/cluster-version/cvo/test/fixture/sigstoretest"
)

// signers are a key, an authority for keyless signing and an authority of a PKI.
type signers struct {
	key     sigstore.PublicKey
	keyless sigstore.Authority
	pki     sigstore.Authority
}

func fuzzSigners(f *testing.F, s *sigstoretest.Deployment) signers {
	f.Helper()
	key := publicKey(f, "team", newKey(f, "P-256"))
	root := trustIn(f, s)
	key.Log = &root
	pki := trustIn(f, s, func(o *sigstore.TrustRootOptions) { o.LogKeys, o.CertificateLogKeys = nil, nil })
	return signers{
		key:     key,
		keyless: sigstore.Authority{Name: "ci", TrustRoot: root, Identities: []sigstore.Identity{{IssuerRegexp: ".*", SubjectRegexp: ".*"}}},
		pki:     sigstore.Authority{Name: "pki", TrustRoot: pki, Identities: []sigstore.Identity{{SubjectRegexp: ".*"}}},
	}
}

// fixedSigstore is the same in every process, because the corpus is made in one process and used in others.
func fixedSigstore(f *testing.F) *sigstoretest.Deployment {
	f.Helper()
	s, err := sigstoretest.Fixed(today, "fuzz")
	require.NoError(f, err)
	return s
}

//threat:sigstore-bundles-documents
func FuzzBundle(f *testing.F) {
	s := fixedSigstore(f)
	signer := ci(f, s)
	document := []byte(statement(otherDigest, sigstore.SignPredicate))
	for _, form := range []sigstoretest.Form{{}, {Chain: true}, {Version: "0.1"}, {Version: "0.2", Chain: true}, {NoPromise: true}, {Unlogged: true}} {
		a, err := s.Statement(signer, document, form)
		require.NoError(f, err)
		f.Add(a.Payload)
		a, err = s.Message(signer, document, form)
		require.NoError(f, err)
		f.Add(a.Payload)
	}
	trusted := fuzzSigners(f, s)
	f.Fuzz(func(t *testing.T, data []byte) {
		refuse(t, trusted, release.Attachment{Store: "x", MediaType: sigstore.BundleMediaType, Payload: data})
	})
}

//threat:sigstore-bundles-documents
func FuzzSimpleSigning(f *testing.F) {
	s := fixedSigstore(f)
	signer := ci(f, s)
	for _, form := range []sigstoretest.Form{{}, {Chain: true}, {Unlogged: true}} {
		a, err := s.Classic(signer, []byte(simpleSigning(otherDigest)), form)
		require.NoError(f, err)
		f.Add(a.Payload, a.Annotations[sigstore.SignatureAnnotation], a.Annotations[sigstore.CertificateAnnotation],
			a.Annotations[sigstore.ChainAnnotation], a.Annotations[sigstore.LogAnnotation], `{"SignedRFC3161Timestamp":"MAA="}`)
	}
	trusted := fuzzSigners(f, s)
	f.Fuzz(func(t *testing.T, payload []byte, sig, certificate, chain, log, timestamp string) {
		annotations := map[string]string{}
		for key, value := range map[string]string{
			sigstore.SignatureAnnotation: sig, sigstore.CertificateAnnotation: certificate, sigstore.ChainAnnotation: chain,
			sigstore.LogAnnotation: log, sigstore.TimestampAnnotation: timestamp,
		} {
			if value != "" {
				annotations[key] = value
			}
		}
		refuse(t, trusted, release.Attachment{Store: "x", MediaType: sigstore.SimpleSigningMediaType, Payload: payload, Annotations: annotations})
	})
}

// FuzzCertificates parses certificates from a policy as well as from a signature.
//
//threat:sigstore-bundles-documents
func FuzzCertificates(f *testing.F) {
	s := fixedSigstore(f)
	signer := ci(f, s)
	for _, data := range [][]byte{s.Roots(), s.Intermediates(), signer.Certificate.Raw} {
		if block, _ := pem.Decode(data); block != nil {
			data = block.Bytes
		}
		f.Add(data, []byte{})
		f.Add(signer.Certificate.Raw, data)
	}
	trusted := fuzzSigners(f, s)
	document := []byte(simpleSigning(otherDigest))
	signed, err := s.Classic(signer, document, sigstoretest.Form{})
	require.NoError(f, err)
	asPEM := func(der ...[]byte) string {
		var out strings.Builder
		for _, d := range der {
			out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: d}))
		}
		return out.String()
	}
	f.Fuzz(func(t *testing.T, leaf, issuer []byte) {
		_, _ = sigstore.NewTrustRoot(sigstore.TrustRootOptions{
			Roots: []byte(asPEM(issuer)), Intermediates: []byte(asPEM(leaf)), TimestampAuthority: []byte(asPEM(leaf, issuer)),
		})
		refuse(t, trusted, annotated(annotated(signed, sigstore.CertificateAnnotation, asPEM(leaf)), sigstore.ChainAnnotation, asPEM(issuer, issuer)))
	})
}

// refuse verifies a digest that no fuzzer can have signed, because the corpus is about another digest.
func refuse(t *testing.T, trusted signers, a release.Attachment) {
	t.Helper()
	_, err := verifyKey(trusted.key, image(), a)
	require.Error(t, err)
	for _, authority := range []sigstore.Authority{trusted.keyless, trusted.pki} {
		_, err = verifyAttached(t, authority, image(), a)
		assert.Error(t, err)
	}
}

//threat:trusted-roots
func FuzzTrustRoot(f *testing.F) {
	s := fixedSigstore(f)
	file, err := s.TrustedRoot()
	require.NoError(f, err)
	f.Add(file)
	f.Add([]byte(`{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1","certificateAuthorities":[{}],"tlogs":[{}]}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		root, err := sigstore.ParseTrustRoot(data)
		if err != nil {
			return
		}
		_ = sigstore.Authority{TrustRoot: root, Identities: byWorkflow()}.Validate()
	})
}
