package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
)

type releaseVerifyOptions struct {
	ref        string
	trust      string
	policies   []string
	running    string
	stores     []string
	signatures []string
	as         string
	timeout    time.Duration
	output     string
	registry   imageFlags
	clock      clock.PassiveClock
}

func newReleaseVerifyCmd(streams Streams) *cobra.Command {
	opts := releaseVerifyOptions{clock: clock.RealClock{}}
	cmd := &cobra.Command{
		Use:   "verify IMAGE (--trust FILE | --policy FILE | --release IMAGE)",
		Short: "Check who signed a release image",
		Long: `Check who signed a release image, as the operator would before an update to it.

IMAGE is a pullspec by tag or digest, or an OCI layout on this machine (DIR, DIR:NAME, DIR@DIGEST). What counts is the
digest: of the index, where an image is for several architectures. Whom to trust says one of:

  --trust FILE      a trust policy, a keyring, a public key (docs/user/trust.md)
  --policy FILE     ClusterImagePolicies; those with the most specific scope that matches the image hold
  --release IMAGE   the keys that a release brings along for its successors, as a cluster that runs it would use them; with
                    --policy, where no scope matches

Verification says who signed, not how old what they signed is. An older release with a good signature is verified, and it
is the preconditions of an update that stop it.

Exit codes: 0 verified, 3 not verified, 1 it could not be found out, 2 the command line is wrong.`,
		Example: `  # By your own trust policy
  cvo release verify registry.example/platform/release:2.0.0 --trust trust.yaml

  # In a pipeline, by digest
  cvo release verify registry.example/platform/release@sha256:… --trust trust.yaml -o json

  # A mirror's copy, with signatures from a folder, before a disconnected cluster sees it
  cvo release verify mirror.example/release@sha256:… --trust vendor.asc --signatures ./mirror/config

  # As a cluster with these policies would judge the original name
  cvo release verify ./layout:2.0.0 --policy policies.yaml --as registry.example/platform/release:2.0.0`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.ref = args[0]
			return opts.run(cmd.Context(), streams)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.trust, "trust", "", "`file` that says whose signatures are accepted")
	flags.StringArrayVar(&opts.policies, "policy", nil, "`file` with ClusterImagePolicies (repeat for more)")
	flags.StringVar(&opts.running, "release", "", "`image` of a release whose keys are trusted, unchecked itself")
	flags.StringArrayVar(&opts.stores, "signature-store", nil, "`URL` (http, https, file) of a store to look for OpenPGP signatures in, too (repeat for more)")
	flags.StringArrayVar(&opts.signatures, "signatures", nil,
		"`path` of OpenPGP signatures: a file with a ConfigMap, or a folder with such files or laid out as a store (repeat for more)")
	flags.StringVar(&opts.as, "as", "", "`pullspec` by whose name policies judge the image; default IMAGE")
	flags.DurationVar(&opts.timeout, "timeout", verify.DefaultStoreTimeout, "how long each place may take to answer")
	addOutput(cmd, &opts.output)
	cmd.ValidArgsFunction = completeFolders
	opts.registry.add(flags)
	return cmd
}

// verification is what the command reports.
type verification struct {
	Image      string                   `json:"image"`
	Digest     release.Digest           `json:"digest"`
	Trust      string                   `json:"trust"`
	Verified   bool                     `json:"verified"`
	Evidence   []release.Evidence       `json:"evidence,omitempty"`
	Missing    []verify.MissingRoot     `json:"missing,omitempty"`
	Thresholds []verify.MissedThreshold `json:"thresholds,omitempty"`
	Answers    []verify.Answer          `json:"answers,omitempty"`
	Error      string                   `json:"error,omitempty"`
}

func (o *releaseVerifyOptions) run(ctx context.Context, streams Streams) error {
	if err := o.check(); err != nil {
		return &UsageError{Err: err}
	}
	if err := checkOutput(&o.output); err != nil {
		return err
	}
	images, err := o.registry.images("")
	if err != nil {
		return err
	}
	img, err := images.Resolve(ctx, o.ref)
	if err != nil {
		return err
	}
	policy, err := o.policy(ctx, streams, images, img)
	if err != nil {
		return err
	}
	verifier, err := o.verifier(policy, images, img)
	if err != nil {
		return err
	}
	v := verification{Image: img.ByDigest(), Digest: img.Digest, Trust: policy.Name}
	v.Evidence, err = verifier.Verify(ctx, release.Image{Pullspec: o.name(), Digest: img.Digest})
	if err != nil && (ctx.Err() != nil || !errors.Is(err, verify.ErrUnverified)) {
		return err
	}
	v.Verified = err == nil
	if refused, ok := errors.AsType[*verify.UnverifiedError](err); ok {
		v.Missing, v.Thresholds, v.Answers, v.Error = refused.Missing, refused.Thresholds, refused.Answers, refused.Error()
	}
	if err := v.print(streams, o.output); err != nil {
		return err
	}
	if !v.Verified {
		return &RefusedError{Err: fmt.Errorf("%s is not verified by %s: %w", v.Image, v.Trust, err)}
	}
	return nil
}

