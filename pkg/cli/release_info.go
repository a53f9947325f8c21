package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/inspect"
	"github.com/cluster-version/cvo/pkg/release"
)

type releaseInfoOptions struct {
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
	read          readFlags
	progress      progressFlags
}

func newReleaseInfoCmd(streams Streams) *cobra.Command {
	o := &releaseInfoOptions{}
	cmd := &cobra.Command{
		Use:   "info [IMAGE] [IMAGE2]",
		Short: "Tell what a release says of itself and of its images, or what changed between two",
		Long: `Tell what a release says of itself and of its images, or, of two, what changed from the first to the second.

IMAGE is a pullspec, by tag or digest; an OCI layout on this machine, as DIR, DIR:VERSION or DIR@DIGEST; a folder with a
release; or a version that the cluster knows: the one it is on or moving to, its updates, also the conditional ones, and
its history. Without IMAGE it is the release that the cluster is on or moving to.

Digests are always checked. Signatures are checked with --trust, before anything of the release is read.

--verify also fetches manifest and configuration of every component image and checks their digests: that all of the
release is there and is what the release says. It says nothing about who made it; --trust does.`,
		Example: `  # What is in this release?
  cvo release info registry.example/platform/release:2.0.0

  # What does the cluster run, and where does each image come from?
  cvo release info --commits

  # The image of one component, for a script
  cvo release info 2.0.0 --image-for=dns

  # What an update would change
  cvo release info 1.9.0 2.0.0

  # Is the whole release in this mirror, and who signed it?
  cvo release info mirror.example/platform/release:2.0.0 --verify --trust trust.yaml

  # What the images take on disk, and of which they are made
  cvo release info 2.0.0 --size

  cvo release info 2.0.0 -o jsonpath='{.metadata.previous}'`,
		Args: usageArgs(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.refs = args
			return o.run(cmd.Context(), streams)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.changesFrom, "changes-from", "", "tell what changed since this `release`")
	f.BoolVar(&o.pullspecs, "pullspecs", false, "show what each image is pulled from")
	f.BoolVar(&o.commits, "commits", false, "show the source repository and the commit of each image")
	f.BoolVar(&o.commitURLs, "commit-urls", false, "show where the commit of each image can be read")
	f.BoolVar(&o.contents, "contents", false, "print all files of the release instead; of two releases, all that is different in them")
	f.BoolVar(&o.size, "size", false, "show how large each image is, and what of it no other image has")
	f.BoolVar(&o.verify, "verify", false, "check that every image is there and has the content that its digest stands for")
	f.StringVar(&o.imageFor, "image-for", "", "print the pullspec of this `component`'s image only")
	f.BoolVar(&o.includeImages, "include-images", false, "with -o: with manifest and configuration of every image")
	f.StringVarP(&o.output, "output", "o", "", "json, yaml, jsonpath=…, go-template=…; or name, pullspec or digest of the images, one a line")
	o.progress.add(f)
	o.read.add(cmd)
	refuseVendorFlags(cmd, infoVendorFlags())
	cmd.ValidArgsFunction = o.read.complete(2)
	for _, name := range []string{"output", "image-for", "changes-from"} {
		_ = cmd.RegisterFlagCompletionFunc(name, o.complete(name))
	}
	return cmd
}

func infoVendorFlags() []vendorFlag {
	const (
		changes = "it takes clones of all source repositories; --commit-urls names the commits, and two releases are compared by 'cvo release info OLD NEW'"
		bugs    = "it asks the trackers of one vendor; --commit-urls names the commits, which name their bugs"
		rpms    = "it is about the packages of one operating system image; '--image-for NAME' names that image, and the system's own tools read it"
	)
	return []vendorFlag{
		{name: "changelog", instead: changes},
		{name: "bugs", instead: bugs},
		{name: "skip-bug-check", switched: true, instead: bugs},
		{name: "rpmdb", switched: true, instead: rpms},
		{name: "rpmdb-diff", switched: true, instead: rpms},
		{name: "rpmdb-cache", instead: rpms},
		{name: "rpmdb-image", instead: rpms},
	}
}

// complete completes values of flags.
func (o *releaseInfoOptions) complete(flag string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch {
		case flag == "output":
			return append([]string{"name", "pullspec", "digest"}, valueFormats()...), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		case flag == "changes-from":
			return o.read.versions.completeReleases(cmd)
		case len(args) == 0:
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
		defer cancel()
		r, _, err := o.read.open(ctx, silent(), args[0])
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

// mode is the one thing that is asked for besides the usual; empty for that.
func (o *releaseInfoOptions) mode() (string, error) {
	var modes []string
	for _, m := range []struct {
		name string
		set  bool
	}{
		{"pullspecs", o.pullspecs},
		{"commits", o.commits},
		{"commit-urls", o.commitURLs},
		{"contents", o.contents},
		{"size", o.size},
		{"verify", o.verify},
		{"image-for", o.imageFor != ""},
	} {
		if m.set {
			modes = append(modes, m.name)
		}
	}
	if len(modes) > 1 {
		return "", fmt.Errorf("--%s exclude each other: use one of them", strings.Join(modes, ", --"))
	}
	return strings.Join(modes, ""), nil
}

func (o *releaseInfoOptions) run(ctx context.Context, streams Streams) error {
	readLean()
	mode, err := o.mode()
	if err != nil {
		return &UsageError{Err: err}
	}
	refs := o.refs
	if o.changesFrom != "" {
		if len(refs) > 1 || mode == "verify" {
			return &UsageError{Err: errors.New("--changes-from compares with one release: name at most one IMAGE, and no --verify")}
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
		return &UsageError{Err: fmt.Errorf("%d releases are named: one is told of, two are compared, and only --verify takes more", len(refs))}
	}
	write, err := o.writer(mode)
	if err != nil {
		return &UsageError{Err: err}
	}
	r, images, err := o.read.open(ctx, streams, refs[0])
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

// readImages fetches what the images say of themselves, and shows how far it is.
func (o *releaseInfoOptions) readImages(ctx context.Context, streams Streams, info *inspect.Info, images *image.Reader) error {
	p := o.progress.start(streams, "reading images of "+info.Metadata.Version)
	defer p.close()
	p.expect(len(info.References.Spec.Tags), 0)
	err := info.ReadImages(ctx, images, func(component string) {
		p.report(progressEvent{item: component, ended: true, unsaid: true})
	})
	if errors.Is(err, image.ErrIntegrity) {
		return &RefusedError{Err: fmt.Errorf("the release image failed content verification and may have been tampered with: %w", err)}
	}
	return err
}

// writer returns what prints the answer to what is asked for.
func (o *releaseInfoOptions) writer(mode string) (func(Streams, *inspect.Info) error, error) {
	if mode == "image-for" {
		if o.output != "" {
			return nil, errors.New("--image-for prints a pullspec: leave --output out")
		}
		return func(streams Streams, info *inspect.Info) error {
			pullspec, err := info.ImageFor(o.imageFor)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(streams.Out, pullspec)
			return err
		}, nil
	}
	switch {
	case mode == "contents" && o.output != "":
		return nil, errors.New("--contents prints files: leave --output out")
	case o.output == "" || o.output == outputText:
		view := inspect.ViewDigests
		if mode == "size" {
			view = inspect.ViewSizes
		} else if mode != "" {
			view = inspect.View(mode)
		}
		return func(streams Streams, info *inspect.Info) error { return writeInfo(streams, info, view) }, nil
	case slices.Contains([]string{"name", "pullspec", "digest"}, o.output):
		return func(streams Streams, info *inspect.Info) error { return info.WriteList(streams.Out, o.output) }, nil
	}
	write, err := newValuePrinter(o.output)
	if err != nil {
		return nil, err
	}
	return func(streams Streams, info *inspect.Info) error { return write(streams.Out, info) }, nil
}

func writeInfo(streams Streams, info *inspect.Info, view inspect.View) error {
	if view == inspect.ViewSizes {
		info.Measure()
		all, once := info.TotalBytes()
		fmt.Fprintf(streams.Err, "info: %d images take %.0f MB, and %.0f MB where layers that several have are kept once\n",
			len(info.Images), float64(all)/1e6, float64(once)/1e6)
	}
	return info.WriteText(streams.Out, view, time.Now())
}

// verifyAll checks releases and prints a line for each that is what it should be; -o prints all of them, and nothing
// unless all are.
func (o *releaseInfoOptions) verifyAll(ctx context.Context, streams Streams, refs []string) error {
	var printValue func(io.Writer, any) error
	if o.output != "" && o.output != outputText {
		var err error
		if printValue, err = newValuePrinter(o.output); err != nil {
			return &UsageError{Err: err}
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

func (o *releaseInfoOptions) verifyOne(ctx context.Context, streams Streams, ref string) (verifiedRelease, error) {
	r, images, err := o.read.open(ctx, streams, ref)
	if err != nil {
		return verifiedRelease{}, err
	}
	if r.Image.Digest == "" {
		return verifiedRelease{}, &UsageError{Err: fmt.Errorf("%s is a folder: --verify is for images, whose digests say what is in them", ref)}
	}
	info, err := inspect.Describe(ctx, r)
	if err != nil {
		return verifiedRelease{}, err
	}
	if err := o.readImages(ctx, streams, info, images); err != nil {
		return verifiedRelease{}, err
	}
	return verifiedRelease{
		Image: r.Image.Pullspec, Digest: r.Image.Digest, Created: info.References.CreationTimestamp.Time,
		Version: info.Metadata.Version, Images: len(info.References.Spec.Tags),
	}, nil
}

// verifiedRelease is a release whose images are what they should be. Fields are added, never renamed or removed.
type verifiedRelease struct {
	Image   string         `json:"image"`
	Digest  release.Digest `json:"digest"`
	Version string         `json:"version"`
	Created time.Time      `json:"created"`
	Images  int            `json:"images"`
}

// compare tells what changed from one release to another: of images, APIs and roles or, with --contents, everything.
func (o *releaseInfoOptions) compare(ctx context.Context, streams Streams, from, to, mode string) error {
	if mode != "" && mode != "contents" {
		return &UsageError{Err: fmt.Errorf("--%s is about one release: name one, or leave it out to see what changed", mode)}
	}
	write := func(w io.Writer, c *inspect.Comparison) error { return c.WriteText(w, false) }
	if o.output != "" && o.output != outputText {
		printValue, err := newValuePrinter(o.output)
		if err != nil {
			return &UsageError{Err: err}
		}
		write = func(w io.Writer, c *inspect.Comparison) error { return printValue(w, c) }
	}
	before, _, err := o.read.open(ctx, streams, from)
	if err != nil {
		return err
	}
	after, _, err := o.read.open(ctx, streams, to)
	if err != nil {
		return err
	}
	comparison, err := inspect.Compare(ctx, before, after, inspect.CompareOptions{})
	if err != nil {
		return err
	}
	if mode != "contents" {
		comparison = comparison.Only(inspect.PartImages, inspect.PartAPIs)
	}
	return write(streams.Out, comparison)
}
