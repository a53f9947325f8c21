package assemble

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

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
)

const (
	claimCosign  = "cosign container image signature"
	inTotoType   = "application/vnd.in-toto+json"
	inTotoSchema = "https://in-toto.io/Statement/v1"
)

// Attach says how a sigstore signature is kept beside its image.
type Attach string

const (
	// AttachTag puts it under the tag sha256-<hex>.sig, which every container runtime and cosign before 3 read.
	AttachTag Attach = "tag"
	// AttachReferrer puts a sigstore bundle beside the image as an OCI referrer, as cosign 3 does.
	AttachReferrer Attach = "referrer"
	// AttachBoth does both; the default, because readers of only one of them are common.
	AttachBoth Attach = "both"
)

// ParseAttach reads the name of an Attach; the empty name is AttachBoth.
func ParseAttach(s string) (Attach, error) {
	switch a := Attach(s); a {
	case AttachTag, AttachReferrer, AttachBoth:
		return a, nil
	case "":
		return AttachBoth, nil
	}
	return "", fmt.Errorf("unknown way to attach a signature %q: use tag, referrer or both", s)
}

// SigstoreOptions say what a sigstore signature states and where it goes.
type SigstoreOptions struct {
	// Reference is the name that the claim gives the image; default the repository of its pullspec.
	Reference string
	// Attach defaults to AttachBoth.
	Attach Attach
	// Time is written into the claim and the annotations.
	Time time.Time
}

// SignSigstore signs the image's digest and pushes the signature into the image's repository. It returns the
// references under which the signature was put. Signatures of others that are there stay.
func SignSigstore(ctx context.Context, access *registry.Access, image release.Image, key SigningKey, opts SigstoreOptions) ([]string, error) {
	if key.private == nil {
		return nil, errors.New("signing in a registry takes a sigstore key, this is an OpenPGP key")
	}
	attach, err := ParseAttach(string(opts.Attach))
	if err != nil {
		return nil, err
	}
	subject, err := digestReference(access, image)
	if err != nil {
		return nil, err
	}
	ways := []struct {
		of   Attach
		push func(context.Context, *registry.Access, name.Digest, release.Image, SigningKey, SigstoreOptions) (string, error)
	}{{AttachTag, pushSignatureTag}, {AttachReferrer, pushBundle}}
	var pushed []string
	for _, way := range ways {
		if attach != AttachBoth && attach != way.of {
			continue
		}
		ref, err := way.push(ctx, access, subject, image, key, opts)
		if err != nil {
			return pushed, fmt.Errorf("attaching a signature to %s: %w", subject, err)
		}
		pushed = append(pushed, ref)
	}
	return pushed, nil
}

// pushSignatureTag adds a layer with the claim to the image sha256-<hex>.sig, as cosign does. Two signers at the same
// moment can lose one signature: a tag cannot be changed atomically in a registry.
func pushSignatureTag(ctx context.Context, access *registry.Access, subject name.Digest, image release.Image, key SigningKey, opts SigstoreOptions) (string, error) {
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
	tag := subject.Context().Tag("sha256-" + image.Digest.Hex() + ".sig")
	base, err := signatureImage(ctx, access, tag)
	if err != nil {
		return "", err
	}
	signed, err := mutate.Append(base, mutate.Addendum{
		Layer:       static.NewLayer(claim, verify.SimpleSigningMediaType),
		Annotations: map[string]string{verify.SignatureAnnotation: base64.StdEncoding.EncodeToString(sig)},
	})
	if err != nil {
		return "", err
	}
	if err := remote.Write(tag, signed, remoteOptions(ctx, access)...); err != nil {
		return "", fmt.Errorf("pushing %s: %w", tag, err)
	}
	return tag.String(), nil
}

// signatureImage returns the image that holds earlier signatures, or an empty one.
func signatureImage(ctx context.Context, access *registry.Access, tag name.Tag) (v1.Image, error) {
	img, err := remote.Image(tag, remoteOptions(ctx, access)...)
	switch {
	case err == nil:
		return img, nil
	case registry.IsNotFound(err):
		return mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), nil
	}
	return nil, fmt.Errorf("reading %s: %w", tag, err)
}

// pushBundle pushes a sigstore bundle that refers to the image.
func pushBundle(ctx context.Context, access *registry.Access, subject name.Digest, image release.Image, key SigningKey, opts SigstoreOptions) (string, error) {
	remoteOptions := remoteOptions(ctx, access)
	desc, err := remote.Head(subject, remoteOptions...)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", subject, err)
	}
	data, err := signBundle(image.Digest, key)
	if err != nil {
		return "", err
	}
	content := static.NewLayer(data, verify.BundleMediaType)
	// The type of the configuration repeats the artifact type for registries that do not know artifact types.
	config := static.NewLayer([]byte("{}"), verify.BundleMediaType)
	manifest := v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		ArtifactType:  verify.BundleMediaType,
		Subject:       &v1.Descriptor{MediaType: desc.MediaType, Digest: desc.Digest, Size: desc.Size},
		Annotations: map[string]string{
			"dev.sigstore.bundle.content":       "dsse-envelope",
			"dev.sigstore.bundle.predicateType": verify.SignPredicate,
			"org.opencontainers.image.created":  opts.Time.UTC().Format(time.RFC3339),
		},
	}
	for _, blob := range []v1.Layer{content, config} {
		if err := remote.WriteLayer(subject.Context(), blob, remoteOptions...); err != nil {
			return "", fmt.Errorf("pushing a blob to %s: %w", subject.Context(), err)
		}
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
	ref := subject.Context().Digest(fmt.Sprintf("sha256:%x", sha256.Sum256(raw)))
	if err := remote.Put(ref, rawManifest(raw), remoteOptions...); err != nil {
		return "", fmt.Errorf("pushing %s: %w", ref, err)
	}
	return ref.String(), nil
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

// rawManifest is an OCI image manifest as it is pushed.
type rawManifest []byte

func (m rawManifest) RawManifest() ([]byte, error)        { return m, nil }
func (m rawManifest) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// signBundle returns a sigstore bundle with a signed in-toto statement about the digest, as cosign makes it.
func signBundle(digest release.Digest, key SigningKey) ([]byte, error) {
	statement, err := json.Marshal(map[string]any{
		"_type":         inTotoSchema,
		"subject":       []any{map[string]any{"digest": map[string]string{"sha256": digest.Hex()}}},
		"predicateType": verify.SignPredicate,
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
		MediaType: verify.BundleMediaType,
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

// keyHint names the key in a bundle as sigstore's clients do: the base64 SHA-256 of its DER form.
func keyHint(key SigningKey) (string, error) {
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
