package signing

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/author/sign"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/verify/store"
)

type keygenOptions struct {
	keyType        string
	out            string
	name           string
	email          string
	passphraseFile string
	stores         []string
	output         string
}

// NewKeygen returns the command 'cvo release keygen'.
func NewKeygen(streams command.Streams) *cobra.Command {
	var opts keygenOptions
	cmd := &cobra.Command{
		Use:   "keygen --out DIR",
		Short: "Create a key that signs releases, and the trust policy that accepts it",
		Long: `Create a key that signs releases, and the trust policy that accepts it.

The command writes three files to the folder: the private key, the public key, and trust.yaml. Keep the private key secret:
its owner decides which releases clusters run. Give trust.yaml to 'cvo install' and 'cvo start' with --trust. A sigstore key
(ECDSA P-256) stores signatures in the image's registry and needs nothing else. An OpenPGP key (RSA) stores signatures in
signature stores, which existing OpenShift clusters can also read. The policy names the stores of --store, or by default
the folder signatures/ next to it.`,
		Example: `  cvo release keygen --out ./keys
  cvo release sign registry.example/platform/release:2.0.0 --key ./keys/private.pem

  cvo release keygen --type openpgp --name "Platform Team" --email platform@example.com --out ./keys \
    --store https://mirror.example/signatures`,
		Args: command.UsageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error { return opts.run(streams) },
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.keyType, "type", string(sign.SigstoreKey), "kind of key: sigstore or openpgp")
	flags.StringVar(&opts.out, "out", "", "`folder` to write to (required); existing files are never overwritten")
	flags.StringVar(&opts.name, "name", "release", "name of the root of trust, and of the OpenPGP user")
	flags.StringVar(&opts.email, "email", "", "address of the OpenPGP user")
	flags.StringVar(&opts.passphraseFile, "passphrase-file", "", "`file` with a passphrase to encrypt the private key")
	flags.StringArrayVar(&opts.stores, "store", nil, "`URL` of a signature store for the trust policy (openpgp; repeat for more)")
	printing.AddFlag(cmd, &opts.output)
	return cmd
}

// GeneratedKey is the result that the command prints.
type GeneratedKey struct {
	KeyType sign.KeyType `json:"keyType"`
	Private string       `json:"privateKey"`
	Trust   string       `json:"trust"`
}

func (o *keygenOptions) run(streams command.Streams) error {
	if o.out == "" {
		return &command.UsageError{Err: errors.New("--out is required: name a folder for the key")}
	}
	if err := printing.Check(&o.output); err != nil {
		return err
	}
	kind := sign.KeyType(o.keyType)
	if kind != sign.OpenPGPKey && kind != sign.SigstoreKey {
		return &command.UsageError{Err: fmt.Errorf("--type %q is not known: use sigstore or openpgp", o.keyType)}
	}
	if kind == sign.SigstoreKey && len(o.stores) > 0 {
		return &command.UsageError{Err: errors.New("--store is for OpenPGP keys: sigstore signatures are stored in the image's registry")}
	}
	if err := sign.CheckFolder(o.out, kind); err != nil {
		return err
	}
	passphrase, err := readPassphrase(o.passphraseFile)
	if err != nil {
		return err
	}
	if passphrase != nil && len(passphrase) == 0 {
		return &command.UsageError{Err: fmt.Errorf("--passphrase-file %s is empty: omit it to keep the private key without encryption", o.passphraseFile)}
	}
	for _, address := range o.stores {
		if _, err := store.Open(address, nil); err != nil {
			return &command.UsageError{Err: fmt.Errorf("--store: %w", err)}
		}
	}
	stores := o.stores
	if kind == sign.OpenPGPKey && len(stores) == 0 {
		dir, err := filepath.Abs(filepath.Join(o.out, "signatures"))
		if err != nil {
			return fmt.Errorf("finding the signature folder: %w", err)
		}
		stores = []string{(&url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}).String()}
	}
	pair, err := sign.GenerateKey(sign.KeyOptions{
		Type: kind, Name: o.name, Email: o.email, Passphrase: passphrase,
		Stores: stores, Time: time.Now(),
	})
	if err != nil {
		return err
	}
	private, err := pair.WriteFolder(o.out)
	if err != nil {
		return err
	}
	made := GeneratedKey{KeyType: kind, Private: private, Trust: filepath.Join(o.out, sign.TrustFile)}
	if o.output != "" {
		return printing.Structured(streams, o.output, made)
	}
	fmt.Fprintf(streams.Out, "Created a key of type %s\n  private key (keep it secret): %s\n  trust policy: %s\n", made.KeyType, made.Private, made.Trust)
	return nil
}
