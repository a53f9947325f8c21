// Package signing provides the subcommands of 'cvo release' for signatures: keygen, sign and verify.
package signing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/internal/inputfile"
	"github.com/cluster-version/cvo/pkg/author/sign"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/registries"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/release"
)

type signOptions struct {
	ref            string
	key            string
	passphraseFile string
	reference      string
	store          string
	configMap      string
	attach         string
	output         string
	registry       registries.Flags
}

// NewSign returns the command 'cvo release sign'.
func NewSign(streams command.Streams) *cobra.Command {
	var opts signOptions
	cmd := &cobra.Command{
		Use:   "sign IMAGE --key FILE",
		Short: "Sign a release image",
		Long: `Sign a release image: your signature states that this digest is one of your releases.

The type of the key file selects the kind of signature. An OpenPGP key (armored) creates a signed message. The command adds
it to a signature store, which is a folder to serve over HTTP or to read from disk (--store), or writes a ConfigMap for a
cluster (--configmap). A PEM key (ECDSA, RSA or Ed25519, also if cosign encrypted it) creates sigstore signatures. The command
stores them beside the image: in its registry, or in its OCI layout.

IMAGE may be a tag; the command signs the digest that the tag names now. It keeps existing signatures.
'cvo release keygen' creates a key and the trust policy that accepts it.`,
		Example: `  # Sign with OpenPGP, into the store folder ./signatures
  cvo release sign registry.example/platform/release:2.0.0 --key private.asc --store ./signatures

  # Sign with OpenPGP, as a ConfigMap for a cluster without access to the store
  cvo release sign registry.example/platform/release@sha256:… --key private.asc --configmap signature.yaml
  kubectl apply -f signature.yaml

  # Sign with sigstore, in the image's registry
  cvo release sign registry.example/platform/release:2.0.0 --key private.pem

  # Sign in an OCI layout, then copy the release and its signature to a registry
  cvo release sign ./release --key private.pem --reference registry.example/platform/release
  cvo release mirror ./release --to registry.example/platform/release`,
		Args: command.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.ref = args[0]
			return opts.run(cmd.Context(), streams)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.key, "key", "", "`file` with the private key (required)")
	flags.StringVar(&opts.passphraseFile, "passphrase-file", "", "`file` with the passphrase of an encrypted key; without a file, or with an empty file, the passphrase is empty")
	flags.StringVar(&opts.reference, "reference", "", "`name` of the image in the signature, required for an OCI layout; default its repository")
	flags.StringVar(&opts.store, "store", "", "`folder` to add an OpenPGP signature to, as sha256=<hex>/signature-<n>")
	flags.StringVar(&opts.configMap, "configmap", "", "`file` to write an OpenPGP signature to, as a ConfigMap")
	flags.StringVar(&opts.attach, "attach", "", "method to attach a sigstore signature: tag, referrer or both (default both)")
	printing.AddFlag(cmd, &opts.output)
	opts.registry.Add(flags)
	return cmd
}

// SignedRelease is the result that the command prints.
type SignedRelease struct {
	Image      string         `json:"image"`
	Digest     release.Digest `json:"digest"`
	KeyType    sign.KeyType   `json:"keyType"`
	Signatures []string       `json:"signatures"`
}

func (o *signOptions) run(ctx context.Context, streams command.Streams) error {
	if o.key == "" {
		return &command.UsageError{Err: errors.New("--key is required: name the file with the private key, or create one with `cvo release keygen`")}
	}
	if err := printing.Check(&o.output); err != nil {
		return err
	}
	key, err := readSigningKey(o.key, o.passphraseFile)
	if err != nil {
		return err
	}
	if err := o.check(key.Type()); err != nil {
		return &command.UsageError{Err: err}
	}
	if err := registries.CheckImages(o.ref); err != nil {
		return err
	}
	access, err := o.registry.Access()
	if err != nil {
		return err
	}
	images, err := image.New(image.Options{Access: access})
	if err != nil {
		return err
	}
	img, err := images.Resolve(ctx, o.ref)
	if err != nil {
		return err
	}
	result := SignedRelease{Image: img.ByDigest(), Digest: img.Digest, KeyType: key.Type()}
	now := time.Now()
	if key.Type() == sign.OpenPGPKey {
		result.Signatures, err = o.signOpenPGP(img, key, now)
	} else {
		result.Signatures, err = sign.Sigstore(ctx, access, img, key,
			sign.SigstoreOptions{Reference: o.reference, Attach: sign.Attach(o.attach), Time: now})
	}
	if err != nil {
		return err
	}
	return result.print(streams, o.output)
}

// check rejects flags that do not apply to the kind of key, instead of ignoring them.
func (o *signOptions) check(kind sign.KeyType) error {
	if _, err := sign.ParseAttach(o.attach); err != nil {
		return err
	}
	switch {
	case kind == sign.OpenPGPKey && o.attach != "":
		return errors.New("--attach is for sigstore keys, but this is an OpenPGP key: use --store or --configmap")
	case kind == sign.OpenPGPKey && o.store == "" && o.configMap == "":
		return errors.New("no destination for the signature: use --store DIR or --configmap FILE")
	case kind == sign.SigstoreKey && (o.store != "" || o.configMap != ""):
		return errors.New("--store and --configmap are for OpenPGP keys: a sigstore signature is stored beside the image")
	case o.reference == "" && layout.IsReference(o.ref):
		return fmt.Errorf("%s is an OCI layout, and a signature names a repository: add --reference with the repository that the image gets, such as registry.example/platform/release", o.ref)
	}
	return nil
}

func (o *signOptions) signOpenPGP(img release.Image, key sign.Key, at time.Time) ([]string, error) {
	message, err := sign.OpenPGP(img, key, o.reference, at)
	if err != nil {
		return nil, err
	}
	var written []string
	if o.store != "" {
		path, err := sign.WriteSignature(o.store, img.Digest, message)
		if err != nil {
			return nil, err
		}
		written = append(written, path)
	}
	if o.configMap != "" {
		if err := sign.WriteSignatureConfigMap(o.configMap, img.Digest, message); err != nil {
			return written, err
		}
		written = append(written, o.configMap)
	}
	return written, nil
}

func (r SignedRelease) print(streams command.Streams, output string) error {
	if output != "" {
		return printing.Structured(streams, output, r)
	}
	fmt.Fprintf(streams.Out, "Signed %s\n", r.Image)
	for _, s := range r.Signatures {
		fmt.Fprintf(streams.Out, "  %s signature: %s\n", r.KeyType, s)
	}
	return nil
}

func readSigningKey(file, passphraseFile string) (sign.Key, error) {
	data, err := inputfile.Read(file)
	if err != nil {
		return sign.Key{}, fmt.Errorf("reading --key: %w", err)
	}
	passphrase, err := readPassphrase(passphraseFile)
	if err != nil {
		return sign.Key{}, err
	}
	key, err := sign.ReadKey(data, passphrase)
	if err != nil {
		return sign.Key{}, fmt.Errorf("--key %s: %w", file, err)
	}
	return key, nil
}

// readPassphrase reads a passphrase without the line break that editors append. It returns nil if no file is given, and
// an empty passphrase if the file is empty.
func readPassphrase(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	data, err := inputfile.Read(file)
	if err != nil {
		return nil, fmt.Errorf("reading --passphrase-file: %w", err)
	}
	return append([]byte{}, bytes.TrimRight(data, "\r\n")...), nil
}
