package verify_test

import (
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/test/fixture"
)

const (
	workflow = "https://github.com/platform/release/.github/workflows/build.yaml@refs/heads/main"
	actions  = "https://token.actions.githubusercontent.com"
	alice    = "alice@example.com"
	accounts = "https://accounts.example.com"
)

func newSigstore(t testing.TB) *fixture.Sigstore {
	t.Helper()
	s, err := fixture.NewSigstore(today)
	require.NoError(t, err)
	return s
}

func issue(t testing.TB, s *fixture.Sigstore, subject fixture.SigstoreSubject) *fixture.SigstoreSigner {
	t.Helper()
	signer, err := s.Issue(subject)
	require.NoError(t, err)
	return signer
}

func ci(t testing.TB, s *fixture.Sigstore) *fixture.SigstoreSigner {
	t.Helper()
	return issue(t, s, fixture.SigstoreSubject{URI: workflow, Issuer: actions})
}

func attached(t testing.TB) func(release.Attachment, error) release.Attachment {
	return func(a release.Attachment, err error) release.Attachment {
		t.Helper()
		require.NoError(t, err)
		return a
	}
}

// trustIn trusts all that the deployment has.
func trustIn(t testing.TB, s *fixture.Sigstore, change ...func(*verify.TrustRootOptions)) verify.TrustRoot {
	t.Helper()
	o := verify.TrustRootOptions{
		Roots: s.Roots(), Intermediates: s.Intermediates(), LogKeys: s.LogKey(), CertificateLogKeys: s.CertificateLogKey(),
	}
	for _, c := range change {
		c(&o)
	}
	root, err := verify.NewTrustRoot(o)
	require.NoError(t, err)
	return root
}

func byWorkflow() []verify.Identity {
	return []verify.Identity{{Issuer: actions, URI: workflow}}
}

// verifyAttached verifies an image against one authority and what is attached to it.
func verifyAttached(t testing.TB, a verify.Authority, img release.Image, found ...release.Attachment) ([]release.Evidence, error) {
	t.Helper()
	if a.Name == "" {
		a.Name = "ci"
	}
	return newVerifier(t, verify.Policy{Authorities: []verify.Authority{a}},
		verify.Sources{Attachments: attachments{found: found}}).Verify(t.Context(), img)
}

