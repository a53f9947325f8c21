package verify_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"iter"
	"strings"

	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/policy"
)

// attachedTo is a registry with one signature.
type attachedTo struct{ signature release.Attachment }

func (a attachedTo) Attachments(context.Context, release.Image) iter.Seq2[release.Attachment, error] {
	return func(yield func(release.Attachment, error) bool) { yield(a.signature, nil) }
}

// signWith returns a signature of a digest as cosign attaches it to an image.
func signWith(key *ecdsa.PrivateKey, digest release.Digest) (release.Attachment, error) {
	claim := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":"registry.example/release"},`+
		`"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`, digest)
	sum := sha256.Sum256(claim)
	signature, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
	return release.Attachment{
		Store: "registry.example/release:sha256-….sig", MediaType: "application/vnd.dev.cosign.simplesigning.v1+json", Payload: claim,
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(signature)},
	}, err
}

func ExampleVerifier_Verify() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		fmt.Println(err)
		return
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		fmt.Println(err)
		return
	}
	trust, err := policy.Parse("platform.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
	if err != nil {
		fmt.Println(err)
		return
	}
	signed := release.Digest("sha256:" + strings.Repeat("1", 64))
	signature, err := signWith(key, signed)
	if err != nil {
		fmt.Println(err)
		return
	}
	verifier, err := verify.New(trust, verify.Sources{Attachments: attachedTo{signature}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, digest := range []release.Digest{signed, release.Digest("sha256:" + strings.Repeat("2", 64))} {
		evidence, err := verifier.Verify(context.Background(), release.Image{Pullspec: "registry.example/release:1.2.0", Digest: digest})
		fmt.Println(len(evidence), err == nil)
		for _, e := range evidence {
			fmt.Println("signed with", e.Method, "found in", e.Store)
		}
	}
	// Output:
	// 1 true
	// signed with sigstore found in registry.example/release:sha256-….sig
	// 0 false
}
