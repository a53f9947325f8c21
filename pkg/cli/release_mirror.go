package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/mirror"
	"github.com/cluster-version/cvo/pkg/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

type releaseMirrorOptions struct {
	from, fromDir    string
	to, toDir        string
	toReleaseImage   string
	skipReleaseImage bool
	keepManifestList bool
	since            string

	trust      string
	skipVerify bool

	signatureDir   string
	applySignature bool
	overwrite      bool
	cluster        contextFlags

	instructions string
	toMirror     bool
	dryRun       bool
	output       string

	registry imageFlags
	progress progressFlags
}

// Values of --print-mirror-instructions.
const (
	instructionsIDMS = "idms"
	instructionsICSP = "icsp"
	instructionsNone = "none"
)

func newReleaseMirrorCmd(streams Streams) *cobra.Command {
	var opts releaseMirrorOptions
	cmd := &cobra.Command{
		Use:   "mirror [IMAGE] --to REPOSITORY | --to-dir DIR",
		Short: "Copy a release with all its images and signatures into a registry or a folder",
		Long: `Copy a release into a registry or a folder: the release image, every image that it consists of, and what is attached to
them, such as sigstore signatures, attestations and other OCI referrers. OpenPGP signatures of the release come along as
files, and as a ConfigMap for the cluster.

IMAGE is a pullspec or an OCI layout (DIR, DIR:NAME, DIR@DIGEST); --from says the same. The signature of the release is
verified before anything is copied: with --trust against the keys you trust, else against the keys that the release
itself brings, which says only that nobody changed it on the way. A release that does not verify is refused (exit
code 3).

Images go to one repository, under the tags <version>-<architecture>-<component>, and <version>-<architecture> for the
release. --to may name other tags, with ${version}, ${arch} and ${component} in them. A folder (--to-dir) is an OCI layout;
take it to the other side and run the command with --from-dir there.

What the target has is not copied again, so a run that was cut short goes on when it is started anew. --since leaves out
layers that another release, which is on the other side already, consists of.

At the end the mirror sets are printed that make a cluster pull from the mirror. They can be given to kubectl apply as they
are.`,
		Example: `  # From one registry to another
  cvo release mirror quay.example/platform/release:2.1.0 --to registry.example:5000/platform --trust trust.yaml

  # To a folder, and from it into a registry without access to the first
  cvo release mirror quay.example/platform/release:2.1.0 --to-dir ./2.1.0 --trust trust.yaml
  cvo release mirror --from-dir ./2.1.0 --to registry.example:5000/platform --trust trust.yaml

  # Only what 2.0.0 does not have
  cvo release mirror quay.example/platform/release:2.1.0 --since quay.example/platform/release:2.0.0 --to-dir ./2.1.0

  # What would be copied
  cvo release mirror quay.example/platform/release:2.1.0 --to registry.example:5000/platform --to-mirror`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if opts.from != "" {
					return &UsageError{Err: fmt.Errorf("both %q and --from %q say what to mirror: give one", args[0], opts.from)}
				}
				opts.from = args[0]
			}
			return opts.run(cmd.Context(), streams)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.from, "from", "", "`image` of the release, if not given as argument; with --from-dir, its name in that folder")
	flags.StringVar(&opts.fromDir, "from-dir", "", "`folder` that an earlier run with --to-dir has written")
	flags.StringVar(&opts.to, "to", "", "`repository` to copy to, or file://DIR")
	flags.StringVar(&opts.toDir, "to-dir", "", "`folder` to copy to, as an OCI layout")
	flags.StringVar(&opts.toReleaseImage, "to-release-image", "", "`image`, with a tag, that the release image itself is to become")
	flags.BoolVar(&opts.skipReleaseImage, "skip-release-image", false, "copy only the images that the release consists of")
	flags.BoolVar(&opts.keepManifestList, "keep-manifest-list", false, "copy a release for several architectures as a whole, not only the image for --platform")
	flags.StringVar(&opts.since, "since", "", "leave out layers of this release `image`, which is at the destination already")
	flags.StringVar(&opts.trust, "trust", "", "`file` that says whose signatures are accepted")
	flags.BoolVar(&opts.skipVerify, "insecure-skip-verification", false, "copy a release although its signature cannot be verified")
	flags.StringVar(&opts.signatureDir, "release-image-signature-to-dir", "", "`folder` for the signature ConfigMap; default config in the folder that is copied to")
	flags.BoolVar(&opts.applySignature, "apply-release-image-signature", false, "write the signature ConfigMap into the cluster of the kubeconfig")
	flags.BoolVar(&opts.overwrite, "overwrite", false, "with --apply-release-image-signature: replace signatures that are there instead of adding to them")
	opts.cluster.add(flags)
	for _, flag := range []string{"kubeconfig", "context"} {
		flags.Lookup(flag).Usage += "; for --apply-release-image-signature"
	}
	flags.StringVar(&opts.instructions, "print-mirror-instructions", instructionsIDMS, "what to print for clusters that are to use the mirror: idms, icsp or none")
	flags.BoolVar(&opts.toMirror, "to-mirror", false, "copy nothing, print a line `source destination` for each image")
	flags.BoolVar(&opts.dryRun, "dry-run", false, "copy nothing, say what would be done")
	addOutput(cmd, &opts.output)
	opts.registry.add(flags)
	opts.registry.addPlatform(flags)
	opts.progress.add(flags)
	complete := func(flag string, values ...string) {
		// It fails only for flags that do not exist.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	complete("print-mirror-instructions", instructionsIDMS, instructionsICSP, instructionsNone)
	cmd.ValidArgsFunction = completeFolders
	for _, dir := range []string{"from-dir", "to-dir", "release-image-signature-to-dir"} {
		_ = cmd.MarkFlagDirname(dir)
	}
	return cmd
}

