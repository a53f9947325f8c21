package sigstore_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	sigstoreroot "github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
	"github.com/cluster-version/cvo/test/fixture/sigstoretest"
)

// virtualChain returns the timestamp authority of sigstore-go's test deployment as PEM.
func virtualChain(t testing.TB, v *ca.VirtualSigstore) []byte {
	t.Helper()
	a, ok := v.TimestampingAuthorities()[0].(*sigstoreroot.SigstoreTimestampingAuthority)
	require.True(t, ok)
	var out []byte
	for _, c := range append(append([]*x509.Certificate{a.Leaf}, a.Intermediates...), a.Root) {
		out = append(out, pemCertificate(c)...)
	}
	return out
}

func pemCertificate(c *x509.Certificate) []byte {
	return []byte("-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString(c.Raw) + "\n-----END CERTIFICATE-----\n")
}

// TestTrustedTimestampsAreAccepted uses the system's clock, because the library's timestamp authority does.
func TestTrustedTimestampsAreAccepted(t *testing.T) {
	authority, err := ca.NewVirtualSigstore()
	require.NoError(t, err)
	stranger, err := ca.NewVirtualSigstore()
	require.NoError(t, err)
	s, err := sigstoretest.New(time.Now().Add(-time.Minute))
	require.NoError(t, err)
	signed := attached(t)
	signer := ci(t, s)
	expired := issue(t, s, sigstoretest.Subject{URI: workflow, Issuer: actions, NotBefore: time.Now().Add(-time.Hour)})
	claimed, about := []byte(simpleSigning(digest)), []byte(statement(digest, sigstore.SignPredicate))
	stamped := sigstoretest.Form{Unlogged: true, Timestamp: authority.TimestampResponse}
	onlyTime := func(o *sigstore.TrustRootOptions) {
		o.LogKeys, o.TimestampAuthority = nil, virtualChain(t, authority)
	}
	both := func(o *sigstore.TrustRootOptions) { o.TimestampAuthority = virtualChain(t, authority) }
	ofAnother := func(sig []byte) ([]byte, error) { return authority.TimestampResponse(append(sig, 1)) }
	for _, test := range []struct {
		name    string
		root    func(*sigstore.TrustRootOptions)
		found   release.Attachment
		refusal string
	}{
		{"it accepts a timestamp, classic", onlyTime, signed(s.Classic(signer, claimed, stamped)), ""},
		{"it accepts a timestamp in a bundle", onlyTime, signed(s.Statement(signer, about, stamped)), ""},
		{"it accepts a log entry instead of a timestamp", both, signed(s.Statement(signer, about, sigstoretest.Form{})), ""},
		{"it accepts a log entry without a time if there is a timestamp", both, signed(s.Statement(signer, about, sigstoretest.Form{NoPromise: true, Timestamp: authority.TimestampResponse})), ""},
		{"it rejects a timestamp without the required log entry", both, signed(s.Statement(signer, about, stamped)), "no entry in a trusted transparency log"},
		{"it rejects a signature without a timestamp", onlyTime, signed(s.Statement(signer, about, sigstoretest.Form{})), "no timestamp of a trusted authority: at least one is required"},
		{"it rejects another authority", onlyTime, signed(s.Statement(signer, about, sigstoretest.Form{Unlogged: true, Timestamp: stranger.TimestampResponse})), "no timestamp of a trusted authority"},
		{"it rejects the timestamp of another signature", onlyTime, signed(s.Statement(signer, about, sigstoretest.Form{Unlogged: true, Timestamp: ofAnother})), "no timestamp of a trusted authority"},
		{"it rejects a certificate that had expired at that time", onlyTime, signed(s.Statement(expired, about, stamped)), "the certificate was not valid at"},
	} {
		t.Run(test.name, func(t *testing.T) {
			evidence, err := verifyAttached(t, sigstore.Authority{TrustRoot: trustIn(t, s, test.root), Identities: byWorkflow()}, image(), test.found)
			if test.refusal != "" {
				require.ErrorContains(t, err, test.refusal)
				return
			}
			require.NoError(t, err)
			assert.WithinDuration(t, time.Now(), evidence.SignedAt, 10*time.Minute)
		})
	}
}

// TestTransparencyLogVersion2EntriesVerify uses sigstore-go's test deployment, which writes version 2 of the log.
func TestTransparencyLogVersion2EntriesVerify(t *testing.T) {
	v, err := ca.NewVirtualSigstore()
	require.NoError(t, err)
	logs := map[string]*sigstoreroot.TransparencyLog{}
	for id, log := range v.RekorLogs() {
		log.ID, err = hex.DecodeString(id) // The deployment stores the ID as text.
		require.NoError(t, err)
		logs[id] = log
	}
	trusted, err := sigstoreroot.NewTrustedRoot(sigstoreroot.TrustedRootMediaType01, v.FulcioCertificateAuthorities(), nil, v.TimestampingAuthorities(), logs)
	require.NoError(t, err)
	file, err := trusted.MarshalJSON()
	require.NoError(t, err)
	root, err := sigstore.ParseTrustRoot(file)
	require.NoError(t, err)
	entity, err := v.AttestHashedRekordV2(alice, accounts, []byte(statement(digest, sigstore.SignPredicate)))
	require.NoError(t, err)
	found := bundleOfEntity(t, entity)
	authority := sigstore.Authority{TrustRoot: root, Identities: []sigstore.Identity{{Issuer: accounts, Email: alice}}}

	evidence, err := verifyAttached(t, authority, image(), found)
	require.NoError(t, err)
	assert.Equal(t, alice, evidence.Identity)
	require.NotNil(t, evidence.Log)
	assert.Equal(t, int64(0), evidence.Log.Index)

	larger := func(v any) any { return strings.Replace(v.(string), "\n1\n", "\n2\n", 1) }
	_, err = verifyAttached(t, authority, image(), editJSON(t, found, larger, "verificationMaterial", "tlogEntries", 0, "inclusionProof", "checkpoint", "envelope"))
	require.ErrorContains(t, err, "no entry in a trusted transparency log")
	_, err = verifyAttached(t, authority, image(), editJSON(t, found, drop, "verificationMaterial", "timestampVerificationData"))
	require.ErrorContains(t, err, "no trusted source confirms the time of the signature")
	other := image()
	other.Digest = otherDigest
	_, err = verifyAttached(t, authority, other, found)
	require.ErrorContains(t, err, "the signed statement is not about this digest")
}

func bundleOfEntity(t testing.TB, e *ca.TestEntity) release.Attachment {
	t.Helper()
	content, err := e.VerificationContent()
	require.NoError(t, err)
	signature, err := e.SignatureContent()
	require.NoError(t, err)
	envelope := signature.EnvelopeContent().RawEnvelope()
	payload, err := envelope.DecodeB64Payload()
	require.NoError(t, err)
	entries, err := e.TlogEntries()
	require.NoError(t, err)
	stamps, err := e.Timestamps()
	require.NoError(t, err)
	b, err := bundle.NewBundle(&protobundle.Bundle{
		MediaType: sigstore.BundleMediaType,
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content:     &protobundle.VerificationMaterial_Certificate{Certificate: &protocommon.X509Certificate{RawBytes: content.Certificate().Raw}},
			TlogEntries: []*protorekor.TransparencyLogEntry{entries[0].TransparencyLogEntry()},
			TimestampVerificationData: &protobundle.TimestampVerificationData{
				Rfc3161Timestamps: []*protocommon.RFC3161SignedTimestamp{{SignedTimestamp: stamps[0]}},
			},
		},
		Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &protodsse.Envelope{
			PayloadType: envelope.PayloadType, Payload: payload, Signatures: []*protodsse.Signature{{Sig: signature.Signature()}},
		}},
	})
	require.NoError(t, err)
	data, err := b.MarshalJSON()
	require.NoError(t, err)
	return release.Attachment{Store: "referrer", MediaType: sigstore.BundleMediaType, Payload: data}
}
