package verify_test

import (
	"encoding/pem"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/test/fixture"
)

// fuzzPolicy trusts a key, keyless signing and a PKI.
func fuzzPolicy(f *testing.F, s *fixture.Sigstore) verify.Policy {
	f.Helper()
	key := publicKey(f, "team", newKey(f, "P-256"))
	root := trustIn(f, s)
	key.Log = &root
	pki := trustIn(f, s, func(o *verify.TrustRootOptions) { o.LogKeys, o.CertificateLogKeys = nil, nil })
	return verify.Policy{
		SigstoreKeys: []verify.PublicKey{key},
		Authorities: []verify.Authority{
			{Name: "ci", TrustRoot: root, Identities: []verify.Identity{{IssuerRegexp: ".*", SubjectRegexp: ".*"}}},
			{Name: "pki", TrustRoot: pki, Identities: []verify.Identity{{SubjectRegexp: ".*"}}},
		},
		Thresholds: []verify.Threshold{{Name: "any", Required: 1, Members: []string{"team", "ci", "pki"}}},
	}
}

// fixedSigstore is the same in every process: the corpus is made in one, and tried in others.
func fixedSigstore(f *testing.F) *fixture.Sigstore {
	f.Helper()
	s, err := fixture.FixedSigstore(today, "fuzz")
	require.NoError(f, err)
	return s
}

func FuzzBundle(f *testing.F) {
	s := fixedSigstore(f)
	signer := ci(f, s)
	document := []byte(statement(otherDigest, verify.SignPredicate))
	for _, form := range []fixture.SigstoreForm{{}, {Chain: true}, {Version: "0.1"}, {Version: "0.2", Chain: true}, {NoPromise: true}, {Unlogged: true}} {
		a, err := s.Statement(signer, document, form)
		require.NoError(f, err)
		f.Add(a.Payload)
		a, err = s.Message(signer, document, form)
		require.NoError(f, err)
		f.Add(a.Payload)
	}
	policy := fuzzPolicy(f, s)
	f.Fuzz(func(t *testing.T, data []byte) {
		refuse(t, policy, release.Attachment{Store: "x", MediaType: verify.BundleMediaType, Payload: data})
	})
}

func FuzzSimpleSigning(f *testing.F) {
	s := fixedSigstore(f)
	signer := ci(f, s)
	for _, form := range []fixture.SigstoreForm{{}, {Chain: true}, {Unlogged: true}} {
		a, err := s.Classic(signer, []byte(simpleSigning(otherDigest)), form)
		require.NoError(f, err)
		f.Add(a.Payload, a.Annotations[verify.SignatureAnnotation], a.Annotations[verify.CertificateAnnotation],
			a.Annotations[verify.ChainAnnotation], a.Annotations[verify.LogAnnotation], `{"SignedRFC3161Timestamp":"MAA="}`)
	}
	policy := fuzzPolicy(f, s)
	f.Fuzz(func(t *testing.T, payload []byte, sig, certificate, chain, log, timestamp string) {
		annotations := map[string]string{}
		for key, value := range map[string]string{
			verify.SignatureAnnotation: sig, verify.CertificateAnnotation: certificate, verify.ChainAnnotation: chain,
			verify.LogAnnotation: log, verify.TimestampAnnotation: timestamp,
		} {
			if value != "" {
				annotations[key] = value
			}
		}
		refuse(t, policy, release.Attachment{Store: "x", MediaType: verify.SimpleSigningMediaType, Payload: payload, Annotations: annotations})
	})
}

// Certificates as they come in a policy, and as a signature brings them along.
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
	policy := fuzzPolicy(f, s)
	document := []byte(simpleSigning(otherDigest))
	signed, err := s.Classic(signer, document, fixture.SigstoreForm{})
	require.NoError(f, err)
	asPEM := func(der ...[]byte) string {
		var out strings.Builder
		for _, d := range der {
			out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: d}))
		}
		return out.String()
	}
	f.Fuzz(func(t *testing.T, leaf, issuer []byte) {
		_, _ = verify.NewTrustRoot(verify.TrustRootOptions{
			Roots: []byte(asPEM(issuer)), Intermediates: []byte(asPEM(leaf)), TimestampAuthority: []byte(asPEM(leaf, issuer)),
		})
		refuse(t, policy, annotated(annotated(signed, verify.CertificateAnnotation, asPEM(leaf)), verify.ChainAnnotation, asPEM(issuer, issuer)))
	})
}

// refuse verifies what no fuzzer can have signed: the corpus is about another digest.
func refuse(t *testing.T, policy verify.Policy, a release.Attachment) {
	t.Helper()
	v, err := verify.New(policy, verify.Sources{Attachments: attachments{found: []release.Attachment{a}}}, nil)
	require.NoError(t, err)
	_, err = v.Verify(t.Context(), image())
	assert.ErrorIs(t, err, verify.ErrUnverified)
}

func FuzzTrustRoot(f *testing.F) {
	s := fixedSigstore(f)
	file, err := s.TrustedRoot()
	require.NoError(f, err)
	f.Add(file)
	f.Add([]byte(`{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1","certificateAuthorities":[{}],"tlogs":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		root, err := verify.ParseTrustRoot(data)
		if err != nil {
			return
		}
		_, err = verifyAttached(t, verify.Authority{TrustRoot: root, Identities: byWorkflow()}, image())
		assert.Error(t, err)
	})
}

func FuzzTrustPolicy(f *testing.F) {
	s := fixedSigstore(f)
	file, err := s.TrustedRoot()
	require.NoError(f, err)
	keyless := keylessIn(s)
	f.Add(trustDocument(f, object{"sigstore": object{"keyless": []object{keyless}}}), "{}")
	f.Add(trustDocument(f, object{"sigstore": object{"keyless": []object{{"name": "x", "trustedRootFile": "file", "identities": keyless["identities"]}}}}), string(file))
	f.Add(trustDocument(f, object{
		"sigstore":   object{"publicKeys": []object{{"name": "a", "pem": string(pemKey(f)), "signedIdentity": object{"matchPolicy": "MatchRepository"}}}},
		"thresholds": []object{{"name": "t", "required": 1, "members": []string{"a"}}},
	}), "")
	f.Fuzz(func(t *testing.T, document, file string) {
		for _, data := range []map[string]string{{verify.TrustPolicyKey: document}, {verify.TrustPolicyKey: document, "file": file}} {
			policy, err := verify.ParseTrustData("ConfigMap", data, nil)
			assert.Equal(t, err != nil, policy.Empty())
		}
	})
}
