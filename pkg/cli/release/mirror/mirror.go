// Package mirror provides the command 'cvo release mirror'. It verifies a release, copies it with its images and signatures, and prints the
// mirror sets for clusters. Package oci/mirror copies the images.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/progress"
	"github.com/cluster-version/cvo/pkg/cli/reading"
	"github.com/cluster-version/cvo/pkg/cli/registries"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/oci/layout"
	"github.com/cluster-version/cvo/pkg/oci/mirror"
	"github.com/cluster-version/cvo/pkg/oci/mirror/target"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	"github.com/cluster-version/cvo/pkg/release"
)

type options struct {
	from, fromDir    string
	to, toDir        string
	toReleaseImage   string
	skipReleaseImage bool
	keepManifestList bool
	// changed reports whether the flag of that name was given.
	changed func(string) bool
	since   string

	trust      string
	skipVerify bool

	signatureDir   string
	applySignature bool
	overwrite      bool
	cluster        cluster.ContextFlags

	instructions string
	toMirror     bool
	dryRun       bool
	output       string

	registry registries.Flags
	progress progress.Flags
}

// Values of --print-mirror-instructions.
const (
	instructionsIDMS = "idms"
	instructionsICSP = "icsp"
	instructionsNone = "none"
)

// New returns the command 'cvo release mirror'.
func New(streams command.Streams) *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "mirror [IMAGE] --to REPOSITORY | --to-dir DIR",
		Short: "Copy a release with all its images and signatures to a registry or a folder",
		Long: `Copy a release to a registry or a folder: the release image, all its component images, and their attachments, such as
sigstore signatures, attestations and other OCI referrers. The command also writes the OpenPGP signatures of the release as
files, and as a ConfigMap for the cluster.

IMAGE is a pullspec or an OCI layout (DIR, DIR:NAME, DIR@DIGEST); --from is equivalent. The command verifies the signature
of the release before it copies anything. With --trust it uses the keys that you trust. Without --trust it uses the keys in
the release itself, which only proves that the release was not changed in transit. If verification fails, the command
refuses the release (exit code 3).

The command copies all images to one repository, under the tags <version>-<architecture>-<component>, and
<version>-<architecture> for the release. --to may contain other tags, with ${version}, ${arch} and ${component}. A folder
(--to-dir) is an OCI layout: move it to the other network and run the command with --from-dir there.

The signature of a multi-architecture release usually covers only the release as a whole. Then the command copies all
architectures, and <architecture> is multi. If the image for --platform has its own signature, or with
--insecure-skip-verification, the command copies only that image. --keep-manifest-list overrides this.

The command does not copy content that the target already has, so run it again to resume an interrupted copy. --since omits
the layers of another release that the target already has.

At the end the command prints the mirror sets that make a cluster pull from the mirror. Apply them with kubectl apply.`,
		Example: `  # Copy from one registry to another
  cvo release mirror quay.example/platform/release:2.1.0 --to registry.example:5000/platform --trust trust.yaml

  # Copy to a folder, and from there to a registry without access to the first
  cvo release mirror quay.example/platform/release:2.1.0 --to-dir ./2.1.0 --trust trust.yaml
  cvo release mirror --from-dir ./2.1.0 --to registry.example:5000/platform --trust trust.yaml

  # Copy only the layers that 2.0.0 does not have
  cvo release mirror quay.example/platform/release:2.1.0 --since quay.example/platform/release:2.0.0 --to-dir ./2.1.0

  # List the images that would be copied
  cvo release mirror quay.example/platform/release:2.1.0 --to registry.example:5000/platform --to-mirror`,
		Args: command.UsageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if opts.from != "" {
					return &command.UsageError{Err: fmt.Errorf("%q and --from %q both name a release: use one of them", args[0], opts.from)}
				}
				opts.from = args[0]
			}
			opts.changed = cmd.Flags().Changed
			return opts.run(cmd.Context(), streams)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.from, "from", "", "`image` of the release, if not given as argument; with --from-dir, its name in that folder")
	flags.StringVar(&opts.fromDir, "from-dir", "", "`folder` of an earlier run with --to-dir")
	flags.StringVar(&opts.to, "to", "", "`repository` to copy to, or file://DIR")
	flags.StringVar(&opts.toDir, "to-dir", "", "`folder` to copy to, as an OCI layout")
	flags.StringVar(&opts.toReleaseImage, "to-release-image", "", "`image`, with a tag, to copy the release image itself to")
	flags.BoolVar(&opts.skipReleaseImage, "skip-release-image", false, "copy only the component images")
	flags.BoolVar(&opts.keepManifestList, "keep-manifest-list", false, "copy a multi-architecture release completely, not only the image for --platform; default if the signature does not cover that image")
	flags.StringVar(&opts.since, "since", "", "omit layers of this release `image`, which the destination already has")
	flags.StringVar(&opts.trust, "trust", "", "`file` with the accepted signers")
	flags.BoolVar(&opts.skipVerify, "insecure-skip-verification", false, "copy a release even if its signature cannot be verified")
	flags.StringVar(&opts.signatureDir, "release-image-signature-to-dir", "", "`folder` for the signature ConfigMap; default config/ in the destination folder")
	flags.BoolVar(&opts.applySignature, "apply-release-image-signature", false, "apply the signature ConfigMap to the cluster of the kubeconfig")
	flags.BoolVar(&opts.overwrite, "overwrite", false, "with --apply-release-image-signature: replace existing signatures instead of adding to them")
	opts.cluster.Add(flags)
	for _, flag := range []string{"kubeconfig", "context"} {
		flags.Lookup(flag).Usage += "; for --apply-release-image-signature"
	}
	flags.StringVar(&opts.instructions, "print-mirror-instructions", instructionsIDMS, "kind of mirror sets to print for clusters that use the mirror: idms, icsp or none")
	flags.BoolVar(&opts.toMirror, "to-mirror", false, "copy nothing; print a line `source destination` for each image")
	flags.BoolVar(&opts.dryRun, "dry-run", false, "copy nothing; print the planned actions")
	printing.AddFlag(cmd, &opts.output)
	opts.registry.Add(flags)
	opts.registry.AddPlatform(flags)
	opts.progress.Add(flags)
	complete := func(flag string, values ...string) {
		// Registration fails only for unknown flags.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	complete("print-mirror-instructions", instructionsIDMS, instructionsICSP, instructionsNone)
	cmd.ValidArgsFunction = command.CompleteFolders
	for _, dir := range []string{"from-dir", "to-dir", "release-image-signature-to-dir"} {
		_ = cmd.MarkFlagDirname(dir)
	}
	registries.Copies(cmd)
	return cmd
}

