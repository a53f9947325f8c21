package sigstore

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"

	"github.com/cluster-version/cvo/pkg/release"
)

// Read parses an attachment of an image in either format.
func Read(a release.Attachment) (*Signature, error) {
	if len(a.Payload) > maxAttachmentSize {
		return nil, fmt.Errorf("larger than %d bytes", maxAttachmentSize)
	}
	read := readClassic
	if strings.HasPrefix(a.MediaType, bundleMediaPrefix) {
		read = readBundle
	}
	s, err := read(a)
	if err != nil {
		return nil, err
	}
	if err := s.readCertificates(); err != nil {
		return nil, err
	}
	return s, s.checkTimestampSize()
}

// checkTimestampSize limits the size of timestamps. They contain certificates, whose keys the library uses before it checks whether they
// are trusted.
func (s *Signature) checkTimestampSize() error {
	timestamps, err := s.Timestamps()
	switch {
	case err != nil:
		return fmt.Errorf("reading its timestamps: %w", err)
	case len(timestamps) > maxTimestamps:
		return fmt.Errorf("it contains %d timestamps, the limit is %d", len(timestamps), maxTimestamps)
	}
	for _, t := range timestamps {
		if len(t) > maxTimestampSize {
			return fmt.Errorf("it contains a timestamp larger than %d bytes", maxTimestampSize)
		}
	}
	return nil
}

// readBundle parses a sigstore bundle, version 0.1 to 0.3.
func readBundle(a release.Attachment) (*Signature, error) {
	s := &Signature{Bundle: &bundle.Bundle{}}
	if err := s.UnmarshalJSON(a.Payload); err != nil {
		// Since version 0.3, a bundle should not contain a chain. But signers with their own PKI include intermediate certificates that
		// way. For earlier versions, the library rejects the option.
		chained := &bundle.Bundle{}
		bundle.AllowCertificateChain()(chained)
		if chained.UnmarshalJSON(a.Payload) != nil {
			return nil, fmt.Errorf("reading sigstore bundle: %w", err)
		}
		s.Bundle = chained
	}
	return s, nil
}

func (s *Signature) readCertificates() error {
	var ders [][]byte
	if c := s.GetVerificationMaterial().GetCertificate(); c != nil {
		ders = append(ders, c.GetRawBytes())
	}
	for _, c := range s.GetVerificationMaterial().GetX509CertificateChain().GetCertificates() {
		ders = append(ders, c.GetRawBytes())
	}
	if len(ders) > maxChain {
		return fmt.Errorf("it contains %d certificates, the limit is %d", len(ders), maxChain)
	}
	for _, der := range ders {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("reading its certificates: %w", err)
		}
		if err := boundedKey(c.PublicKey); err != nil {
			return fmt.Errorf("reading its certificates: %w", err)
		}
		if s.certificate == nil {
			s.certificate = c
		} else {
			s.chain = append(s.chain, c)
		}
	}
	return nil
}

// readClassic parses cosign's classic format (github.com/sigstore/cosign, specs/SIGNATURE_SPEC.md), in which the payload is a claim and
// everything else is in annotations. It converts it to a bundle of version 0.1 with a signature over the claim.
func readClassic(a release.Attachment) (*Signature, error) {
	if _, ok := a.Annotations[SignatureAnnotation]; !ok {
		return nil, fmt.Errorf("not a signature: media type %q, no annotation %s", a.MediaType, SignatureAnnotation)
	}
	sig, err := decodeAnnotation(a, SignatureAnnotation)
	if err != nil {
		return nil, err
	}
	material := &protobundle.VerificationMaterial{}
	if err := classicSigner(a, material); err != nil {
		return nil, err
	}
	if err := classicLogEntry(a, material); err != nil {
		return nil, err
	}
	if err := classicTimestamp(a, material); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(a.Payload)
	b, err := bundle.NewBundle(&protobundle.Bundle{
		MediaType: bundleMediaPrefix + "+json;version=0.1", VerificationMaterial: material,
		Content: &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
			MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: sum[:]},
			Signature:     sig,
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("reading the signature's annotations: %w", err)
	}
	s := &Signature{Bundle: b, document: a.Payload}
	if s.document == nil {
		s.document = []byte{}
	}
	return s, nil
}