func TestKeylessAccepts(t *testing.T) {
	s := newSigstore(t)
	signed := attached(t)
	inline := trustIn(t, s)
	document := []byte(`{"schemaVersion":2}`)
	sum := sha256.Sum256(document)
	manifestImage := image()
	manifestImage.Digest = release.Digest(fmt.Sprintf("sha256:%x", sum))
	file, err := s.TrustedRoot()
	require.NoError(t, err)
	fromFile, err := verify.ParseTrustRoot(file)
	require.NoError(t, err)
	signer := ci(t, s)
	about := []byte(statement(digest, verify.SignPredicate))
	claimed := []byte(simpleSigning(digest))
	several := strings.Replace(string(about), `"subject":[`, `"subject":[{"name":"another","digest":{"sha256":"`+otherDigest.Hex()+`"}},`, 1)

	for _, test := range []struct {
		name       string
		image      release.Image
		attachment release.Attachment
	}{
		{"the classic form", image(), signed(s.Classic(signer, claimed, fixture.SigstoreForm{}))},
		{"the classic form with a chain", image(), signed(s.Classic(signer, claimed, fixture.SigstoreForm{Chain: true}))},
		{"a bundle 0.3", image(), signed(s.Statement(signer, about, fixture.SigstoreForm{}))},
		{"a bundle 0.3 with a chain", image(), signed(s.Statement(signer, about, fixture.SigstoreForm{Chain: true}))},
		{"a bundle 0.2", image(), signed(s.Statement(signer, about, fixture.SigstoreForm{Version: "0.2"}))},
		{"a bundle 0.1", image(), signed(s.Statement(signer, about, fixture.SigstoreForm{Version: "0.1"}))},
		{"a bundle with a signature of the image manifest", manifestImage, signed(s.Message(signer, document, fixture.SigstoreForm{}))},
		{"a statement about several subjects, of which this is one", image(), signed(s.Statement(signer, []byte(several), fixture.SigstoreForm{}))},
		{"a certificate for a P-384 key", image(), signed(s.Statement(issue(t, s, fixture.SigstoreSubject{
			URI: workflow, Issuer: actions, Curve: elliptic.P384(),
		}), about, fixture.SigstoreForm{}))},
		{"a P-384 key in the classic form, which hashes with SHA-256", image(), signed(s.Classic(issue(t, s, fixture.SigstoreSubject{
			URI: workflow, Issuer: actions, Curve: elliptic.P384(),
		}), claimed, fixture.SigstoreForm{}))},
	} {
		for rootName, root := range map[string]verify.TrustRoot{"parts": inline, "a trusted_root.json": fromFile} {
			t.Run("it accepts "+test.name+" by "+rootName, func(t *testing.T) {
				evidence, err := verifyAttached(t, verify.Authority{TrustRoot: root, Identities: byWorkflow()}, test.image, test.attachment)
				require.NoError(t, err)
				require.Len(t, evidence, 1)
				e := evidence[0]
				assert.Equal(t, "ci", e.Root)
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

func TestKeylessIdentities(t *testing.T) {
	s := newSigstore(t)
	root := trustIn(t, s)
	byURI := attached(t)(s.Classic(ci(t, s), []byte(simpleSigning(digest)), fixture.SigstoreForm{}))
	byMail := attached(t)(s.Classic(issue(t, s, fixture.SigstoreSubject{Email: alice, Issuer: accounts}), []byte(simpleSigning(digest)), fixture.SigstoreForm{}))
	const got = `the certificate is for ["` + workflow + `"] by issuer "` + actions + `", expected `
	for _, test := range []struct {
		name     string
		found    release.Attachment
		identity verify.Identity
		refusal  string
	}{
		{"it accepts the URI", byURI, verify.Identity{Issuer: actions, URI: workflow}, ""},
		{"it accepts a URI that matches", byURI, verify.Identity{Issuer: actions, SubjectRegexp: `https://github\.com/platform/release/.*`}, ""},
		{"it accepts an issuer that matches", byURI, verify.Identity{IssuerRegexp: `https://.*\.githubusercontent\.com`, URI: workflow}, ""},
		{"it accepts the email address", byMail, verify.Identity{Issuer: accounts, Email: alice}, ""},
		{"it refuses another issuer", byURI, verify.Identity{Issuer: accounts, URI: workflow}, got + "URI " + workflow + ", issuer " + accounts},
		{"it refuses another issuer of a regular expression", byURI, verify.Identity{IssuerRegexp: "https://acc.*", URI: workflow}, got},
		{"it refuses an issuer that matches only in part", byURI, verify.Identity{IssuerRegexp: "https://token", URI: workflow}, got},
		{"it refuses another URI", byURI, verify.Identity{Issuer: actions, URI: strings.Replace(workflow, "main", "evil", 1)}, got},
		{"it refuses a URI that matches only in part", byURI, verify.Identity{Issuer: actions, SubjectRegexp: `https://github\.com/platform/release`}, got},
		{"it refuses a branch of a regular expression that matches only in part", byURI, verify.Identity{Issuer: actions, SubjectRegexp: `x|https://github`}, got},
		{"it refuses an email address where a URI is wanted", byMail, verify.Identity{Issuer: accounts, URI: alice}, `the certificate is for ["` + alice + `"]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			evidence, err := verifyAttached(t, verify.Authority{TrustRoot: root, Identities: []verify.Identity{test.identity}}, image(), test.found)
			if test.refusal == "" {
				require.NoError(t, err)
				assert.Len(t, evidence, 1)
				return
			}
			require.ErrorIs(t, err, verify.ErrUnverified)
			assert.ErrorContains(t, err, test.refusal)
		})
	}

	_, err := verifyAttached(t, verify.Authority{TrustRoot: root, Identities: []verify.Identity{
		{Issuer: accounts, Email: "bob@example.com"}, {Issuer: accounts, Email: alice},
	}}, image(), byMail)
	require.NoError(t, err, "one identity of several is enough")
}

// editJSON changes one value in a document, by the path to it.
func editJSON(t testing.TB, a release.Attachment, change func(any) any, path ...any) release.Attachment {
	t.Helper()
	var document any
	require.NoError(t, json.Unmarshal(a.Payload, &document))
	at := document
	for _, step := range path[:len(path)-1] {
		switch s := step.(type) {
		case string:
			at = at.(map[string]any)[s]
		case int:
			at = at.([]any)[s]
		}
		require.NotNil(t, at, "%v of %v", step, path)
	}
	last := path[len(path)-1]
	switch s := last.(type) {
	case string:
		object := at.(map[string]any)
		if value := change(object[s]); value == nil {
			delete(object, s)
		} else {
			object[s] = value
		}
	case int:
		list := at.([]any)
		list[s] = change(list[s])
	}
	payload, err := json.Marshal(document)
	require.NoError(t, err)
	a.Payload = payload
	return a
}

func flip(t testing.TB) func(any) any {
	return func(v any) any {
		t.Helper()
		data, err := base64.StdEncoding.DecodeString(v.(string))
		require.NoError(t, err)
		data[len(data)-1] ^= 1
		return base64.StdEncoding.EncodeToString(data)
	}
}

func drop(any) any { return nil }

func annotated(a release.Attachment, key, value string) release.Attachment {
	a.Annotations = maps.Clone(a.Annotations)
	a.Annotations[key] = value
	return a
}

func TestKeylessRefuses(t *testing.T) {
	s, other := newSigstore(t), newSigstore(t)
	signed := attached(t)
	signer := ci(t, s)
	about := []byte(statement(digest, verify.SignPredicate))
	claimed := []byte(simpleSigning(digest))
	good := signed(s.Statement(signer, about, fixture.SigstoreForm{}))
	classic := signed(s.Classic(signer, claimed, fixture.SigstoreForm{}))
	entry := []any{"verificationMaterial", "tlogEntries", 0}
	proof := slices.Concat(entry, []any{"inclusionProof"})
	path := func(base []any, steps ...any) []any { return slices.Concat(base, steps) }
	late := fixture.SigstoreForm{LoggedAt: today.Add(time.Hour)}
	unlogged := fixture.SigstoreForm{Unlogged: true}
	replayed := signed(s.Statement(signer, []byte(statement(otherDigest, verify.SignPredicate)), fixture.SigstoreForm{}))
	subjects := `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha512":"` + digest.Hex() + `"}},{"digest":{"sha256":"` +
		otherDigest.Hex() + `"}}],"predicateType":"` + verify.SignPredicate + `","predicate":{}}`
	anotherEntry := func(any) any {
		var document map[string]any
		require.NoError(t, json.Unmarshal(replayed.Payload, &document))
		return document["verificationMaterial"].(map[string]any)["tlogEntries"]
	}

	for _, test := range []struct {
		name  string
		root  func(*verify.TrustRootOptions)
		found release.Attachment
		want  string
	}{
		{"a signature of another digest, replayed", nil, replayed, "the signed statement is not about this digest"},
		{"a document about another digest, replayed", nil, signed(s.Classic(signer, []byte(simpleSigning(otherDigest)), fixture.SigstoreForm{})), "the signed claim is about digest"},
		{"a statement that says something else", nil, signed(s.Statement(signer, []byte(statement(digest, "https://slsa.dev/provenance/v1")), fixture.SigstoreForm{})), `the signed statement is of type "https://slsa.dev/provenance/v1"`},
		{"a statement about other subjects", nil, signed(s.Statement(signer, []byte(subjects), fixture.SigstoreForm{})), "the signed statement is not about this digest"},
		{"a bundle without a log entry", nil, signed(s.Statement(signer, about, unlogged)), "no entry of it in a transparency log that is trusted"},
		{"the classic form without a log entry", nil, signed(s.Classic(signer, claimed, unlogged)), "no entry of it in a transparency log that is trusted"},
		{"a log entry after the certificate had expired", nil, signed(s.Statement(signer, about, late)), "integrated time outside certificate validity"},
		{"a log entry after the certificate had expired, classic", nil, signed(s.Classic(signer, claimed, late)), "integrated time outside certificate validity"},
		{"a log that is not trusted", func(o *verify.TrustRootOptions) { o.LogKeys = other.LogKey() }, good, "no entry of it in a transparency log that is trusted"},
		{"a log that is not trusted, classic", func(o *verify.TrustRootOptions) { o.LogKeys = other.LogKey() }, classic, "no entry of it in a transparency log that is trusted"},
		{"an authority that is not trusted", func(o *verify.TrustRootOptions) { o.Roots, o.Intermediates = other.Roots(), other.Intermediates() }, good, "certificate signed by unknown authority"},
		{"an authority that is not trusted, although the signature brings its chain", func(o *verify.TrustRootOptions) { o.Roots, o.Intermediates = other.Roots(), nil }, signed(s.Classic(signer, claimed, fixture.SigstoreForm{Chain: true})), "certificate signed by unknown authority"},
		{"a certificate whose intermediate nobody brings", func(o *verify.TrustRootOptions) { o.Intermediates = nil }, good, "certificate signed by unknown authority"},
		{"a certificate log that is not trusted", func(o *verify.TrustRootOptions) { o.CertificateLogKeys = other.CertificateLogKey() }, good, "no certificate log that is trusted knows the certificate"},
		{"a certificate that is in no certificate log", nil, signed(s.Statement(issue(t, s, fixture.SigstoreSubject{URI: workflow, Issuer: actions, Unlogged: true}), about, fixture.SigstoreForm{})), "no certificate log that is trusted knows the certificate"},
		{"a promise of the log that is tampered with", nil, editJSON(t, good, flip(t), path(entry, "inclusionPromise", "signedEntryTimestamp")...), "no entry of it in a transparency log that is trusted"},
		{"another time than the log promised", nil, editJSON(t, good, func(any) any { return fmt.Sprint(today.Add(2 * time.Minute).Unix()) }, path(entry, "integratedTime")...), "no entry of it in a transparency log that is trusted"},
		{"a proof of inclusion that is tampered with", nil, editJSON(t, good, flip(t), path(proof, "hashes", 0)...), "no entry of it in a transparency log that is trusted"},
		{"a proof for another root", nil, editJSON(t, good, flip(t), path(proof, "rootHash")...), "no entry of it in a transparency log that is trusted"},
		{"a checkpoint that is tampered with", nil, editJSON(t, good, func(v any) any { return strings.Replace(v.(string), "\n2\n", "\n3\n", 1) }, path(proof, "checkpoint", "envelope")...), "no entry of it in a transparency log that is trusted"},
		{"the log entry of another signature", nil, editJSON(t, good, anotherEntry, "verificationMaterial", "tlogEntries"), "no entry of it in a transparency log that is trusted"},
		{"a proof without a promise, which tells no time", nil, editJSON(t, good, drop, path(entry, "inclusionPromise")...), "nobody trusted says when it was signed"},
		{"an envelope that is tampered with", nil, editJSON(t, good, func(any) any {
			return base64.StdEncoding.EncodeToString([]byte(strings.Replace(string(about), "predicate\":{}", "predicate\":{ }", 1)))
		}, "dsseEnvelope", "payload"), "does not match"},
		{"a bare key", nil, envelope(t, newKey(t, "P-256"), string(about)), "signed with a bare key, not with a certificate"},
		{"a certificate that does not parse", nil, editJSON(t, good, func(any) any { return "AAAA" }, "verificationMaterial", "certificate", "rawBytes"), "reading its certificates"},
		{"a certificate annotation that is none", nil, annotated(classic, verify.CertificateAnnotation, "x"), "holds no PEM certificate"},
		{"a chain annotation with a private key", nil, annotated(classic, verify.ChainAnnotation, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), "holds a PEM PRIVATE KEY"},
		{"a long chain", nil, annotated(classic, verify.ChainAnnotation, strings.Repeat(string(s.Roots()), 8)), "it brings 9 certificates, at most 8"},
		{"a log annotation that is none", nil, annotated(classic, verify.LogAnnotation, "{"), "reading annotation dev.sigstore.cosign/bundle"},
		{"a log annotation without a body", nil, annotated(classic, verify.LogAnnotation, "{}"), "reading annotation dev.sigstore.cosign/bundle"},
		{"a timestamp annotation that is none", nil, annotated(classic, verify.TimestampAnnotation, "{"), "reading annotation dev.sigstore.cosign/rfc3161timestamp"},
	} {
		t.Run("it refuses "+test.name, func(t *testing.T) {
			var change []func(*verify.TrustRootOptions)
			if test.root != nil {
				change = append(change, test.root)
			}
			_, err := verifyAttached(t, verify.Authority{TrustRoot: trustIn(t, s, change...), Identities: byWorkflow()}, image(), test.found)
			require.ErrorIs(t, err, verify.ErrUnverified)
			require.ErrorContains(t, err, "against certificate identities: ci; signatures attached to the image: ")
			assert.ErrorContains(t, err, test.want)
		})
	}

	_, err := verifyAttached(t, verify.Authority{TrustRoot: trustIn(t, s), Identities: byWorkflow()}, image(), good, classic)
	require.NoError(t, err, "what the refused ones were made of is fine")
}

func TestCertificatesOfAPKI(t *testing.T) {
	s, other := newSigstore(t), newSigstore(t)
	signed := attached(t)
	year := fixture.SigstoreSubject{Email: alice, NotBefore: today, NotAfter: today.AddDate(1, 0, 0), Unlogged: true}
	byMail := issue(t, s, year)
	host := year
	host.Email, host.Hostname = "", "build.example.com"
	expired := year
	expired.NotAfter = today.Add(time.Hour)
	pki := func(o *verify.TrustRootOptions) { o.LogKeys, o.CertificateLogKeys = nil, nil }
	claimed, about := []byte(simpleSigning(digest)), []byte(statement(digest, verify.SignPredicate))
	unlogged, chained := fixture.SigstoreForm{Unlogged: true}, fixture.SigstoreForm{Unlogged: true, Chain: true}
	rootsOnly := func(o *verify.TrustRootOptions) { pki(o); o.Intermediates = nil }
	withLog := func(o *verify.TrustRootOptions) { o.CertificateLogKeys = nil }

	for _, test := range []struct {
		name     string
		root     func(*verify.TrustRootOptions)
		identity verify.Identity
		found    release.Attachment
		refusal  string
	}{
		{"it accepts an email address", pki, verify.Identity{Email: alice}, signed(s.Classic(byMail, claimed, unlogged)), ""},
		{"it accepts a host name", pki, verify.Identity{Hostname: "build.example.com"}, signed(s.Classic(issue(t, s, host), claimed, unlogged)), ""},
		{"it accepts a bundle", pki, verify.Identity{Email: alice}, signed(s.Statement(byMail, about, unlogged)), ""},
		{"it accepts a chain that the signature brings", rootsOnly, verify.Identity{Email: alice}, signed(s.Classic(byMail, claimed, chained)), ""},
		{"it accepts a chain that the bundle brings", rootsOnly, verify.Identity{Email: alice}, signed(s.Statement(byMail, about, chained)), ""},
		{"it accepts an old bundle's chain", rootsOnly, verify.Identity{Email: alice}, signed(s.Statement(byMail, about, fixture.SigstoreForm{Unlogged: true, Chain: true, Version: "0.2"})), ""},
		{"it refuses an expired certificate without a log", pki, verify.Identity{Email: alice}, signed(s.Classic(issue(t, s, expired), claimed, unlogged)), "the certificate was not valid at 2026-03-02T12:00:00Z"},
		{"it accepts an expired certificate with a log entry of its time", withLog, verify.Identity{Email: alice}, signed(s.Classic(issue(t, s, expired), claimed, fixture.SigstoreForm{})), ""},
		{"it refuses an expired certificate with a log that is not trusted for anything", pki, verify.Identity{Email: alice}, signed(s.Classic(issue(t, s, expired), claimed, fixture.SigstoreForm{})), "the certificate was not valid at"},
		{"it refuses another email address", pki, verify.Identity{Email: "bob@example.com"}, signed(s.Classic(byMail, claimed, unlogged)), `the certificate is for ["alice@example.com"], expected email bob@example.com`},
		{"it refuses another host name", pki, verify.Identity{Hostname: "evil.example.com"}, signed(s.Classic(issue(t, s, host), claimed, unlogged)), "expected host name evil.example.com"},
		{"it refuses one of two subjects", pki, verify.Identity{Email: alice, Hostname: "build.example.com"}, signed(s.Classic(byMail, claimed, unlogged)), "expected email alice@example.com, host name build.example.com"},
		{"it refuses another authority", pki, verify.Identity{Email: alice}, signed(other.Classic(issue(t, other, year), claimed, chained)), "certificate signed by unknown authority"},
		{"it refuses a chain that nobody brings", rootsOnly, verify.Identity{Email: alice}, signed(s.Classic(byMail, claimed, unlogged)), "certificate signed by unknown authority"},
	} {
		t.Run(test.name, func(t *testing.T) {
			evidence, err := verifyAttached(t, verify.Authority{TrustRoot: trustIn(t, s, test.root), Identities: []verify.Identity{test.identity}}, image(), test.found)
			if test.refusal != "" {
				require.ErrorIs(t, err, verify.ErrUnverified)
				require.ErrorContains(t, err, test.refusal)
				return
			}
			require.NoError(t, err)
			require.Len(t, evidence, 1)
			assert.Empty(t, evidence[0].Issuer)
			assert.Contains(t, []string{alice, "build.example.com"}, evidence[0].Identity)
		})
	}
}

func TestKeysWithALog(t *testing.T) {
	s, other := newSigstore(t), newSigstore(t)
	signed := attached(t)
	signer, err := fixture.NewSigstoreSigner()
	require.NoError(t, err)
	claimed, about := []byte(simpleSigning(digest)), []byte(statement(digest, verify.SignPredicate))
	logOf := func(s *fixture.Sigstore) *verify.TrustRoot {
		root, err := verify.NewTrustRoot(verify.TrustRootOptions{LogKeys: s.LogKey()})
		require.NoError(t, err)
		return &root
	}
	for _, test := range []struct {
		name    string
		log     *verify.TrustRoot
		found   release.Attachment
		refusal string
	}{
		{"it accepts the classic form with an entry", logOf(s), signed(s.Classic(signer, claimed, fixture.SigstoreForm{})), ""},
		{"it accepts a bundle with an entry", logOf(s), signed(s.Statement(signer, about, fixture.SigstoreForm{})), ""},
		{"it accepts a bundle with a proof and no promise", logOf(s), signed(s.Statement(signer, about, fixture.SigstoreForm{NoPromise: true})), ""},
		{"it accepts a signature without an entry if no log is asked", nil, signed(s.Classic(signer, claimed, fixture.SigstoreForm{Unlogged: true})), ""},
		{"it accepts an entry of a log that nobody asked for", nil, signed(s.Classic(signer, claimed, fixture.SigstoreForm{})), ""},
		{"it refuses a signature without an entry", logOf(s), signed(s.Classic(signer, claimed, fixture.SigstoreForm{Unlogged: true})), "no entry of it in a transparency log that is trusted"},
		{"it refuses a bundle without an entry", logOf(s), signed(s.Statement(signer, about, fixture.SigstoreForm{Unlogged: true})), "no entry of it in a transparency log that is trusted"},
		{"it refuses another log", logOf(other), signed(s.Classic(signer, claimed, fixture.SigstoreForm{})), "no entry of it in a transparency log that is trusted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			key, err := verify.NewPublicKey("team", signer.PublicKey())
			require.NoError(t, err)
			key.Log = test.log
			evidence, err := newVerifier(t, verify.Policy{SigstoreKeys: []verify.PublicKey{key}},
				verify.Sources{Attachments: attachments{found: []release.Attachment{test.found}}}).Verify(t.Context(), image())
			if test.refusal != "" {
				require.ErrorIs(t, err, verify.ErrUnverified)
				require.ErrorContains(t, err, test.refusal)
				return
			}
			require.NoError(t, err)
			if test.log != nil {
				require.NotNil(t, evidence[0].Log)
				assert.Equal(t, int64(4711), evidence[0].Log.Index)
			}
		})
	}
}

func TestKeyRotation(t *testing.T) {
	before, after, stranger := newKey(t, "P-256"), newKey(t, "Ed25519"), newKey(t, "P-256")
	first, second := publicKey(t, "x", before), publicKey(t, "x", after)
	root, err := verify.NewPublicKey("team", pemOf(t, before), pemOf(t, after))
	require.NoError(t, err)
	for _, test := range []struct {
		name        string
		found       release.Attachment
		fingerprint string
	}{
		{"the key before", tagged(t, before, simpleSigning(digest)), first.Fingerprint()},
		{"the key after", tagged(t, after, simpleSigning(digest)), second.Fingerprint()},
		{"nobody's key", tagged(t, stranger, simpleSigning(digest)), ""},
	} {
		t.Run("it knows "+test.name, func(t *testing.T) {
			evidence, err := newVerifier(t, verify.Policy{SigstoreKeys: []verify.PublicKey{root}},
				verify.Sources{Attachments: attachments{found: []release.Attachment{test.found}}}).Verify(t.Context(), image())
			if test.fingerprint == "" {
				require.ErrorContains(t, err, "not signed with any of these keys")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.fingerprint, evidence[0].KeyID)
		})
	}
	_, err = verify.NewPublicKey("team", pemOf(t, before), pemOf(t, before))
	require.ErrorContains(t, err, "the same key is there twice")
}

func TestSignedIdentity(t *testing.T) {
	key := newKey(t, "P-256")
	const byDigest = "quay.example/platform/release@" + string(digest)
	document := func(reference string) release.Attachment {
		return tagged(t, key, strings.Replace(simpleSigning(digest), "registry.example/platform/release", reference, 1))
	}
	match := func(p configv1.IdentityMatchPolicy) *configv1.PolicyIdentity {
		return &configv1.PolicyIdentity{MatchPolicy: p}
	}
	exactly := match(configv1.IdentityMatchPolicyExactRepository)
	exactly.PolicyMatchExactRepository = &configv1.PolicyMatchExactRepository{Repository: "vendor.example/release"}
	mapped := match(configv1.IdentityMatchPolicyRemapIdentity)
	mapped.PolicyMatchRemapIdentity = &configv1.PolicyMatchRemapIdentity{Prefix: "quay.example/platform", SignedPrefix: "vendor.example"}
	repoDigestOrExact := match(configv1.IdentityMatchPolicyMatchRepoDigestOrExact)
	repository := match(configv1.IdentityMatchPolicyMatchRepository)
	named := strings.Replace(statement(digest, verify.SignPredicate), `[{"digest"`, `[{"name":"quay.example/platform/release","digest"`, 1)

	for _, test := range []struct {
		name     string
		identity *configv1.PolicyIdentity
		pullspec string
		found    release.Attachment
		refusal  string
	}{
		{"no rule takes any name", nil, byDigest, document("evil.example/x"), ""},
		{"the same repository, by digest", repoDigestOrExact, byDigest, document("quay.example/platform/release"), ""},
		{"the same repository with any tag, by digest", repoDigestOrExact, byDigest, document("quay.example/platform/release:1.2.3"), ""},
		{"another repository, by digest", repoDigestOrExact, byDigest, document("quay.example/platform/test"), `it is signed as "quay.example/platform/test", which signedIdentity MatchRepoDigestOrExact does not accept`},
		{"the same tag", repoDigestOrExact, "quay.example/platform/release:1.2.3", document("quay.example/platform/release:1.2.3"), ""},
		{"another tag", repoDigestOrExact, "quay.example/platform/release:1.2.3", document("quay.example/platform/release:1.2.4"), "does not accept"},
		{"no tag where one is asked for", repoDigestOrExact, "quay.example/platform/release:1.2.3", document("quay.example/platform/release"), "does not accept"},
		{"no tag for what is pulled as latest", repoDigestOrExact, "quay.example/platform/release", document("quay.example/platform/release"), "does not accept"},
		{"the tag that is pulled if none is asked for", repoDigestOrExact, "quay.example/platform/release", document("quay.example/platform/release:latest"), ""},
		{"another spelling of the host", repository, "QUAY.example:443/platform/release:1.2.3", document("quay.example/platform/release"), ""},
		{"the repository behind another spelling of a mirror", mapped, "Quay.example/platform/release@" + string(digest), document("vendor.example/release"), ""},
		{"the short form of a name", repository, "docker.io/library/busybox:1", document("busybox"), ""},
		{"the same repository with another tag", repository, "quay.example/platform/release:1.2.3", document("quay.example/platform/release:9"), ""},
		{"another repository", repository, "quay.example/platform/release:1.2.3", document("quay.example/platform/release2"), "does not accept"},
		{"another host", repository, byDigest, document("quay.example.evil/platform/release"), "does not accept"},
		{"the repository that is named", exactly, byDigest, document("vendor.example/release:4"), ""},
		{"the image's own repository where another is named", exactly, byDigest, document("quay.example/platform/release"), "does not accept"},
		{"the repository behind a mirror", mapped, byDigest, document("vendor.example/release"), ""},
		{"the mirror itself", mapped, byDigest, document("quay.example/platform/release"), "does not accept"},
		{"a prefix that ends within a word", mapped, "quay.example/platform2/release@" + string(digest), document("vendor.example2/release"), "does not accept"},
		{"an unmapped repository", mapped, "other.example/release@" + string(digest), document("other.example/release"), ""},
		{"a name that is none", repository, byDigest, document("quay.example/UPPER"), `the signed name "quay.example/UPPER"`},
		{"a bundle, which names nothing", repository, byDigest, envelope(t, key, statement(digest, verify.SignPredicate)), "it names no repository, which signedIdentity MatchRepository asks for"},
		{"a bundle whose subject is named", repository, byDigest, envelope(t, key, named), ""},
		{"a bundle whose subject is named otherwise", repository, "quay.example/other@" + string(digest), envelope(t, key, named), "does not accept"},
		{"a message signature, which names nothing", repository, byDigest, messageBundle(t, signDigest(t, key, digest), digest), "it names no repository"},
	} {
		verb := "it accepts "
		if test.refusal != "" {
			verb = "it refuses "
		}
		t.Run(verb+test.name, func(t *testing.T) {
			root := publicKey(t, "team", key)
			root.SignedIdentity = test.identity
			_, err := newVerifier(t, verify.Policy{SigstoreKeys: []verify.PublicKey{root}},
				verify.Sources{Attachments: attachments{found: []release.Attachment{test.found}}}).
				Verify(t.Context(), release.Image{Pullspec: test.pullspec, Digest: digest})
			if test.refusal == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, verify.ErrUnverified)
			assert.ErrorContains(t, err, test.refusal)
		})
	}
}