func (o *options) check() error {
	if dir, ok := folderArgument(o.to); ok {
		if o.toDir != "" {
			return fmt.Errorf("both --to %s and --to-dir %s name a folder: use one of them", o.to, o.toDir)
		}
		o.to, o.toDir = "", dir
	}
	switch {
	case o.from == "" && o.fromDir == "":
		return errors.New("no release: name its image, or use --from-dir")
	case o.to == "" && o.toDir == "":
		return errors.New("no destination: use --to REPOSITORY or --to-dir DIR")
	case o.to != "" && o.toDir != "":
		return errors.New("--to and --to-dir exclude each other: use one of them")
	case o.skipReleaseImage && o.toReleaseImage != "":
		return errors.New("--skip-release-image and --to-release-image exclude each other: use one of them")
	case o.toReleaseImage != "" && o.toDir != "":
		return errors.New("--to-release-image is for registries: omit it, because a folder holds all images of the release")
	case o.overwrite && !o.applySignature:
		return errors.New("--overwrite requires --apply-release-image-signature")
	case o.trust != "" && o.skipVerify:
		return errors.New("--trust and --insecure-skip-verification exclude each other: use one of them")
	case o.fromDir != "" && !layout.IsReference(o.fromDir):
		return fmt.Errorf("--from-dir %s is not an OCI layout: it has no file oci-layout; if the copy to it was interrupted, run that copy again", o.fromDir)
	case !slices.Contains([]string{instructionsIDMS, instructionsICSP, instructionsNone}, o.instructions):
		return fmt.Errorf("--print-mirror-instructions %q is not known: use idms, icsp or none", o.instructions)
	}
	return printing.Check(&o.output)
}

