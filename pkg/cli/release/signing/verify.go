package signing

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

	"github.com/cluster-version/cvo/internal/aliases"
	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/author/sign"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/registries"
	"github.com/cluster-version/cvo/pkg/cli/verifying"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/verify"
	"github.com/cluster-version/cvo/pkg/verify/policy"
	"github.com/cluster-version/cvo/pkg/verify/store"
)

type verifyOptions struct {
	ref        string
	trust      string
	policies   []string
	running    string
	stores     []string
	signatures []string
	as         string
	timeout    time.Duration
	output     string
	registry   registries.Flags
	clock      clock.PassiveClock
}

// NewVerify returns the command 'cvo release verify'.
func NewVerify(streams command.Streams) *cobra.Command {
	opts := verifyOptions{clock: clock.RealClock{}}
	cmd := &cobra.Command{
		Use:   "verify IMAGE (--trust FILE | --release IMAGE) [--policy FILE]",
		Short: "Verify the signature of a release image",
		Long: `Verify the signature of a release image, as the operator does before an update to it.

IMAGE is a pullspec by tag or digest, or an OCI layout on this machine (DIR, DIR:NAME, DIR@DIGEST). The command verifies the
digest; for a multi-architecture image, the index's digest. The root of trust is one of:

  --trust FILE      a trust policy, a keyring or a public key (docs/user/trust.md)
  --release IMAGE   the keys that a release contains for its successors, as a cluster with that release would use them

  --policy FILE     adds ClusterImagePolicies: the image must satisfy each one with a scope that matches it

Verification proves who signed the release, but not that it is recent. An older release with a valid signature passes; the
preconditions of an update reject it.

Exit codes: 0 verified; 3 not verified; 1 the command could not check; 2 invalid command line.`,
		Example: `  # Verify with your own trust policy
  cvo release verify registry.example/platform/release:2.0.0 --trust trust.yaml

  # Verify in a pipeline, by digest
  cvo release verify registry.example/platform/release@sha256:… --trust trust.yaml -o json

  # Verify a mirror's copy for a disconnected cluster, with signatures from a folder
  cvo release verify mirror.example/release@sha256:… --trust vendor.asc --signatures ./mirror/config

  # Verify a copy by the original name, as a cluster with these policies would
  cvo release verify ./layout:2.0.0 --trust trust.yaml --policy policies.yaml --as registry.example/platform/release:2.0.0`,
		Args: command.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.ref = args[0]
			return opts.run(cmd.Context(), streams)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.trust, "trust", "", "`file` with the accepted signers")
	flags.StringArrayVar(&opts.policies, "policy", nil, "`file` with ClusterImagePolicies (repeat for more)")
	flags.StringVar(&opts.running, "release", "", "`image` of a release with trusted keys; not verified itself")
	flags.StringArrayVar(&opts.stores, "signature-store", nil, "`URL` (http, https, file) of an additional store of OpenPGP signatures (repeat for more)")
	flags.StringArrayVar(&opts.signatures, "signatures", nil,
		"`path` of OpenPGP signatures: a file with a ConfigMap, a folder of such files, or a folder in the layout of a store (repeat for more)")
	flags.StringVar(&opts.as, "as", "", "`pullspec` to match against policies; default IMAGE")
	flags.DurationVar(&opts.timeout, "timeout", verify.DefaultStoreTimeout, "time limit for each source")
	printing.AddFlag(cmd, &opts.output)
	cmd.ValidArgsFunction = command.CompleteFolders
	opts.registry.Add(flags)
	return cmd
}

// verification is the result that the command prints.
type verification struct {
	Image      string                   `json:"image"`
	Digest     release.Digest           `json:"digest"`
	Trust      string                   `json:"trust"`
	Policies   []string                 `json:"policies,omitempty"`
	Verified   bool                     `json:"verified"`
	Evidence   []release.Evidence       `json:"evidence,omitempty"`
	Missing    []verify.MissingRoot     `json:"missing,omitempty"`
	Thresholds []verify.MissedThreshold `json:"thresholds,omitempty"`
	Answers    []verify.Answer          `json:"answers,omitempty"`
	Error      string                   `json:"error,omitempty"`
}