func decodeAnnotation(a release.Attachment, key string) ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(a.Annotations[key])
	if err != nil {
		return nil, fmt.Errorf("decoding annotation %s: %w", key, err)
	}
	return data, nil
}

// classicSigner parses the certificate and the chain.
func classicSigner(a release.Attachment, material *protobundle.VerificationMaterial) error {
	if a.Annotations[CertificateAnnotation] == "" {
		material.Content = &protobundle.VerificationMaterial_PublicKey{PublicKey: &protocommon.PublicKeyIdentifier{}}
		return nil
	}
	chain := &protocommon.X509CertificateChain{}
	for _, key := range []string{CertificateAnnotation, ChainAnnotation} {
		rest := []byte(a.Annotations[key])
		for {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			if block.Type != certificatePEM {
				return fmt.Errorf("annotation %s contains a PEM %s, expected a %s", key, block.Type, certificatePEM)
			}
			chain.Certificates = append(chain.Certificates, &protocommon.X509Certificate{RawBytes: block.Bytes})
		}
		if len(chain.Certificates) == 0 {
			return fmt.Errorf("annotation %s contains no PEM certificate", key)
		}
	}
	material.Content = &protobundle.VerificationMaterial_X509CertificateChain{X509CertificateChain: chain}
	return nil
}

// classicLogEntry parses the log entry in cosign's format.
func classicLogEntry(a release.Attachment, material *protobundle.VerificationMaterial) error {
	data, ok := a.Annotations[LogAnnotation]
	if !ok {
		return nil
	}
	fail := func(err error) error { return fmt.Errorf("reading annotation %s: %w", LogAnnotation, err) }
	var written struct {
		SignedEntryTimestamp []byte
		Payload              struct {
			Body           []byte `json:"body"`
			IntegratedTime int64  `json:"integratedTime"`
			LogIndex       int64  `json:"logIndex"`
			LogID          string `json:"logID"`
		}
	}
	if err := json.Unmarshal([]byte(data), &written); err != nil {
		return fail(err)
	}
	id, err := hex.DecodeString(written.Payload.LogID)
	if err != nil {
		return fail(err)
	}
	var kind struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
	}
	if err := json.Unmarshal(written.Payload.Body, &kind); err != nil {
		return fail(err)
	}
	material.TlogEntries = []*protorekor.TransparencyLogEntry{{
		LogIndex: written.Payload.LogIndex, LogId: &protocommon.LogId{KeyId: id},
		KindVersion:       &protorekor.KindVersion{Kind: kind.Kind, Version: kind.APIVersion},
		IntegratedTime:    written.Payload.IntegratedTime,
		InclusionPromise:  &protorekor.InclusionPromise{SignedEntryTimestamp: written.SignedEntryTimestamp},
		CanonicalizedBody: written.Payload.Body,
	}}
	return nil
}

// classicTimestamp parses the timestamp in cosign's format.
func classicTimestamp(a release.Attachment, material *protobundle.VerificationMaterial) error {
	data, ok := a.Annotations[TimestampAnnotation]
	if !ok {
		return nil
	}
	var written struct{ SignedRFC3161Timestamp []byte }
	if err := json.Unmarshal([]byte(data), &written); err != nil {
		return fmt.Errorf("reading annotation %s: %w", TimestampAnnotation, err)
	}
	material.TimestampVerificationData = &protobundle.TimestampVerificationData{
		Rfc3161Timestamps: []*protocommon.RFC3161SignedTimestamp{{SignedTimestamp: written.SignedRFC3161Timestamp}},
	}
	return nil
}