// folderArgument returns the folder that an argument names and true, or false if the argument can be a repository.
// Folders are file://DIR and paths that begin with / or a dot.
func folderArgument(arg string) (string, bool) {
	if dir, ok := strings.CutPrefix(arg, "file://"); ok {
		return dir, true
	}
	return arg, strings.HasPrefix(arg, "/") || strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "../") || arg == "." || arg == ".."
}

func (o *options) run(ctx context.Context, streams command.Streams) error {
	if err := o.check(); err != nil {
		return &command.UsageError{Err: err}
	}
	images := []string{o.since}
	if o.fromDir == "" { // otherwise, from is a name in the folder
		images = append(images, o.from)
	}
	if err := registries.CheckImages(images...); err != nil {
		return err
	}
	m := &mirroring{options: o, streams: streams}
	defer m.close()
	for _, step := range []func(context.Context) error{m.open, m.verify, m.read, m.warnOfUnlistedImages, m.planDestinations, m.copy, m.writeSignatures} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return m.print()
}

// mirroring is one run of the command.
type mirroring struct {
	*options
	streams command.Streams

	access *registry.Access
	// images reads the release image and caches it in the folder cache, because it is copied later. components reads
	// all other images.
	images, components *image.Reader
	cache              string
	image              release.Image
	release            *mirror.Release
	trust              mirrorTrust
	to                 mirror.Destination
	list               []mirror.Image
	result             Result
}

func (m *mirroring) close() {
	if m.cache != "" {
		_ = os.RemoveAll(m.cache)
	}
}

// open opens access to the registries and resolves the release.
func (m *mirroring) open(ctx context.Context) (err error) {
	if m.access, err = m.registry.Access(); err != nil {
		return err
	}
	platform, err := m.registry.ChosenPlatform()
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

// inFolder returns the reference to the release in --from-dir.
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
		return "", fmt.Errorf("--from-dir %s contains no release image", m.fromDir)
	}
	return "", &command.UsageError{Err: fmt.Errorf("--from-dir %s has several releases: select one with --from: %s", m.fromDir, strings.Join(found, ", "))}
}

// sourceDir returns the source folder; empty if the source is a registry.
func (m *mirroring) sourceDir() string {
	dir, _, _ := layout.SplitReference(m.image.Pullspec)
	return dir
}

// read reads the list of images in the release. If only an index is signed, clusters reject its images. Then it keeps the index unless the
// user decided otherwise.
func (m *mirroring) read(ctx context.Context) (err error) {
	if m.release, err = mirror.Read(ctx, m.images, m.image, m.keepManifestList); err != nil {
		return err
	}
	onlyIndex, err := m.trust.coversOnlyIndex(ctx, m.release)
	switch r := m.release; {
	case err != nil || !onlyIndex:
		return err
	case m.changed("keep-manifest-list"):
		m.streams.Warnf("the signature covers the multi-architecture image %s, but not the image %s in it: "+
			"clusters that verify signatures will reject the mirrored image: omit --keep-manifest-list=false", r.Resolved, r.Digest)
		m.trust.unsigned = true
		return nil
	}
	m.streams.Infof("Copying all architectures, because the signature covers only the multi-architecture image %s", m.image.Digest)
	m.keepManifestList = true
	m.release, err = mirror.Read(ctx, m.images, m.image, true)
	return err
}

