package sigstore_test

import (
	"bytes"
	"crypto"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/options"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
	"github.com/cluster-version/cvo/test/fixture/signing"
	"github.com/cluster-version/cvo/test/fixture/sigstoretest"
)

const digest, otherDigest = signing.Digest, signing.OtherDigest

// Identities in certificates.
const (
	workflow, actions = signing.Workflow, signing.Actions
	alice, accounts   = signing.Alice, signing.Accounts
)

// Short names for functions that make keys and signatures.
var (
	today = signing.Today

	newKey, pemOf, claim, edit              = signing.NewKey, signing.PEM, signing.Claim, signing.Edit
	simpleSigning, statement, tagged, image = signing.SimpleSigning, signing.Statement, signing.Tagged, signing.Image
	newSigstore, issue, ci, attached        = signing.NewSigstore, signing.Issue, signing.CI, signing.Attached
)

func publicKey(t testing.TB, name string, key crypto.Signer) sigstore.PublicKey {
	t.Helper()
	k, err := sigstore.NewPublicKey(name, pemOf(t, key))
	require.NoError(t, err)
	return k
}

func bundleOf(t testing.TB, content map[string]any) release.Attachment {
	t.Helper()
	content["mediaType"] = sigstore.BundleMediaType
	content["verificationMaterial"] = map[string]any{"publicKey": map[string]any{"hint": "any"}}
	data, err := json.Marshal(content)
	require.NoError(t, err)
	return release.Attachment{Store: "registry.example/platform/release@sha256:y", MediaType: sigstore.BundleMediaType, Payload: data}
}

// envelope returns a bundle with a signed statement.
func envelope(t testing.TB, key crypto.Signer, body string) release.Attachment {
	t.Helper()
	signer, err := signature.LoadDefaultSigner(key)
	require.NoError(t, err)
	const payloadType = "application/vnd.in-toto+json"
	sig, err := signer.SignMessage(bytes.NewReader(dsse.PAE(payloadType, []byte(body))))
	require.NoError(t, err)
	return bundleOf(t, map[string]any{"dsseEnvelope": map[string]any{
		"payload": []byte(body), "payloadType": payloadType,
		"signatures": []any{map[string]any{"sig": sig}},
	}})
}

// messageBundle returns a bundle with a signature over the manifest with the given digest.
func messageBundle(t testing.TB, sig []byte, d release.Digest) release.Attachment {
	t.Helper()
	sum, err := hex.DecodeString(d.Hex())
	require.NoError(t, err)
	return bundleOf(t, map[string]any{"messageSignature": map[string]any{
		"signature":     sig,
		"messageDigest": map[string]any{"algorithm": "SHA2_256", "digest": sum},
	}})
}

func signDigest(t testing.TB, key crypto.Signer, d release.Digest) []byte {
	t.Helper()
	sum, err := hex.DecodeString(d.Hex())
	require.NoError(t, err)
	signer, err := signature.LoadSigner(key, crypto.SHA256)
	require.NoError(t, err)
	sig, err := signer.SignMessage(nil, options.WithDigest(sum))
	require.NoError(t, err)
	return sig
}

// trustIn returns a trust root with all parts of the deployment.
func trustIn(t testing.TB, s *sigstoretest.Deployment, change ...func(*sigstore.TrustRootOptions)) sigstore.TrustRoot {
	t.Helper()
	o := sigstore.TrustRootOptions{
		Roots: s.Roots(), Intermediates: s.Intermediates(), LogKeys: s.LogKey(), CertificateLogKeys: s.CertificateLogKey(),
	}
	for _, c := range change {
		c(&o)
	}
	root, err := sigstore.NewTrustRoot(o)
	require.NoError(t, err)
	return root
}

func byWorkflow() []sigstore.Identity {
	return []sigstore.Identity{{Issuer: actions, URI: workflow}}
}

// editJSON changes the value at a path in a document.
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

// changed returns a copy of an object with some fields set, or removed if the value is nil.
func changed(o, fields map[string]any) map[string]any {
	out := maps.Clone(o)
	for k, v := range fields {
		if out[k] = v; v == nil {
			delete(out, k)
		}
	}
	return out
}

// verifyKey checks an attachment against a key.
func verifyKey(k sigstore.PublicKey, img release.Image, found release.Attachment) (release.Evidence, error) {
	s, err := sigstore.Read(found)
	if err != nil {
		return release.Evidence{}, err
	}
	return k.Verify(s, img)
}

// verifyAttached checks an attachment against an authority, one day after it was made.
func verifyAttached(t testing.TB, a sigstore.Authority, img release.Image, found release.Attachment) (release.Evidence, error) {
	t.Helper()
	require.NoError(t, a.Validate())
	s, err := sigstore.Read(found)
	if err != nil {
		return release.Evidence{}, err
	}
	return a.Verify(s, img, today.Add(24*time.Hour))
}
