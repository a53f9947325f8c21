package sign

import (
	"bytes"
	"context"
	"crypto"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify/sigstore"
)

const (
	claimCosign  = "cosign container image signature"
	inTotoType   = "application/vnd.in-toto+json"
	inTotoSchema = "https://in-toto.io/Statement/v1"
)

// Attach determines how a sigstore signature is attached to its image.
type Attach string

const (
	// AttachTag uses the tag sha256-<hex>.sig, which all container runtimes and cosign before version 3 read.
	AttachTag Attach = "tag"
	// AttachReferrer pushes a sigstore bundle as an OCI referrer of the image, like cosign 3.
	AttachReferrer Attach = "referrer"
	// AttachBoth uses both. It is the default, because many readers support only one.
	AttachBoth Attach = "both"
)

// ParseAttach parses an Attach. An empty name selects AttachBoth.
func ParseAttach(s string) (Attach, error) {
	switch a := Attach(s); a {
	case AttachTag, AttachReferrer, AttachBoth:
		return a, nil
	case "":
		return AttachBoth, nil
	}
	return "", fmt.Errorf("unknown attachment %q: use tag, referrer or both", s)
}

// SigstoreOptions configure a sigstore signature.
type SigstoreOptions struct {
	// Reference is the image's name in the claim; default the repository of its pullspec.
	Reference string
	// Attach determines how the signature is attached; default AttachBoth.
	Attach Attach
	// Time is recorded in the claim and the annotations.
	Time time.Time
}

// destination is where signatures of one image are stored, beside the image.
type destination interface {
	// subject returns the descriptor of the image.
	subject(ctx context.Context) (v1.Descriptor, error)
	// tagged returns the image at a tag; ok is false if there is none.
	tagged(ctx context.Context, tag string) (img v1.Image, ok bool, err error)
	// putTagged stores an image at a tag and returns its reference.
	putTagged(ctx context.Context, tag string, img v1.Image) (ref string, err error)
	// putReferrer stores a manifest with a subject, and its blobs, and returns its reference.
	putReferrer(ctx context.Context, manifest []byte, blobs []v1.Layer) (ref string, err error)
}

// Sigstore signs the image's digest and stores the signature beside the image: in its registry, or in its OCI layout. It keeps existing
// signatures. It returns the references of the new signature.
func Sigstore(ctx context.Context, access *registry.Access, image release.Image, key Key, opts SigstoreOptions) ([]string, error) {
	if key.private == nil {
		return nil, errors.New("signing in a registry needs a sigstore key, but this is an OpenPGP key")
	}
	attach, err := ParseAttach(string(opts.Attach))
	if err != nil {
		return nil, err
	}
	to, end, err := openDestination(access, image)
	if err != nil {
		return nil, err
	}
	methods := []struct {
		of   Attach
		push func(context.Context, destination, release.Image, Key, SigstoreOptions) (string, error)
	}{{AttachTag, pushSignatureTag}, {AttachReferrer, pushBundle}}
	var pushed []string
	for _, method := range methods {
		if err != nil || attach != AttachBoth && attach != method.of {
			continue
		}
		var ref string
		if ref, err = method.push(ctx, to, image, key, opts); err == nil {
			pushed = append(pushed, ref)
		}
	}
	if err = errors.Join(err, end()); err != nil {
		return pushed, fmt.Errorf("attaching a signature to %s: %w", image.ByDigest(), err)
	}
	return pushed, nil
}

// openDestination returns the place of an image's signatures. end completes the writing.
func openDestination(access *registry.Access, image release.Image) (to destination, end func() error, err error) {
	if dir, _, ok := layout.SplitReference(image.Pullspec); ok {
		return openFolder(dir, image)
	}
	byDigest, err := digestReference(access, image)
	return inRegistry{access, byDigest}, func() error { return nil }, err
}