func (o *releaseMirrorOptions) check() error {
	if dir, ok := folderArgument(o.to); ok {
		if o.toDir != "" {
			return fmt.Errorf("both --to %s and --to-dir %s name a folder: give one", o.to, o.toDir)
		}
		o.to, o.toDir = "", dir
	}
	switch {
	case o.from == "" && o.fromDir == "":
		return errors.New("which release? Name its image, or --from-dir")
	case o.to == "" && o.toDir == "":
		return errors.New("where to? Give --to REPOSITORY or --to-dir DIR")
	case o.to != "" && o.toDir != "":
		return errors.New("--to and --to-dir exclude each other")
	case o.skipReleaseImage && o.toReleaseImage != "":
		return errors.New("--skip-release-image and --to-release-image exclude each other")
	case o.toReleaseImage != "" && o.toDir != "":
		return errors.New("--to-release-image is for registries: a folder holds all images of the release")
	case o.overwrite && !o.applySignature:
		return errors.New("--overwrite goes with --apply-release-image-signature")
	case o.trust != "" && o.skipVerify:
		return errors.New("--trust and --insecure-skip-verification exclude each other")
	case o.fromDir != "" && !image.IsLayout(o.fromDir):
		return fmt.Errorf("--from-dir %s is no OCI layout: it has no file oci-layout; was the copy that wrote it cut short? Then run that again", o.fromDir)
	case !slices.Contains([]string{instructionsIDMS, instructionsICSP, instructionsNone}, o.instructions):
		return fmt.Errorf("--print-mirror-instructions %q is not known: use idms, icsp or none", o.instructions)
	}
	return checkOutput(&o.output)
}

// folderArgument tells a folder from a repository: file://DIR, or a path that no repository can be.
func folderArgument(arg string) (string, bool) {
	if dir, ok := strings.CutPrefix(arg, "file://"); ok {
		return dir, true
	}
	return arg, strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../") || arg == "." || arg == ".."
}

func (o *releaseMirrorOptions) run(ctx context.Context, streams Streams) error {
	if err := o.check(); err != nil {
		return &UsageError{Err: err}
	}
	m := &mirroring{releaseMirrorOptions: o, streams: streams}
	defer m.close()
	for _, step := range []func(context.Context) error{m.open, m.verify, m.read, m.place, m.copy, m.writeSignatures} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return m.print()
}

// mirroring is one run of the command.
type mirroring struct {
	*releaseMirrorOptions
	streams Streams

	access *registry.Access
	// images reads the release image, which it keeps in the folder cache because it is copied later; components reads
	// everything else.
	images, components *image.Reader
	cache              string
	image              release.Image
	release            *mirror.Release
	trust              mirrorTrust
	to                 mirror.Destination
	list               []mirror.Image
	result             mirrorResult
}

func (m *mirroring) close() {
	if m.cache != "" {
		_ = os.RemoveAll(m.cache)
	}
}

// open prepares the way to the registries and resolves the release.
func (m *mirroring) open(ctx context.Context) (err error) {
	if m.access, err = m.registry.access(); err != nil {
		return err
	}
	platform, err := m.registry.chosenPlatform()
	if err != nil {
		return err
	}
	if m.cache, err = os.MkdirTemp("", "cvo-mirror-"); err != nil {
		return err
	}
	if m.images, err = image.New(image.Options{Access: m.access, CacheDir: m.cache, Platform: platform}); err != nil {
		return err
	}
	if m.components, err = image.New(image.Options{Access: m.access, Platform: platform}); err != nil {
		return err
	}
	pullspec := m.from
	if m.fromDir != "" {
		if pullspec, err = m.inFolder(ctx); err != nil {
			return err
		}
	}
	m.image, err = m.images.Resolve(ctx, pullspec)
	return err
}

// inFolder names the release of --from-dir.
func (m *mirroring) inFolder(ctx context.Context) (string, error) {
	if strings.HasPrefix(m.from, "sha256:") {
		return m.fromDir + "@" + m.from, nil
	}
	if m.from != "" {
		return m.fromDir + ":" + m.from, nil
	}
	found, err := mirror.Releases(ctx, m.images, m.fromDir)
	switch {
	case err != nil:
		return "", err
	case len(found) == 1:
		return m.fromDir + ":" + found[0], nil
	case len(found) == 0:
		return "", fmt.Errorf("--from-dir %s holds no release image", m.fromDir)
	}
	return "", &UsageError{Err: fmt.Errorf("--from-dir %s holds several releases: name one by --from: %s", m.fromDir, strings.Join(found, ", "))}
}

