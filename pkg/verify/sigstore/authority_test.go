package sigstore_test

import (
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
	"github.com/cluster-version/cvo/test/fixture/sigstoretest"
)

func TestKeylessSignaturesAreAccepted(t *testing.T) {
	s := newSigstore(t)
	signed := attached(t)
	inline := trustIn(t, s)
	document := []byte(`{"schemaVersion":2}`)
	sum := sha256.Sum256(document)
	manifestImage := image()
	manifestImage.Digest = release.Digest(fmt.Sprintf("sha256:%x", sum))
	file, err := s.TrustedRoot()
	require.NoError(t, err)
	fromFile, err := sigstore.ParseTrustRoot(file)
	require.NoError(t, err)
	signer := ci(t, s)
	about := []byte(statement(digest, sigstore.SignPredicate))
	claimed := []byte(simpleSigning(digest))
	several := strings.Replace(string(about), `"subject":[`, `"subject":[{"name":"another","digest":{"sha256":"`+otherDigest.Hex()+`"}},`, 1)

	for _, test := range []struct {
		name       string
		image      release.Image
		attachment release.Attachment
	}{
		{"the classic form", image(), signed(s.Classic(signer, claimed, sigstoretest.Form{}))},
		{"the classic form with a chain", image(), signed(s.Classic(signer, claimed, sigstoretest.Form{Chain: true}))},
		{"a bundle 0.3", image(), signed(s.Statement(signer, about, sigstoretest.Form{}))},
		{"a bundle 0.3 with a chain", image(), signed(s.Statement(signer, about, sigstoretest.Form{Chain: true}))},
		{"a bundle 0.2", image(), signed(s.Statement(signer, about, sigstoretest.Form{Version: "0.2"}))},
		{"a bundle 0.1", image(), signed(s.Statement(signer, about, sigstoretest.Form{Version: "0.1"}))},
		{"a bundle with a signature of the image manifest", manifestImage, signed(s.Message(signer, document, sigstoretest.Form{}))},
		{"a statement about several subjects, including this one", image(), signed(s.Statement(signer, []byte(several), sigstoretest.Form{}))},
		{"a certificate for a P-384 key", image(), signed(s.Statement(issue(t, s, sigstoretest.Subject{
			URI: workflow, Issuer: actions, Curve: elliptic.P384(),
		}), about, sigstoretest.Form{}))},
		{"a P-384 key in the classic form, which uses SHA-256", image(), signed(s.Classic(issue(t, s, sigstoretest.Subject{
			URI: workflow, Issuer: actions, Curve: elliptic.P384(),
		}), claimed, sigstoretest.Form{}))},
	} {
		for rootName, root := range map[string]sigstore.TrustRoot{"parts": inline, "a trusted_root.json": fromFile} {
			t.Run("it accepts "+test.name+" by "+rootName, func(t *testing.T) {
				e, err := verifyAttached(t, sigstore.Authority{TrustRoot: root, Identities: byWorkflow()}, test.image, test.attachment)
				require.NoError(t, err)
				assert.Equal(t, workflow, e.Identity)
				assert.Equal(t, actions, e.Issuer)
				assert.Len(t, e.KeyID, 64)
				assert.Len(t, e.Certificate, 64)
				assert.Equal(t, today.Add(time.Minute), e.SignedAt)
				assert.Equal(t, &release.LogEntry{Index: 4711, Time: today.Add(time.Minute)}, e.Log)
			})
		}
	}
}