// pushSignatureTag adds a layer with the claim to the image at tag sha256-<hex>.sig, like cosign. If two signers push at the same time,
// one signature can be lost, because registries cannot change a tag atomically.
func pushSignatureTag(ctx context.Context, to destination, image release.Image, key Key, opts SigstoreOptions) (string, error) {
	claim, err := claimFor(claimCosign, image, opts.Reference, opts.Time)
	if err != nil {
		return "", err
	}
	signer, err := signature.LoadSigner(key.private, crypto.SHA256)
	if err != nil {
		return "", err
	}
	sig, err := signer.SignMessage(bytes.NewReader(claim))
	if err != nil {
		return "", err
	}
	tag := "sha256-" + image.Digest.Hex() + ".sig"
	base, ok, err := to.tagged(ctx, tag)
	if err != nil {
		return "", err
	}
	if !ok {
		base = mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	}
	signed, err := mutate.Append(base, mutate.Addendum{
		Layer:       static.NewLayer(claim, sigstore.SimpleSigningMediaType),
		Annotations: map[string]string{sigstore.SignatureAnnotation: base64.StdEncoding.EncodeToString(sig)},
	})
	if err != nil {
		return "", err
	}
	return to.putTagged(ctx, tag, signed)
}

// pushBundle stores a sigstore bundle whose subject is the image.
func pushBundle(ctx context.Context, to destination, image release.Image, key Key, opts SigstoreOptions) (string, error) {
	subject, err := to.subject(ctx)
	if err != nil {
		return "", err
	}
	data, err := signBundle(image.Digest, key)
	if err != nil {
		return "", err
	}
	content := static.NewLayer(data, sigstore.BundleMediaType)
	// The media type of the configuration repeats the artifact type for registries that do not support artifact types.
	config := static.NewLayer([]byte("{}"), sigstore.BundleMediaType)
	manifest := v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		ArtifactType:  sigstore.BundleMediaType,
		Subject:       &v1.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size},
		Annotations: map[string]string{
			"dev.sigstore.bundle.content":       "dsse-envelope",
			"dev.sigstore.bundle.predicateType": sigstore.SignPredicate,
			"org.opencontainers.image.created":  opts.Time.UTC().Format(time.RFC3339),
		},
	}
	if manifest.Config, err = layerDescriptor(config); err != nil {
		return "", err
	}
	layer, err := layerDescriptor(content)
	if err != nil {
		return "", err
	}
	manifest.Layers = []v1.Descriptor{layer}
	raw, err := json.Marshal(manifest)
	if err != nil {
		return "", err
	}
	return to.putReferrer(ctx, raw, []v1.Layer{content, config})
}

func layerDescriptor(l v1.Layer) (v1.Descriptor, error) {
	digest, err := l.Digest()
	if err != nil {
		return v1.Descriptor{}, err
	}
	size, err := l.Size()
	if err != nil {
		return v1.Descriptor{}, err
	}
	mediaType, err := l.MediaType()
	return v1.Descriptor{MediaType: mediaType, Digest: digest, Size: size}, err
}

// signBundle returns a sigstore bundle with a signed in-toto statement about the digest, in cosign's format.
func signBundle(digest release.Digest, key Key) ([]byte, error) {
	statement, err := json.Marshal(map[string]any{
		"_type":         inTotoSchema,
		"subject":       []any{map[string]any{"digest": map[string]string{"sha256": digest.Hex()}}},
		"predicateType": sigstore.SignPredicate,
		"predicate":     map[string]any{},
	})
	if err != nil {
		return nil, err
	}
	signer, err := signature.LoadDefaultSigner(key.private)
	if err != nil {
		return nil, err
	}
	sig, err := signer.SignMessage(bytes.NewReader(dsse.PAE(inTotoType, statement)))
	if err != nil {
		return nil, err
	}
	hint, err := keyHint(key)
	if err != nil {
		return nil, err
	}
	b, err := bundle.NewBundle(&protobundle.Bundle{
		MediaType: sigstore.BundleMediaType,
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content: &protobundle.VerificationMaterial_PublicKey{PublicKey: &protocommon.PublicKeyIdentifier{Hint: hint}},
		},
		Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &protodsse.Envelope{
			PayloadType: inTotoType, Payload: statement, Signatures: []*protodsse.Signature{{Sig: sig}},
		}},
	})
	if err != nil {
		return nil, err
	}
	return b.MarshalJSON()
}

// keyHint identifies the key in a bundle like sigstore's clients: by the base64-encoded SHA-256 of its DER encoding.
func keyHint(key Key) (string, error) {
	public, err := key.public.PublicKey()
	if err != nil {
		return "", err
	}
	der, err := cryptoutils.MarshalPublicKeyToDER(public)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return base64.StdEncoding.EncodeToString(sum[:]), nil
}