// sourceDir is the folder that is copied from, if it is one.
func (m *mirroring) sourceDir() string {
	ref := m.image.Pullspec
	if !image.IsLayout(ref) {
		return ""
	}
	for _, sep := range []string{"@", ":"} {
		if i := strings.LastIndex(ref, sep); i > 0 && image.IsLayout(ref[:i]) {
			return ref[:i]
		}
	}
	return ref
}

// read finds out what the release consists of.
func (m *mirroring) read(ctx context.Context) (err error) {
	if m.release, err = mirror.Read(ctx, m.images, m.image, m.keepManifestList); err != nil {
		return err
	}
	m.trust.checkPlatform(ctx, m.streams, m.release)
	return nil
}

// place decides where each image goes.
func (m *mirroring) place(ctx context.Context) (err error) {
	if m.toDir != "" {
		m.to.To = mirror.NewLayout(m.toDir)
	} else if m.to.To, m.to.Tag, err = m.repository(m.releaseMirrorOptions.to); err != nil {
		return err
	}
	if m.toReleaseImage != "" {
		if m.to.ReleaseTo, m.to.ReleaseTag, err = m.repository(m.toReleaseImage); err != nil {
			return err
		}
		if m.to.ReleaseTag == "" {
			return &UsageError{Err: fmt.Errorf("--to-release-image %q has no tag", m.toReleaseImage)}
		}
	}
	m.to.SkipRelease = m.skipReleaseImage
	if m.list, err = m.release.Images(ctx, m.access, m.images, m.components, m.to); err != nil {
		return err
	}
	m.describe()
	return nil
}

// repository splits a destination into the repository and the form of its tags.
func (m *mirroring) repository(pullspec string) (mirror.Target, string, error) {
	repository := release.Image{Pullspec: strings.ReplaceAll(pullspec, "${", "$")}.Repository()
	tag := strings.TrimPrefix(pullspec[len(repository):], ":")
	if strings.Contains(pullspec, "@") || strings.Contains(repository, "$") {
		return nil, "", &UsageError{Err: fmt.Errorf("destination %q: ${version}, ${arch} and ${component} may stand in the tag only, and a digest nowhere", pullspec)}
	}
	if tag != "" && pullspec != m.toReleaseImage && !strings.Contains(tag, "${component}") {
		return nil, "", &UsageError{Err: fmt.Errorf("destination %q: all images would get the same tag: name a repository, or put ${component} into the tag", pullspec)}
	}
	target, err := mirror.OpenRepository(m.access, repository)
	if err != nil {
		return nil, "", &UsageError{Err: err}
	}
	return target, tag, nil
}

// copyEvent is what progress shows of an image that is copied.
func copyEvent(e mirror.Event) progressEvent {
	return progressEvent{item: e.Name, done: e.Done, total: e.Total, ended: e.Ended, unsaid: e.There}
}

// copy carries out what was planned.
func (m *mirroring) copy(ctx context.Context) (err error) {
	if m.toMirror {
		return nil
	}
	options := mirror.Options{Width: m.access.MaxPerRegistry()}
	if options.Without, err = m.older(ctx, options); err != nil {
		return err
	}
	progress := m.progress.start(m.streams, "Mirroring "+m.release.Version)
	defer progress.close()
	options.Warn = func(text string) { fmt.Fprintf(progress.streams().Err, "warning: %s\n", text) }
	options.Progress = func(e mirror.Event) { progress.report(copyEvent(e)) }
	plan, err := mirror.New(ctx, m.list, options)
	if err != nil {
		return fmt.Errorf("planning: %w", err)
	}
	_, m.result.Size.Blobs, m.result.Size.Bytes = plan.Size()
	progress.expect(len(m.list), 0)
	if m.dryRun {
		return nil
	}
	copied, err := plan.Copy(ctx)
	m.result.Copied = &copied
	if err := errors.Join(err, m.to.To.Close()); err != nil {
		return err
	}
	return m.writeReleaseNote()
}

// older lists what the release of --since consists of.
func (m *mirroring) older(ctx context.Context, options mirror.Options) (map[release.Digest]bool, error) {
	if m.since == "" {
		return nil, nil
	}
	img, err := m.images.Resolve(ctx, m.since)
	if err != nil {
		return nil, fmt.Errorf("--since: %w", err)
	}
	older, err := mirror.Read(ctx, m.images, img, m.keepManifestList)
	if err != nil {
		return nil, fmt.Errorf("--since: %w", err)
	}
	list, err := older.Images(ctx, m.access, m.images, m.components, m.to)
	if err != nil {
		return nil, fmt.Errorf("--since: %w", err)
	}
	plan, err := mirror.New(ctx, list, options)
	if err != nil {
		return nil, fmt.Errorf("--since: %w", err)
	}
	return plan.Blobs(), nil
}