//threat:wrong-identity-issuer
func TestKeylessIdentityMustMatchEveryField(t *testing.T) {
	s := newSigstore(t)
	root := trustIn(t, s)
	byURI := attached(t)(s.Classic(ci(t, s), []byte(simpleSigning(digest)), sigstoretest.Form{}))
	byMail := attached(t)(s.Classic(issue(t, s, sigstoretest.Subject{Email: alice, Issuer: accounts}), []byte(simpleSigning(digest)), sigstoretest.Form{}))
	const got = `the certificate is for ["` + workflow + `"] by issuer "` + actions + `", expected `
	for _, test := range []struct {
		name     string
		found    release.Attachment
		identity sigstore.Identity
		refusal  string
	}{
		{"it accepts the URI", byURI, sigstore.Identity{Issuer: actions, URI: workflow}, ""},
		{"it accepts a URI that matches", byURI, sigstore.Identity{Issuer: actions, SubjectRegexp: `https://github\.com/platform/release/.*`}, ""},
		{"it accepts an issuer that matches", byURI, sigstore.Identity{IssuerRegexp: `https://.*\.githubusercontent\.com`, URI: workflow}, ""},
		{"it accepts the email address", byMail, sigstore.Identity{Issuer: accounts, Email: alice}, ""},
		{"it rejects another issuer", byURI, sigstore.Identity{Issuer: accounts, URI: workflow}, got + "URI " + workflow + ", issuer " + accounts},
		{"it rejects an issuer that does not match", byURI, sigstore.Identity{IssuerRegexp: "https://acc.*", URI: workflow}, got},
		{"it rejects an issuer that matches only in part", byURI, sigstore.Identity{IssuerRegexp: "https://token", URI: workflow}, got},
		{"it rejects another URI", byURI, sigstore.Identity{Issuer: actions, URI: strings.Replace(workflow, "main", "evil", 1)}, got},
		{"it rejects a URI that matches only in part", byURI, sigstore.Identity{Issuer: actions, SubjectRegexp: `https://github\.com/platform/release`}, got},
		{"it rejects an alternative of the expression that matches only in part", byURI, sigstore.Identity{Issuer: actions, SubjectRegexp: `x|https://github`}, got},
		{"it rejects an email address instead of a URI", byMail, sigstore.Identity{Issuer: accounts, URI: alice}, `the certificate is for ["` + alice + `"]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			evidence, err := verifyAttached(t, sigstore.Authority{TrustRoot: root, Identities: []sigstore.Identity{test.identity}}, image(), test.found)
			if test.refusal == "" {
				require.NoError(t, err)
				assert.NotEmpty(t, evidence)
				return
			}
			assert.ErrorContains(t, err, test.refusal)
		})
	}

	_, err := verifyAttached(t, sigstore.Authority{TrustRoot: root, Identities: []sigstore.Identity{
		{Issuer: accounts, Email: "bob@example.com"}, {Issuer: accounts, Email: alice},
	}}, image(), byMail)
	require.NoError(t, err, "one matching identity is enough")
}

//threat:signature-another-digest a signature of another digest, replayed
//threat:signature-another-form a statement of another type
//threat:untrusted-certificate-authority an untrusted authority
//threat:untrusted-certificate-authority a certificate that is not in a certificate log
//threat:untrusted-certificate-authority a log entry after the certificate had expired
//threat:untrusted-log-no an untrusted log
//threat:untrusted-log-no a bundle without a log entry
//threat:tampered-inclusion-proof a tampered proof of inclusion
//threat:tampered-inclusion-proof a tampered promise of the log
//threat:tampered-inclusion-proof a tampered checkpoint
func TestInvalidKeylessSignaturesAreRejected(t *testing.T) {
	s, other := newSigstore(t), newSigstore(t)
	signed := attached(t)
	signer := ci(t, s)
	about := []byte(statement(digest, sigstore.SignPredicate))
	claimed := []byte(simpleSigning(digest))
	good := signed(s.Statement(signer, about, sigstoretest.Form{}))
	classic := signed(s.Classic(signer, claimed, sigstoretest.Form{}))
	entry := []any{"verificationMaterial", "tlogEntries", 0}
	proof := slices.Concat(entry, []any{"inclusionProof"})
	path := func(base []any, steps ...any) []any { return slices.Concat(base, steps) }
	late := sigstoretest.Form{LoggedAt: today.Add(time.Hour)}
	unlogged := sigstoretest.Form{Unlogged: true}
	replayed := signed(s.Statement(signer, []byte(statement(otherDigest, sigstore.SignPredicate)), sigstoretest.Form{}))
	subjects := `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha512":"` + digest.Hex() + `"}},{"digest":{"sha256":"` +
		otherDigest.Hex() + `"}}],"predicateType":"` + sigstore.SignPredicate + `","predicate":{}}`
	anotherEntry := func(any) any {
		var document map[string]any
		require.NoError(t, json.Unmarshal(replayed.Payload, &document))
		return document["verificationMaterial"].(map[string]any)["tlogEntries"]
	}

	for _, test := range []struct {
		name  string
		root  func(*sigstore.TrustRootOptions)
		found release.Attachment
		want  string
	}{
		{"a signature of another digest, replayed", nil, replayed, "the signed statement is not about this digest"},
		{"a document about another digest, replayed", nil, signed(s.Classic(signer, []byte(simpleSigning(otherDigest)), sigstoretest.Form{})), "the signed claim is about another digest"},
		{"a statement of another type", nil, signed(s.Statement(signer, []byte(statement(digest, "https://slsa.dev/provenance/v1")), sigstoretest.Form{})), `the signed statement is of type "https://slsa.dev/provenance/v1"`},
		{"a statement about other subjects", nil, signed(s.Statement(signer, []byte(subjects), sigstoretest.Form{})), "the signed statement is not about this digest"},
		{"a bundle without a log entry", nil, signed(s.Statement(signer, about, unlogged)), "no entry in a trusted transparency log"},
		{"the classic form without a log entry", nil, signed(s.Classic(signer, claimed, unlogged)), "no entry in a trusted transparency log"},
		{"a log entry after the certificate had expired", nil, signed(s.Statement(signer, about, late)), "integrated time outside certificate validity"},
		{"a log entry after the certificate had expired, classic", nil, signed(s.Classic(signer, claimed, late)), "integrated time outside certificate validity"},
		{"an untrusted log", func(o *sigstore.TrustRootOptions) { o.LogKeys = other.LogKey() }, good, "no entry in a trusted transparency log"},
		{"an untrusted log, classic", func(o *sigstore.TrustRootOptions) { o.LogKeys = other.LogKey() }, classic, "no entry in a trusted transparency log"},
		{"an untrusted authority", func(o *sigstore.TrustRootOptions) { o.Roots, o.Intermediates = other.Roots(), other.Intermediates() }, good, "certificate signed by unknown authority"},
		{"an untrusted authority with a chain in the signature", func(o *sigstore.TrustRootOptions) { o.Roots, o.Intermediates = other.Roots(), nil }, signed(s.Classic(signer, claimed, sigstoretest.Form{Chain: true})), "certificate signed by unknown authority"},
		{"a certificate with a missing intermediate", func(o *sigstore.TrustRootOptions) { o.Intermediates = nil }, good, "certificate signed by unknown authority"},
		{"an untrusted certificate log", func(o *sigstore.TrustRootOptions) { o.CertificateLogKeys = other.CertificateLogKey() }, good, "the certificate is not in a trusted certificate log"},
		{"a certificate that is not in a certificate log", nil, signed(s.Statement(issue(t, s, sigstoretest.Subject{URI: workflow, Issuer: actions, Unlogged: true}), about, sigstoretest.Form{})), "the certificate is not in a trusted certificate log"},
		{"a tampered promise of the log", nil, editJSON(t, good, flip(t), path(entry, "inclusionPromise", "signedEntryTimestamp")...), "no entry in a trusted transparency log"},
		{"a time that differs from the log's promise", nil, editJSON(t, good, func(any) any { return fmt.Sprint(today.Add(2 * time.Minute).Unix()) }, path(entry, "integratedTime")...), "no entry in a trusted transparency log"},
		{"a tampered proof of inclusion", nil, editJSON(t, good, flip(t), path(proof, "hashes", 0)...), "no entry in a trusted transparency log"},
		{"a proof for another root", nil, editJSON(t, good, flip(t), path(proof, "rootHash")...), "no entry in a trusted transparency log"},
		{"a tampered checkpoint", nil, editJSON(t, good, func(v any) any { return strings.Replace(v.(string), "\n2\n", "\n3\n", 1) }, path(proof, "checkpoint", "envelope")...), "no entry in a trusted transparency log"},
		{"the log entry of another signature", nil, editJSON(t, good, anotherEntry, "verificationMaterial", "tlogEntries"), "no entry in a trusted transparency log"},
		{"a proof without a promise, so without a time", nil, editJSON(t, good, drop, path(entry, "inclusionPromise")...), "no trusted source confirms the time of the signature"},
		{"a tampered envelope", nil, editJSON(t, good, func(any) any {
			return base64.StdEncoding.EncodeToString([]byte(strings.Replace(string(about), "predicate\":{}", "predicate\":{ }", 1)))
		}, "dsseEnvelope", "payload"), "does not match"},
		{"a bare key", nil, envelope(t, newKey(t, "P-256"), string(about)), "signed with a bare key, not with a certificate"},
		{"a certificate that does not parse", nil, editJSON(t, good, func(any) any { return "AAAA" }, "verificationMaterial", "certificate", "rawBytes"), "reading its certificates"},
		{"an invalid certificate annotation", nil, annotated(classic, sigstore.CertificateAnnotation, "x"), "contains no PEM certificate"},
		{"a chain annotation with a private key", nil, annotated(classic, sigstore.ChainAnnotation, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), "contains a PEM PRIVATE KEY"},
		{"a long chain", nil, annotated(classic, sigstore.ChainAnnotation, strings.Repeat(string(s.Roots()), 8)), "it contains 9 certificates, the limit is 8"},
		{"an invalid log annotation", nil, annotated(classic, sigstore.LogAnnotation, "{"), "reading annotation dev.sigstore.cosign/bundle"},
		{"a log annotation without a body", nil, annotated(classic, sigstore.LogAnnotation, "{}"), "reading annotation dev.sigstore.cosign/bundle"},
		{"an invalid timestamp annotation", nil, annotated(classic, sigstore.TimestampAnnotation, "{"), "reading annotation dev.sigstore.cosign/rfc3161timestamp"},
	} {
		t.Run("it rejects "+test.name, func(t *testing.T) {
			var change []func(*sigstore.TrustRootOptions)
			if test.root != nil {
				change = append(change, test.root)
			}
			_, err := verifyAttached(t, sigstore.Authority{TrustRoot: trustIn(t, s, change...), Identities: byWorkflow()}, image(), test.found)
			assert.ErrorContains(t, err, test.want)
		})
	}

	for _, found := range []release.Attachment{good, classic} {
		_, err := verifyAttached(t, sigstore.Authority{TrustRoot: trustIn(t, s), Identities: byWorkflow()}, image(), found)
		require.NoError(t, err, "the unmodified signatures must be valid")
	}
}

//threat:wrong-identity-issuer it rejects another host name
func TestCertificatesMustChainToThePKI(t *testing.T) {
	s, other := newSigstore(t), newSigstore(t)
	signed := attached(t)
	year := sigstoretest.Subject{Email: alice, NotBefore: today, NotAfter: today.AddDate(1, 0, 0), Unlogged: true}
	byMail := issue(t, s, year)
	host := year
	host.Email, host.Hostname = "", "build.example.com"
	expired := year
	expired.NotAfter = today.Add(time.Hour)
	pki := func(o *sigstore.TrustRootOptions) { o.LogKeys, o.CertificateLogKeys = nil, nil }
	claimed, about := []byte(simpleSigning(digest)), []byte(statement(digest, sigstore.SignPredicate))
	unlogged, chained := sigstoretest.Form{Unlogged: true}, sigstoretest.Form{Unlogged: true, Chain: true}
	rootsOnly := func(o *sigstore.TrustRootOptions) { pki(o); o.Intermediates = nil }
	withLog := func(o *sigstore.TrustRootOptions) { o.CertificateLogKeys = nil }

	for _, test := range []struct {
		name     string
		root     func(*sigstore.TrustRootOptions)
		identity sigstore.Identity
		found    release.Attachment
		refusal  string
	}{
		{"it accepts an email address", pki, sigstore.Identity{Email: alice}, signed(s.Classic(byMail, claimed, unlogged)), ""},
		{"it accepts a host name", pki, sigstore.Identity{Hostname: "build.example.com"}, signed(s.Classic(issue(t, s, host), claimed, unlogged)), ""},
		{"it accepts a bundle", pki, sigstore.Identity{Email: alice}, signed(s.Statement(byMail, about, unlogged)), ""},
		{"it accepts a chain in the signature", rootsOnly, sigstore.Identity{Email: alice}, signed(s.Classic(byMail, claimed, chained)), ""},
		{"it accepts a chain in the bundle", rootsOnly, sigstore.Identity{Email: alice}, signed(s.Statement(byMail, about, chained)), ""},
		{"it accepts an old bundle's chain", rootsOnly, sigstore.Identity{Email: alice}, signed(s.Statement(byMail, about, sigstoretest.Form{Unlogged: true, Chain: true, Version: "0.2"})), ""},
		{"it rejects an expired certificate without a log", pki, sigstore.Identity{Email: alice}, signed(s.Classic(issue(t, s, expired), claimed, unlogged)), "the certificate was not valid at 2026-03-02T12:00:00Z"},
		{"it accepts an expired certificate with a log entry of its time", withLog, sigstore.Identity{Email: alice}, signed(s.Classic(issue(t, s, expired), claimed, sigstoretest.Form{})), ""},
		{"it rejects an expired certificate with an untrusted log", pki, sigstore.Identity{Email: alice}, signed(s.Classic(issue(t, s, expired), claimed, sigstoretest.Form{})), "the certificate was not valid at"},
		{"it rejects another email address", pki, sigstore.Identity{Email: "bob@example.com"}, signed(s.Classic(byMail, claimed, unlogged)), `the certificate is for ["alice@example.com"], expected email bob@example.com`},
		{"it rejects another host name", pki, sigstore.Identity{Hostname: "evil.example.com"}, signed(s.Classic(issue(t, s, host), claimed, unlogged)), "expected host name evil.example.com"},
		{"it rejects one of two subjects", pki, sigstore.Identity{Email: alice, Hostname: "build.example.com"}, signed(s.Classic(byMail, claimed, unlogged)), "expected email alice@example.com, host name build.example.com"},
		{"it rejects another authority", pki, sigstore.Identity{Email: alice}, signed(other.Classic(issue(t, other, year), claimed, chained)), "certificate signed by unknown authority"},
		{"it rejects a missing chain", rootsOnly, sigstore.Identity{Email: alice}, signed(s.Classic(byMail, claimed, unlogged)), "certificate signed by unknown authority"},
	} {
		t.Run(test.name, func(t *testing.T) {
			evidence, err := verifyAttached(t, sigstore.Authority{TrustRoot: trustIn(t, s, test.root), Identities: []sigstore.Identity{test.identity}}, image(), test.found)
			if test.refusal != "" {
				require.ErrorContains(t, err, test.refusal)
				return
			}
			require.NoError(t, err)
			assert.Empty(t, evidence.Issuer)
			assert.Contains(t, []string{alice, "build.example.com"}, evidence.Identity)
		})
	}
}
