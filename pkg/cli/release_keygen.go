package cli

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/assemble"
)

type releaseKeygenOptions struct {
	keyType        string
	out            string
	name           string
	email          string
	passphraseFile string
	stores         []string
	output         string
}

func newReleaseKeygenCmd(streams Streams) *cobra.Command {
	var opts releaseKeygenOptions
	cmd := &cobra.Command{
		Use:   "keygen --out DIR",
		Short: "Make a key that signs releases, and the trust policy that accepts it",
		Long: `Make a key that signs releases, and the trust policy that accepts it.

The folder gets the private key (to be kept secret: whoever has it decides what clusters run), the public key, and
trust.yaml, which is given to "cvo install" and "cvo start" by --trust. A sigstore key (ECDSA P-256) signs into the image's
registry and needs nothing else. An OpenPGP key (RSA) signs into signature stores, which existing OpenShift clusters read
too; the policy names the stores of --store, or else the folder signatures/ beside it.`,
		Example: `  cvo release keygen --out ./keys
  cvo release sign registry.example/platform/release:2.0.0 --key ./keys/private.pem

  cvo release keygen --type openpgp --name "Platform Team" --email platform@example.com --out ./keys \
    --store https://mirror.example/signatures`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error { return opts.run(streams) },
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.keyType, "type", string(assemble.SigstoreKey), "kind of key: sigstore or openpgp")
	flags.StringVar(&opts.out, "out", "", "`folder` to write to (required); files that are there are never overwritten")
	flags.StringVar(&opts.name, "name", "release", "name of the root of trust, and of the OpenPGP user")
	flags.StringVar(&opts.email, "email", "", "address of the OpenPGP user")
	flags.StringVar(&opts.passphraseFile, "passphrase-file", "", "`file` with a passphrase to encrypt the private key by")
	flags.StringArrayVar(&opts.stores, "store", nil, "`URL` of a signature store that the trust policy names (openpgp; repeat for more)")
	addOutput(cmd, &opts.output)
	return cmd
}

// madeKey is what the command reports.
type madeKey struct {
	KeyType assemble.KeyType `json:"keyType"`
	Private string           `json:"privateKey"`
	Trust   string           `json:"trust"`
}

func (o *releaseKeygenOptions) run(streams Streams) error {
	if o.out == "" {
		return &UsageError{Err: errors.New("--out is required: name a folder for the key")}
	}
	if err := checkOutput(&o.output); err != nil {
		return err
	}
	kind := assemble.KeyType(o.keyType)
	if kind != assemble.OpenPGPKey && kind != assemble.SigstoreKey {
		return &UsageError{Err: fmt.Errorf("--type %q is not known: use sigstore or openpgp", o.keyType)}
	}
	if kind == assemble.SigstoreKey && len(o.stores) > 0 {
		return &UsageError{Err: errors.New("--store is for OpenPGP keys: sigstore signatures are kept in the image's registry")}
	}
	passphrase, err := readPassphrase(o.passphraseFile)
	if err != nil {
		return err
	}
	stores := o.stores
	if kind == assemble.OpenPGPKey && len(stores) == 0 {
		dir, err := filepath.Abs(filepath.Join(o.out, "signatures"))
		if err != nil {
			return fmt.Errorf("finding the folder of the signatures: %w", err)
		}
		stores = []string{(&url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}).String()}
	}
	pair, err := assemble.GenerateKey(assemble.KeyOptions{
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
	made := madeKey{KeyType: kind, Private: private, Trust: filepath.Join(o.out, assemble.TrustFile)}
	if o.output != "" {
		return printStructured(streams, o.output, made)
	}
	fmt.Fprintf(streams.Out, "Made a key of type %s\n  private key (keep it secret): %s\n  trust policy: %s\n", made.KeyType, made.Private, made.Trust)
	return nil
}