// warnOfUnlistedImages warns of images that the clusters need and the command does not copy.
func (m *mirroring) warnOfUnlistedImages(ctx context.Context) error {
	files, err := m.images.Manifests(ctx, m.image)
	if m.sourceDir() != "" && errors.Is(err, failure.ErrNotFound) {
		return nil // the copy into the folder omitted layers with --since, and has warned
	}
	if err != nil {
		return err
	}
	return reading.WarnOfUnlistedImages(m.streams, files, "copied")
}

// planDestinations determines the destination of each image.
func (m *mirroring) planDestinations(ctx context.Context) (err error) {
	if m.toDir != "" {
		m.to.To = target.NewLayout(m.toDir)
	} else if m.to.To, m.to.Tag, err = m.repository(m.options.to); err != nil {
		return err
	}
	if m.toReleaseImage != "" {
		if m.to.ReleaseTo, m.to.ReleaseTag, err = m.repository(m.toReleaseImage); err != nil {
			return err
		}
		if m.to.ReleaseTag == "" {
			return &command.UsageError{Err: fmt.Errorf("--to-release-image %q has no tag: add one", m.toReleaseImage)}
		}
	}
	m.to.SkipRelease = m.skipReleaseImage
	if m.list, err = m.release.Images(ctx, m.access, m.images, m.components, m.to); err != nil {
		return err
	}
	m.describe()
	return nil
}

// repository splits a destination into the repository and the pattern of its tags.
func (m *mirroring) repository(pullspec string) (mirror.Target, string, error) {
	repository := release.Pullspec(strings.ReplaceAll(pullspec, "${", "$")).Repository()
	tag := strings.TrimPrefix(pullspec[len(repository):], ":")
	if strings.Contains(pullspec, "@") || strings.Contains(repository, "$") {
		return nil, "", &command.UsageError{Err: fmt.Errorf("destination %q: use ${version}, ${arch} and ${component} only in the tag, and omit the digest", pullspec)}
	}
	if tag != "" && pullspec != m.toReleaseImage && !strings.Contains(tag, "${component}") {
		return nil, "", &command.UsageError{Err: fmt.Errorf("destination %q: all images would get the same tag: name a repository, or put ${component} into the tag", pullspec)}
	}
	destination, err := target.OpenRepository(m.access, repository)
	if err != nil {
		return nil, "", &command.UsageError{Err: err}
	}
	return destination, tag, nil
}

// copyEvent converts a copy event to a progress event.
func copyEvent(e mirror.Event) progress.Event {
	return progress.Event{Item: e.Name, Done: e.Done, Total: e.Total, Ended: e.Ended, Silent: e.There}
}

// copy copies the planned images.
func (m *mirroring) copy(ctx context.Context) (err error) {
	if m.toMirror {
		return nil
	}
	options := mirror.Options{Width: m.access.MaxPerRegistry()}
	if options.Without, err = m.previousBlobs(ctx, options); err != nil {
		return err
	}
	progress := m.progress.Start(ctx, m.streams, "Mirroring "+m.release.Version)
	defer progress.Close()
	options.Warn = func(text string) { progress.Streams().Warnf("%s", text) }
	options.Progress = func(e mirror.Event) { progress.Report(copyEvent(e)) }
	plan, err := mirror.New(ctx, m.list, options)
	if err != nil {
		return fmt.Errorf("planning: %w", err)
	}
	_, m.result.Size.Blobs, m.result.Size.Bytes = plan.Size()
	progress.Expect(len(m.list))
	if m.dryRun {
		return nil
	}
	copied, err := plan.Copy(ctx)
	m.result.Copied = &copied
	if err := errors.Join(err, m.to.To.Close()); err != nil {
		return err
	}
	if plan.ReleaseUnsure {
		if err := m.verifyCopy(ctx); err != nil {
			return err
		}
	}
	return m.writeReleaseNote()
}

// previousBlobs returns the blobs of the release in --since.
func (m *mirroring) previousBlobs(ctx context.Context, options mirror.Options) (map[release.Digest]bool, error) {
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
