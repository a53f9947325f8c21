package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/assemble"
	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/release"
)

type releaseSignOptions struct {
	ref            string
	key            string
	passphraseFile string
	reference      string
	store          string
	configMap      string
	attach         string
	output         string
	registry       imageFlags
}

func newReleaseSignCmd(streams Streams) *cobra.Command {
	var opts releaseSignOptions
	cmd := &cobra.Command{
		Use:   "sign IMAGE --key FILE",
		Short: "Sign a release image",
		Long: `Sign a release image: state by signature that this digest is a release of yours.

The key decides how, and its kind is told from the file. An OpenPGP key (armored) makes a signed message, which goes to a
signature store, a folder to be served over HTTP or read from disk (--store), or to a ConfigMap that brings it into a
cluster (--configmap). A PEM key (ECDSA, RSA, Ed25519, also as cosign encrypts it) makes sigstore signatures, which are
pushed beside the image into its registry.

IMAGE may be a tag; what is signed is the digest that it names now. Signatures that are there already stay.
"cvo release keygen" makes a key and the trust policy that accepts it.`,
		Example: `  # OpenPGP, into the store folder ./signatures
  cvo release sign registry.example/platform/release:2.0.0 --key private.asc --store ./signatures

  # OpenPGP, as a ConfigMap for a cluster without access to the store
  cvo release sign registry.example/platform/release@sha256:… --key private.asc --configmap signature.yaml
  kubectl apply -f signature.yaml

  # sigstore, beside the image
  cvo release sign registry.example/platform/release:2.0.0 --key private.pem`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.ref = args[0]
			return opts.run(cmd.Context(), streams)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.key, "key", "", "`file` with the private key (required)")
	flags.StringVar(&opts.passphraseFile, "passphrase-file", "", "`file` with the passphrase of an encrypted key")
	flags.StringVar(&opts.reference, "reference", "", "name that the signature gives the image (default: its repository)")
	flags.StringVar(&opts.store, "store", "", "`folder` to add an OpenPGP signature to, as sha256=<hex>/signature-<n>")
	flags.StringVar(&opts.configMap, "configmap", "", "`file` to write an OpenPGP signature to, as a ConfigMap")
	flags.StringVar(&opts.attach, "attach", "", "where a sigstore signature goes: tag, referrer or both (default both)")
	addOutput(cmd, &opts.output)
	opts.registry.add(flags)
	return cmd
}

// signedRelease is what the command reports.
type signedRelease struct {
	Image      string           `json:"image"`
	Digest     release.Digest   `json:"digest"`
	KeyType    assemble.KeyType `json:"keyType"`
	Signatures []string         `json:"signatures"`
}

func (o *releaseSignOptions) run(ctx context.Context, streams Streams) error {
	if o.key == "" {
		return &UsageError{Err: errors.New("--key is required: name the file with the private key, or make one with `cvo release keygen`")}
	}
	if err := checkOutput(&o.output); err != nil {
		return err
	}
	key, err := readSigningKey(o.key, o.passphraseFile)
	if err != nil {
		return err
	}
	if err := o.check(key.Type()); err != nil {
		return &UsageError{Err: err}
	}
	access, err := o.registry.access()
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
	result := signedRelease{Image: img.ByDigest(), Digest: img.Digest, KeyType: key.Type()}
	now := time.Now()
	if key.Type() == assemble.OpenPGPKey {
		result.Signatures, err = o.signOpenPGP(img, key, now)
	} else {
		result.Signatures, err = assemble.SignSigstore(ctx, access, img, key,
			assemble.SigstoreOptions{Reference: o.reference, Attach: assemble.Attach(o.attach), Time: now})
	}
	if err != nil {
		return err
	}
	return result.print(streams, o.output)
}

// check refuses flags that the kind of key has no use for, instead of leaving them out.
func (o *releaseSignOptions) check(kind assemble.KeyType) error {
	if _, err := assemble.ParseAttach(o.attach); err != nil {
		return err
	}
	switch {
	case kind == assemble.OpenPGPKey && o.attach != "":
		return errors.New("--attach is for sigstore keys, this is an OpenPGP key: use --store or --configmap")
	case kind == assemble.OpenPGPKey && o.store == "" && o.configMap == "":
		return errors.New("nowhere to write the signature to: use --store DIR or --configmap FILE")
	case kind == assemble.SigstoreKey && (o.store != "" || o.configMap != ""):
		return errors.New("--store and --configmap are for OpenPGP keys: a sigstore signature goes into the image's registry")
	}
	return nil
}

func (o *releaseSignOptions) signOpenPGP(img release.Image, key assemble.SigningKey, at time.Time) ([]string, error) {
	message, err := assemble.SignOpenPGP(img, key, o.reference, at)
	if err != nil {
		return nil, err
	}
	var written []string
	if o.store != "" {
		path, err := assemble.WriteSignature(o.store, img.Digest, message)
		if err != nil {
			return nil, err
		}
		written = append(written, path)
	}
	if o.configMap != "" {
		if err := assemble.WriteSignatureConfigMap(o.configMap, img.Digest, message); err != nil {
			return written, err
		}
		written = append(written, o.configMap)
	}
	return written, nil
}

func (r signedRelease) print(streams Streams, output string) error {
	if output != "" {
		return printStructured(streams, output, r)
	}
	fmt.Fprintf(streams.Out, "Signed %s\n", r.Image)
	for _, s := range r.Signatures {
		fmt.Fprintf(streams.Out, "  %s signature: %s\n", r.KeyType, s)
	}
	return nil
}

func readSigningKey(file, passphraseFile string) (assemble.SigningKey, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return assemble.SigningKey{}, fmt.Errorf("reading --key: %w", err)
	}
	passphrase, err := readPassphrase(passphraseFile)
	if err != nil {
		return assemble.SigningKey{}, err
	}
	key, err := assemble.ReadSigningKey(data, passphrase)
	if err != nil {
		return assemble.SigningKey{}, fmt.Errorf("--key %s: %w", file, err)
	}
	return key, nil
}

// readPassphrase returns nothing if no file is named. The line break that editors add is not part of a passphrase.
func readPassphrase(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading --passphrase-file: %w", err)
	}
	passphrase := strings.TrimRight(string(data), "\r\n")
	if passphrase == "" {
		return nil, fmt.Errorf("--passphrase-file %s is empty", file)
	}
	return []byte(passphrase), nil
}
