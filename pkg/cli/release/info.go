package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/author/compare"
	"github.com/cluster-version/cvo/pkg/author/inspect"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/progress"
	"github.com/cluster-version/cvo/pkg/cli/reading"
	"github.com/cluster-version/cvo/pkg/cli/registries"
	"github.com/cluster-version/cvo/pkg/oci/failure"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/release"
)

type infoOptions struct {
	refs          []string
	changesFrom   string
	pullspecs     bool
	commits       bool
	commitURLs    bool
	contents      bool
	size          bool
	verify        bool
	imageFor      string
	includeImages bool
	output        string
	read          reading.Flags
	progress      progress.Flags
}

func newInfoCmd(streams command.Streams) *cobra.Command {
	o := &infoOptions{}
	cmd := &cobra.Command{
		Use:   "info [IMAGE] [IMAGE2]",
		Short: "Describe a release and its images, or compare two",
		Long: `Describe a release and its images. With two releases, show the changes from the first to the second.

IMAGE is a pullspec, by tag or digest; an OCI layout on this machine, as DIR, DIR:VERSION or DIR@DIGEST; a folder with a
release; or a version that the cluster knows: its current release, its updates, including conditional ones, and its
history. The default is the release that the cluster runs or is updating to.

The digest of a multi-architecture release is the digest of its index: Digest in the text, listDigest in JSON. The digest of
the image for --platform is Image digest in the text, digest in JSON.

Digests are always verified. With --trust the command verifies the signature before it reads the release.

--verify also fetches the manifest and configuration of the release image and of every component image, for every platform, and
verifies their digests. It does not read layers. This does not prove who made the release; --trust proves that. If the release
is in a mirror, all images must be in that mirror.`,
		Example: `  # Describe a release
  cvo release info registry.example/platform/release:2.0.0

  # Describe the cluster's release, with the source of each image
  cvo release info --commits

  # Print the image of one component, for a script
  cvo release info 2.0.0 --image-for=dns

  # Compare two releases
  cvo release info 1.9.0 2.0.0

  # Check that a mirror has the whole release, with a trusted signature
  cvo release info mirror.example/platform/release:2.0.0 --verify --trust trust.yaml

  # Show the size of the images
  cvo release info 2.0.0 --size

  cvo release info 2.0.0 -o jsonpath='{.metadata.previous}'`,
		Args: command.UsageArgs(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.refs = args
			return o.run(cmd.Context(), streams)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.changesFrom, "changes-from", "", "show the changes since this `release`")
	f.BoolVar(&o.pullspecs, "pullspecs", false, "show the pullspec of each image")
	f.BoolVar(&o.commits, "commits", false, "show the source repository and the commit of each image")
	f.BoolVar(&o.commitURLs, "commit-urls", false, "show the URL of each image's commit")
	f.BoolVar(&o.contents, "contents", false, "print all files of the release instead; for two releases, print the differences")
	f.BoolVar(&o.size, "size", false, "show the size of each image, and the part that no other image shares")
	f.BoolVar(&o.verify, "verify", false, "check that every image exists and matches its digest")
	f.StringVar(&o.imageFor, "image-for", "", "print only the pullspec of this `component`'s image")
	f.BoolVar(&o.includeImages, "include-images", false, "with -o: include the manifest and configuration of every image")
	f.StringVarP(&o.output, "output", "o", "", "json, yaml, jsonpath=…, go-template=…; or name, pullspec or digest to print one line per image")
	o.progress.Add(f)
	o.read.Add(cmd)
	command.LowMemory(cmd) // it keeps little of what it reads
	registries.LimitLookups(f)
	command.RefuseVendorFlags(cmd, infoVendorFlags())
	cmd.ValidArgsFunction = o.read.Complete(2)
	for _, name := range []string{"output", "image-for", "changes-from"} {
		_ = cmd.RegisterFlagCompletionFunc(name, o.complete(name))
	}
	return cmd
}

func infoVendorFlags() []command.VendorFlag {
	const (
		changes = "it requires clones of all source repositories; list the commits with --commit-urls, or compare two releases with 'cvo release info OLD NEW'"
		bugs    = "it queries one vendor's bug trackers; list the commits with --commit-urls, and find the bugs in their messages"
		rpms    = "it reads the packages of an operating system image; get that image with '--image-for NAME', and read it with the system's own tools"
	)
	return []command.VendorFlag{
		{Name: "changelog", Instead: changes},
		{Name: "bugs", Instead: bugs},
		{Name: "skip-bug-check", Switched: true, Instead: bugs},
		{Name: "rpmdb", Switched: true, Instead: rpms},
		{Name: "rpmdb-diff", Switched: true, Instead: rpms},
		{Name: "rpmdb-cache", Instead: rpms},
		{Name: "rpmdb-image", Instead: rpms},
	}
}

// complete returns the completion of a flag's values.
func (o *infoOptions) complete(flag string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch {
		case flag == "output":
			return append([]string{"name", "pullspec", "digest"}, printing.ValueFormats()...), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		case flag == "changes-from":
			return reading.CompleteReleases(cmd, &o.read.Versions)
		case len(args) == 0:
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
		defer cancel()
		r, _, err := o.read.Open(ctx, command.Silent(), args[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		info, err := inspect.Describe(ctx, r)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, tag := range info.Tags() {
			names = append(names, tag.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// mode returns the name of the flag that selects special output; empty for the default output.
func (o *infoOptions) mode() (string, error) {
	var modes []string
	for _, m := range []struct {
		name string
		Set  bool
	}{
		{"pullspecs", o.pullspecs},
		{"commits", o.commits},
		{"commit-urls", o.commitURLs},
		{"contents", o.contents},
		{"size", o.size},
		{"verify", o.verify},
		{"image-for", o.imageFor != ""},
	} {
		if m.Set {
			modes = append(modes, m.name)
		}
	}
	if len(modes) > 1 {
		return "", fmt.Errorf("--%s exclude each other: use one of them", strings.Join(modes, ", --"))
	}
	return strings.Join(modes, ""), nil
}

func (o *infoOptions) run(ctx context.Context, streams command.Streams) error {
	mode, err := o.mode()
	if err != nil {
		return &command.UsageError{Err: err}
	}
	refs := o.refs
	if o.changesFrom != "" {
		if len(refs) > 1 || mode == "verify" {
			return &command.UsageError{Err: errors.New("--changes-from compares with one release: name at most one IMAGE, and omit --verify")}
		}
		refs = append([]string{o.changesFrom}, append(refs, "")[0])
	}
	if len(refs) == 0 {
		refs = []string{""}
	}
	switch {
	case mode == "verify":
		return o.verifyAll(ctx, streams, refs)
	case len(refs) == 2:
		return o.compare(ctx, streams, refs[0], refs[1], mode)
	case len(refs) > 2:
		return &command.UsageError{Err: fmt.Errorf("got %d releases: give one to describe it, or two to compare them; only --verify accepts more", len(refs))}
	}
	write, err := o.writer(mode)
	if err != nil {
		return &command.UsageError{Err: err}
	}
	r, images, err := o.read.Open(ctx, streams, refs[0])
	if err != nil {
		return err
	}
	if o.contents {
		return r.WriteContents(ctx, streams.Out)
	}
	info, err := inspect.Describe(ctx, r)
	if err != nil {
		return err
	}
	if o.size || o.includeImages {
		if err := o.readImages(ctx, streams, info, images); err != nil {
			return err
		}
	}
	return write(streams, info)
}

// readImages reads the metadata of the component images and shows progress.
func (o *infoOptions) readImages(ctx context.Context, streams command.Streams, info *inspect.Info, images *image.Reader) error {
	p := o.progress.Start(ctx, streams, "reading images of "+info.Metadata.Version)
	defer p.Close()
	p.Expect(len(info.References.Spec.Tags))
	read := info.ReadImages
	if o.verify {
		read = info.VerifyImages
	}
	err := read(ctx, images, func(component string) {
		p.Report(progress.Event{Item: component, Ended: true, Silent: true})
	})
	if o.verify && errors.Is(err, failure.ErrNotFound) && !errors.Is(err, failure.ErrIntegrity) {
		return &command.RefusedError{Err: err}
	}
	if !errors.Is(err, failure.ErrIntegrity) {
		return err
	}
	var tampered, unchecked []error
	for _, part := range parts(err) {
		if errors.Is(part, failure.ErrIntegrity) {
			tampered = append(tampered, part)
		} else {
			unchecked = append(unchecked, part)
		}
	}
	err = fmt.Errorf("the release image failed content verification and may have been tampered with: %w", errors.Join(tampered...))
	if len(unchecked) > 0 {
		err = fmt.Errorf("%w\n%s could not be checked: %w", err, printable.Count(len(unchecked), "other image"), errors.Join(unchecked...))
	}
	return &command.RefusedError{Err: err}
}

// parts returns the errors that errors.Join joined, one for each image.
func parts(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, part := range joined.Unwrap() {
		all = append(all, parts(part)...)
	}
	return all
}

// writer returns the function that prints the output of a mode.
func (o *infoOptions) writer(mode string) (func(command.Streams, *inspect.Info) error, error) {
	if mode == "image-for" {
		if o.output != "" {
			return nil, errors.New("--image-for prints a pullspec: omit --output")
		}
		return func(streams command.Streams, info *inspect.Info) error {
			pullspec, err := info.ImageFor(o.imageFor)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(streams.Out, printable.Text(pullspec))
			return err
		}, nil
	}
	switch {
	case mode == "contents" && o.output != "":
		return nil, errors.New("--contents prints files: omit --output")
	case o.output == "" || o.output == printing.FormatText:
		view := inspect.ViewDigests
		if mode == "size" {
			view = inspect.ViewSizes
		} else if mode != "" {
			view = inspect.View(mode)
		}
		return func(streams command.Streams, info *inspect.Info) error { return writeInfo(streams, info, view) }, nil
	case slices.Contains([]string{"name", "pullspec", "digest"}, o.output):
		return func(streams command.Streams, info *inspect.Info) error { return info.WriteList(streams.Out, o.output) }, nil
	}
	write, err := printing.NewValuePrinter(o.output)
	if err != nil {
		return nil, err
	}
	return func(streams command.Streams, info *inspect.Info) error { return write(streams.Out, info) }, nil
}

func writeInfo(streams command.Streams, info *inspect.Info, view inspect.View) error {
	if view == inspect.ViewSizes {
		info.Measure()
		all, once := info.TotalBytes()
		streams.Infof("%d images need %.0f MB, or %.0f MB if shared layers are stored once",
			len(info.Images), float64(all)/1e6, float64(once)/1e6)
	}
	return info.WriteText(streams.Out, view, time.Now())
}

// verifyAll checks releases and prints one line for each intact release. With -o it prints all results at the end, or nothing if any check
// fails.
func (o *infoOptions) verifyAll(ctx context.Context, streams command.Streams, refs []string) error {
	var printValue func(io.Writer, any) error
	if o.output != "" && o.output != printing.FormatText {
		var err error
		if printValue, err = printing.NewValuePrinter(o.output); err != nil {
			return &command.UsageError{Err: err}
		}
	}
	var list []verifiedRelease
	for _, ref := range refs {
		v, err := o.verifyOne(ctx, streams, ref)
		if err != nil {
			return err
		}
		list = append(list, v)
		if printValue == nil {
			fmt.Fprintf(streams.Out, "%s %s %s\n", v.Digest, v.Created.UTC().Format(time.RFC3339), v.Version)
		}
	}
	if printValue == nil {
		return nil
	}
	return printValue(streams.Out, list)
}

func (o *infoOptions) verifyOne(ctx context.Context, streams command.Streams, ref string) (verifiedRelease, error) {
	r, images, err := o.read.Open(ctx, streams, ref)
	if err != nil {
		return verifiedRelease{}, err
	}
	if r.Image.Digest == "" {
		return verifiedRelease{}, &command.UsageError{Err: fmt.Errorf("%s is a folder: --verify requires an image, which has a digest", ref)}
	}
	info, err := inspect.Describe(ctx, r)
	if err != nil {
		return verifiedRelease{}, err
	}
	if err := o.readImages(ctx, streams, info, images); err != nil {
		return verifiedRelease{}, err
	}
	if len(info.Served) > 0 {
		streams.Infof("Checked %s in %s", printable.Count(len(info.References.Spec.Tags), "image"), printable.List(info.Served, 10))
	}
	files, err := r.Files(ctx)
	if err != nil {
		return verifiedRelease{}, err
	}
	if err := reading.WarnOfUnlistedImages(streams, files, "verified"); err != nil {
		return verifiedRelease{}, err
	}
	return verifiedRelease{
		Image: r.Image.Pullspec, Digest: r.Image.Digest, Created: info.References.CreationTimestamp.Time,
		Version: info.Metadata.Version, Images: len(info.References.Spec.Tags),
	}, nil
}

// verifiedRelease is a release with intact images. Fields are added, never renamed or removed.
type verifiedRelease struct {
	Image   string         `json:"image"`
	Digest  release.Digest `json:"digest"`
	Version string         `json:"version"`
	Created time.Time      `json:"created"`
	Images  int            `json:"images"`
}

// compare prints the differences between two releases: images, APIs and roles or, with --contents, everything.
func (o *infoOptions) compare(ctx context.Context, streams command.Streams, from, to, mode string) error {
	if mode != "" && mode != "contents" {
		return &command.UsageError{Err: fmt.Errorf("--%s requires a single release: name one, or omit the flag to compare two", mode)}
	}
	write := func(w io.Writer, c *compare.Result) error { return c.WriteText(w, false) }
	if o.output != "" && o.output != printing.FormatText {
		printValue, err := printing.NewValuePrinter(o.output)
		if err != nil {
			return &command.UsageError{Err: err}
		}
		write = func(w io.Writer, c *compare.Result) error { return printValue(w, c) }
	}
	before, _, err := o.read.Open(ctx, streams, from)
	if err != nil {
		return err
	}
	after, _, err := o.read.Open(ctx, streams, to)
	if err != nil {
		return err
	}
	comparison, err := compare.Releases(ctx, before, after, compare.Options{})
	if err != nil {
		return err
	}
	if mode != "contents" {
		comparison = comparison.Only(compare.PartImages, compare.PartAPIs)
	}
	return write(streams.Out, comparison)
}