func (o *verifyOptions) run(ctx context.Context, streams command.Streams) error {
	if err := o.check(); err != nil {
		return &command.UsageError{Err: err}
	}
	if err := printing.Check(&o.output); err != nil {
		return err
	}
	if err := registries.CheckImages(o.ref, o.running); err != nil {
		return err
	}
	images, err := o.registry.Images("")
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
	for _, additional := range policy.Additional {
		v.Policies = append(v.Policies, additional.Name)
	}
	v.Evidence, err = verifier.Verify(ctx, release.Image{Pullspec: o.name(), Digest: img.Digest})
	switch {
	case err != nil && (ctx.Err() != nil || !errors.Is(err, verify.ErrUnverified)):
		return err
	case verifying.IsInaccessible(err):
		return verifying.Refusal(img, err)
	}
	v.Verified = err == nil
	if refused, ok := errors.AsType[*verify.UnverifiedError](err); ok {
		v.Missing, v.Thresholds, v.Answers, v.Error = refused.Missing, refused.Thresholds, refused.Answers, refused.Error()
	}
	if err := v.print(streams, o.output); err != nil {
		return err
	}
	if !v.Verified {
		return &command.RefusedError{Err: fmt.Errorf("%s is not verified by %s: %w", v.Image, strings.Join(append([]string{v.Trust}, v.Policies...), " and "), err)}
	}
	return nil
}

func (o *verifyOptions) check() error {
	switch {
	case o.trust == "" && o.running == "" && len(o.policies) > 0:
		return errors.New("--policy only adds to a root of trust: name the root with --trust FILE or --release IMAGE " +
			"('cvo trust from-image-policy' turns a ClusterImagePolicy into a trust policy)")
	case o.trust == "" && o.running == "":
		return errors.New("name a root of trust: --trust FILE or --release IMAGE")
	case o.trust != "" && o.running != "":
		return errors.New("--trust replaces the keys of a release: omit --release")
	case o.timeout <= 0:
		return fmt.Errorf("--timeout %s: use a positive duration", o.timeout)
	}
	return nil
}

// name returns the image name to match against the policies.
func (o *verifyOptions) name() string {
	if o.as != "" {
		return o.as
	}
	return o.ref
}

// policy returns the policy that a cluster would apply: the root of trust and every matching ClusterImagePolicy.
func (o *verifyOptions) policy(ctx context.Context, streams command.Streams, images *image.Reader, img release.Image) (policy.Policy, error) {
	policies, err := verifying.ReadImagePolicies(o.policies)
	if err != nil {
		return policy.Policy{}, err
	}
	matching, err := policies.Matching(o.name())
	if err != nil {
		return policy.Policy{}, err
	}
	if len(policies) > 0 && len(matching) == 0 {
		streams.Infof("No ClusterImagePolicy has a scope that matches %s: only the root of trust applies", o.name())
	}
	root, err := o.root(ctx, streams, images, img)
	return policy.Require(root, err, matching)
}

func (o *verifyOptions) root(ctx context.Context, streams command.Streams, images *image.Reader, img release.Image) (policy.Policy, error) {
	if o.trust != "" {
		return policy.Read(o.trust)
	}
	return o.releaseKeys(ctx, streams, images, img)
}

// releaseKeys reads the keys in a release, and warns that they prove little.
func (o *verifyOptions) releaseKeys(ctx context.Context, streams command.Streams, images *image.Reader, img release.Image) (policy.Policy, error) {
	running, err := images.Resolve(ctx, o.running)
	if err != nil {
		return policy.Policy{}, fmt.Errorf("resolving --release %s: %w", o.running, err)
	}
	shipped, err := verifying.ShippedKeys(ctx, images, running)
	if _, ok := errors.AsType[*verifying.UnreadError](err); ok {
		return policy.Policy{}, fmt.Errorf("reading --release %s: %w", running.ByDigest(), err)
	}
	if err != nil {
		return policy.Policy{}, fmt.Errorf("reading the keys of --release %s: %w", running.ByDigest(), err)
	}
	if running.Digest == img.Digest {
		streams.Warnf("these keys come from the release itself: a valid signature does not prove who signed it")
	} else {
		streams.Warnf("the keys come from %s, whose own signatures were not checked", running.ByDigest())
	}
	return shipped, nil
}

// attachmentsOf reads the attachments of an image at its location, even if --as gives another name for the policies.
type attachmentsOf struct {
	images *image.Reader
	image  release.Image
}

func (a attachmentsOf) Attachments(ctx context.Context, _ release.Image) iter.Seq2[release.Attachment, error] {
	return a.images.Attachments(ctx, a.image)
}

func (o *verifyOptions) verifier(p policy.Policy, images *image.Reader, img release.Image) (*verify.Verifier, error) {
	if len(p.Keyrings) == 0 && len(o.stores)+len(o.signatures) > 0 {
		return nil, &command.UsageError{Err: fmt.Errorf("--signature-store and --signatures are for OpenPGP, but %s names no keyring", p.Name)}
	}
	p.Stores = slices.Concat(p.Stores, o.stores)
	sources := verifying.Sources(images)
	sources.Attachments, sources.StoreTimeout = attachmentsOf{images: images, image: img}, o.timeout
	for _, path := range o.signatures {
		found, err := readSignatures(path)
		if err != nil {
			return nil, fmt.Errorf("reading --signatures: %w", err)
		}
		sources.Local = append(sources.Local, found...)
	}
	return verify.New(p, sources, o.clock)
}