func (o *releaseVerifyOptions) check() error {
	switch {
	case o.trust == "" && len(o.policies) == 0 && o.running == "":
		return errors.New("say whom to trust: --trust FILE, --policy FILE or --release IMAGE")
	case o.trust != "" && len(o.policies) > 0:
		return errors.New("--trust and --policy both say whom to trust: use one of them")
	case o.trust != "" && o.running != "":
		return errors.New("--trust replaces the keys of a release: leave out --release")
	case o.timeout <= 0:
		return fmt.Errorf("--timeout %s leaves no time to answer", o.timeout)
	}
	return nil
}

// name is that by which policies judge the image.
func (o *releaseVerifyOptions) name() string {
	if o.as != "" {
		return o.as
	}
	return o.ref
}

// policy returns what holds for the image, in the order in which a cluster asks: what an administrator says, and where
// they say nothing the keys of the release that runs.
func (o *releaseVerifyOptions) policy(ctx context.Context, streams Streams, images *image.Reader, img release.Image) (verify.Policy, error) {
	if o.trust != "" {
		return verify.ReadTrust(o.trust)
	}
	var policies verify.ClusterImagePolicies
	for _, file := range o.policies {
		data, err := os.ReadFile(file)
		if err != nil {
			return verify.Policy{}, fmt.Errorf("reading --policy: %w", err)
		}
		found, err := verify.ParseClusterImagePolicies(file, data)
		if err != nil {
			return verify.Policy{}, err
		}
		policies = append(policies, found...)
	}
	if err := policies.Validate(); err != nil {
		return verify.Policy{}, err
	}
	if len(policies) > 0 {
		policy, ok, err := policies.For(o.name())
		if err != nil || ok {
			return policy, err
		}
		if o.running == "" {
			return verify.Policy{}, &RefusedError{Err: fmt.Errorf("no scope of the ClusterImagePolicies matches %s, so nobody is trusted to sign it: "+
				"add a scope, or name with --release whose keys hold then", o.name())}
		}
	}
	return o.releaseKeys(ctx, streams, images, img)
}

// releaseKeys reads the keys that a release brings, and says how little that is worth.
func (o *releaseVerifyOptions) releaseKeys(ctx context.Context, streams Streams, images *image.Reader, img release.Image) (verify.Policy, error) {
	running, err := images.Resolve(ctx, o.running)
	if err != nil {
		return verify.Policy{}, fmt.Errorf("resolving --release %s: %w", o.running, err)
	}
	files, err := images.Manifests(ctx, running)
	if err != nil {
		return verify.Policy{}, fmt.Errorf("reading --release %s: %w", running.ByDigest(), err)
	}
	p, err := payload.Load(files, running.ByDigest(), payload.Options{})
	if err != nil {
		return verify.Policy{}, fmt.Errorf("reading --release %s: %w", running.ByDigest(), err)
	}
	policy, err := verify.FromManifests(p.Manifests)
	if err != nil {
		return verify.Policy{}, fmt.Errorf("reading the keys of --release %s: %w", running.ByDigest(), err)
	}
	policy.Name = fmt.Sprintf("%s %s", policy.Name, p.Release.Version)
	if running.Digest == img.Digest {
		fmt.Fprintln(streams.Err, "warning: the release vouches for itself: whoever made it chose these keys, so this says that it is signed, and not by whom")
	} else {
		fmt.Fprintf(streams.Err, "warning: the keys are those of %s, whose own signatures were not checked\n", running.ByDigest())
	}
	return policy, nil
}

// attachmentsOf looks beside an image where it is, whatever name it is judged by.
type attachmentsOf struct {
	images *image.Reader
	image  release.Image
}

func (a attachmentsOf) Attachments(ctx context.Context, _ release.Image) ([]release.Attachment, error) {
	return a.images.Attachments(ctx, a.image)
}

func (o *releaseVerifyOptions) verifier(policy verify.Policy, images *image.Reader, img release.Image) (*verify.Verifier, error) {
	if len(policy.Keyrings) == 0 && len(o.stores)+len(o.signatures) > 0 {
		return nil, &UsageError{Err: fmt.Errorf("--signature-store and --signatures are for OpenPGP, and %s names no keyring", policy.Name)}
	}
	policy.Stores = slices.Concat(policy.Stores, o.stores)
	sources := verify.Sources{
		Client: images.Access().WebClient(), Attachments: attachmentsOf{images: images, image: img}, StoreTimeout: o.timeout,
	}
	for _, path := range o.signatures {
		store, err := readSignatures(path)
		if err != nil {
			return nil, fmt.Errorf("reading --signatures: %w", err)
		}
		sources.Local = append(sources.Local, store...)
	}
	return verify.New(policy, sources, o.clock)
}