// readSignatures opens the OpenPGP signatures at a path: a file with a ConfigMap, or a folder that is a signature store
// or contains such files.
func readSignatures(path string) ([]store.Store, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		file, err := readSignatureFile(path)
		return []store.Store{file}, err
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	stores := []store.Store{store.NewFolder(absolute)}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !manifest.IsFile(e.Name()) {
			continue
		}
		file, err := readSignatureFile(filepath.Join(path, e.Name()))
		if errors.Is(err, errNoConfigMap) {
			continue
		}
		if err != nil {
			return nil, err
		}
		stores = append(stores, file)
	}
	return stores, nil
}

var errNoConfigMap = errors.New("it contains no ConfigMap with signatures in binaryData: use a file from `cvo release mirror`")

// maxSignatureFile is the maximum size of a file with a ConfigMap: about the limit of etcd plus a third for base64.
const maxSignatureFile = 2 << 20

func readSignatureFile(path string) (store.Store, error) {
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
		return nil, fmt.Errorf("%s is larger than %d bytes, the limit of a ConfigMap", path, maxSignatureFile)
	}
	if err := aliases.Check(data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var cm corev1.ConfigMap
	if err := yaml.Unmarshal(data, &cm); err != nil || cm.Kind != "ConfigMap" {
		return nil, fmt.Errorf("%s: %w", path, errNoConfigMap)
	}
	if err := sign.CheckOneDocument(data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	found := []store.ConfigMapData{{Namespace: cm.Namespace, Name: cm.Name, BinaryData: cm.BinaryData}}
	return signatureFile{path: path, ConfigMaps: store.NewConfigMaps(func(context.Context) ([]store.ConfigMapData, error) { return found, nil })}, nil
}

// signatureFile is a ConfigMap in a file. Evidence names the file, not the cluster's ConfigMap.
type signatureFile struct {
	store.ConfigMaps
	path string
}

func (f signatureFile) String() string { return f.path }

func (f signatureFile) Signatures(ctx context.Context, digest release.Digest) iter.Seq2[store.Signature, error] {
	return func(yield func(store.Signature, error) bool) {
		for s, err := range f.ConfigMaps.Signatures(ctx, digest) {
			s.Location = f.path + ": " + s.Location
			if !yield(s, err) {
				return
			}
		}
	}
}

func (v verification) print(streams command.Streams, output string) error {
	if output != "" {
		return printing.Structured(streams, output, v)
	}
	w := tabwriter.NewWriter(streams.Out, 0, 0, 2, ' ', 0)
	state := "Verified"
	if !v.Verified {
		state = "Not verified"
	}
	fmt.Fprintf(w, "%s:\t%s\n", state, printable.Text(v.Image))
	fmt.Fprintf(w, "Trust:\t%s\n", printable.Text(v.Trust))
	for _, policy := range v.Policies {
		fmt.Fprintf(w, "And:\t%s\n", printable.Text(policy))
	}
	for _, e := range v.Evidence {
		printEvidence(w, e)
	}
	for _, t := range v.Thresholds {
		fmt.Fprintf(w, "Threshold %s:\t%d of %d signers\n", printable.Text(t.Name), t.Found, t.Required)
	}
	for _, m := range v.Missing {
		of := ""
		if m.Threshold != "" {
			of = ", of threshold " + printable.Text(m.Threshold)
		}
		fmt.Fprintf(w, "Missing:\t%s (%s, %s%s)\n", printable.Text(m.Name), m.Method, m.Kind, of)
	}
	for _, a := range v.Answers {
		fmt.Fprintf(w, "Looked at:\t%s\n", printable.Text(a.Store))
		for _, r := range a.Remarks {
			fmt.Fprintf(w, "\t  %s\n", printable.Text(r))
		}
	}
	if v.Verified {
		streams.Infof("A valid signature does not prove that a release is recent: the preconditions of an update reject older releases")
	}
	return w.Flush()
}

func printEvidence(w *tabwriter.Writer, e release.Evidence) {
	fmt.Fprintf(w, "\nSigned for:\t%s (%s)\n", printable.Text(e.Root), e.Method)
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
			fmt.Fprintf(w, "  %s:\t%s\n", line.label, printable.Text(strings.TrimSpace(line.value)))
		}
	}
}