// readSignatures opens what a path has of OpenPGP signatures.
func readSignatures(path string) ([]verify.Store, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		store, err := readSignatureFile(path)
		return []verify.Store{store}, err
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	stores := []verify.Store{verify.NewFolder(absolute)}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !manifest.IsFile(e.Name()) {
			continue
		}
		store, err := readSignatureFile(filepath.Join(path, e.Name()))
		if errors.Is(err, errNoConfigMap) {
			continue
		}
		if err != nil {
			return nil, err
		}
		stores = append(stores, store)
	}
	return stores, nil
}

var errNoConfigMap = errors.New("it holds no ConfigMap: expected one with signatures in binaryData, as `cvo release mirror` writes it")

// maxSignatureFile bounds a file with a ConfigMap: etcd takes about as much, and base64 is a third longer.
const maxSignatureFile = 2 << 20

func readSignatureFile(path string) (verify.Store, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSignatureFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxSignatureFile {
		return nil, fmt.Errorf("%s: larger than %d bytes, which no ConfigMap can be", path, maxSignatureFile)
	}
	if err := manifest.CheckAliases(data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var cm corev1.ConfigMap
	if err := yaml.Unmarshal(data, &cm); err != nil || cm.Kind != "ConfigMap" {
		return nil, fmt.Errorf("%s: %w", path, errNoConfigMap)
	}
	found := []verify.ConfigMapData{{Namespace: cm.Namespace, Name: cm.Name, BinaryData: cm.BinaryData}}
	return signatureFile{path: path, ConfigMaps: verify.NewConfigMaps(func(context.Context) ([]verify.ConfigMapData, error) { return found, nil })}, nil
}

// signatureFile is a ConfigMap in a file: its signatures are in the file, whatever cluster the ConfigMap is for.
type signatureFile struct {
	verify.ConfigMaps
	path string
}

func (f signatureFile) String() string { return f.path }

func (f signatureFile) Signatures(ctx context.Context, digest release.Digest) iter.Seq2[verify.Signature, error] {
	return func(yield func(verify.Signature, error) bool) {
		for s, err := range f.ConfigMaps.Signatures(ctx, digest) {
			s.Location = f.path + ": " + s.Location
			if !yield(s, err) {
				return
			}
		}
	}
}

func (v verification) print(streams Streams, output string) error {
	if output != "" {
		return printStructured(streams, output, v)
	}
	w := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	state := "Verified"
	if !v.Verified {
		state = "Not verified"
	}
	fmt.Fprintf(w, "%s:\t%s\n", state, printable(v.Image))
	fmt.Fprintf(w, "Trust:\t%s\n", printable(v.Trust))
	for _, e := range v.Evidence {
		printEvidence(w, e)
	}
	for _, t := range v.Thresholds {
		fmt.Fprintf(w, "Threshold %s:\t%d of %d signers\n", printable(t.Name), t.Found, t.Required)
	}
	for _, m := range v.Missing {
		of := ""
		if m.Threshold != "" {
			of = ", of threshold " + printable(m.Threshold)
		}
		fmt.Fprintf(w, "Missing:\t%s (%s, %s%s)\n", printable(m.Name), m.Method, m.Kind, of)
	}
	for _, a := range v.Answers {
		fmt.Fprintf(w, "Looked at:\t%s\n", printable(a.Store))
		for _, r := range a.Remarks {
			fmt.Fprintf(w, "\t  %s\n", printable(r))
		}
	}
	if v.Verified {
		fmt.Fprintln(streams.Err, "info: This says who signed, not how old it is: an older release with a good signature is stopped by the preconditions of an update")
	}
	return w.Flush()
}

func printEvidence(w *tabwriter.Writer, e release.Evidence) {
	fmt.Fprintf(w, "\nSigned for:\t%s (%s)\n", printable(e.Root), e.Method)
	var log string
	if e.Log != nil {
		log = fmt.Sprintf("entry %d", e.Log.Index)
		if !e.Log.Time.IsZero() {
			log += " of " + e.Log.Time.UTC().Format(time.RFC3339)
		}
	}
	at := ""
	if !e.SignedAt.IsZero() {
		at = e.SignedAt.UTC().Format(time.RFC3339)
	}
	for _, line := range []struct{ label, value string }{
		{"Threshold", e.Threshold},
		{"Identity", e.Identity},
		{"Issuer", e.Issuer},
		{"Key", e.KeyID},
		{"Algorithm", e.Algorithm},
		{"Fingerprint", e.Fingerprint},
		{"Certificate", e.Certificate},
		{"Signed at", at},
		{"Log", log},
		{"Found in", e.Store},
	} {
		if line.value != "" {
			fmt.Fprintf(w, "  %s:\t%s\n", line.label, printable(strings.TrimSpace(line.value)))
		}
	}
}
