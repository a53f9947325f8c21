package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/image"
	"github.com/cluster-version/cvo/pkg/inspect"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

type releaseExtractOptions struct {
	ref                 string
	from                string
	to                  string
	layout              string
	overwrite           bool
	file                string
	included            bool
	installConfig       string
	credentialsRequests bool
	cloud               string
	output              string
	read                readFlags
	progress            progressFlags
}

func newReleaseExtractCmd(streams Streams) *cobra.Command {
	o := &releaseExtractOptions{}
	cmd := &cobra.Command{
		Use:   "extract [IMAGE | --from=IMAGE]",
		Short: "Write the files of a release image into a folder",
		Long: `Write the files of a release image into a folder, byte for byte as they are in the image.

IMAGE is a pullspec, by tag or digest; an OCI layout on this machine, as DIR, DIR:VERSION or DIR@DIGEST; a folder with a
release; or a version that the cluster knows. Without IMAGE it is the release that the cluster is on or moving to.

The folder gets what the image has in release-manifests/: all manifests, image-references and release-metadata. With
--layout=image it gets the two folders of the image instead, manifests/ (the operator's own, templates) and
release-manifests/, which "cvo start --payload-dir", "cvo release graph" and "cvo upgrade diff" take.

--included keeps what a cluster would get, by its own profile, feature set and gates, capabilities and overrides, or by
those of --install-config. Documents are left out, and those that remain keep every byte.

Nothing is written until all of it is there and is what its digest says. A file that is there already with other content
is an error, unless --overwrite replaces it. Digests are always checked. Signatures are checked with --trust, before
anything of the release is read: exit code 3 says that nobody trusted has signed it, and nothing was written.`,
		Example: `  cvo release extract registry.example/platform/release:2.0.0 --to ./2.0.0

  # For 'cvo start --payload-dir ./2.0.0', if the platform team has signed it
  cvo release extract registry.example/platform/release:2.0.0 --to ./2.0.0 --layout=image --trust trust.yaml

  # One file
  cvo release extract 2.0.0 --file release-metadata

  # What this cluster would get of an update that it knows
  cvo release extract 2.0.0 --included --to ./2.0.0

  # What the cloud's administrator has to provide before an install
  cvo release extract registry.example/platform/release:2.0.0 --credentials-requests --included \
    --install-config install-config.yaml --to ./requests`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.ref = args[0]
			}
			if err := o.check(cmd.Flags().Changed); err != nil {
				return &UsageError{Err: err}
			}
			return o.run(cmd.Context(), streams)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "the `release` to extract, instead of an argument")
	f.StringVar(&o.to, "to", ".", "`folder` to write to, which is made if it is not there")
	f.StringVar(&o.layout, "layout", string(inspect.LayoutFlat), "flat, or image for the two folders as they are in the image")
	f.BoolVar(&o.overwrite, "overwrite", false, "replace files that are there already with other content")
	f.StringVar(&o.file, "file", "", "print the file of this `name` instead")
	f.BoolVar(&o.included, "included", false, "keep the manifests only that a cluster would get")
	f.StringVar(&o.installConfig, "install-config", "", "with --included: the cluster is the one that this `file` describes to OpenShift's installer")
	f.BoolVar(&o.credentialsRequests, "credentials-requests", false, "keep the CredentialsRequests only")
	f.StringVar(&o.cloud, "cloud", "", "with --credentials-requests: those for this `cloud`")
	addOutput(cmd, &o.output)
	o.progress.add(f)
	o.read.add(cmd)
	refuseVendorFlags(cmd, extractVendorFlags())
	cmd.ValidArgsFunction = o.read.complete(1)
	var layouts []string
	for _, l := range inspect.Layouts() {
		layouts = append(layouts, string(l))
	}
	for name, values := range map[string][]string{"layout": layouts, "cloud": inspect.Clouds()} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	_ = cmd.RegisterFlagCompletionFunc("from", o.read.complete(1))
	_ = cmd.RegisterFlagCompletionFunc("file", o.completeFile)
	_ = cmd.MarkFlagDirname("to")
	return cmd
}

func extractVendorFlags() []vendorFlag {
	const (
		binaries = "it is about one vendor's client and installer; 'cvo release info --image-for NAME' names the image they are in, from which any container tool copies them"
		sources  = "'cvo release info --commits' lists repositories and commits, for git to fetch"
	)
	return []vendorFlag{
		{name: "command", instead: binaries},
		{name: "command-os", instead: binaries},
		{name: "tools", switched: true, instead: binaries},
		{name: "signing-key", instead: binaries},
		{name: "git", instead: sources},
	}
}

// completeFile offers the files of the release.
func (o *releaseExtractOptions) completeFile(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ref := o.from
	if len(args) > 0 {
		ref = args[0]
	}
	if ref == "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	r, _, err := o.read.open(ctx, silent(), ref)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, err := r.Names(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// check refuses what does not go together.
func (o *releaseExtractOptions) check(given func(flag string) bool) error {
	switch {
	case o.ref != "" && o.from != "":
		return errors.New("the release is named twice: as an argument and with --from")
	case !slices.Contains(inspect.Layouts(), inspect.Layout(o.layout)):
		return fmt.Errorf("unknown --layout %q: use flat or image", o.layout)
	case o.to == "":
		return errors.New("--to is empty: name a folder")
	case o.installConfig != "" && !o.included:
		return errors.New("--install-config says which manifests are wanted: use it with --included")
	case o.cloud != "" && !o.credentialsRequests:
		return errors.New("--cloud chooses among CredentialsRequests: use it with --credentials-requests")
	case o.layout == string(inspect.LayoutImage) && (o.included || o.credentialsRequests):
		return errors.New("--layout=image is a whole release: leave --included and --credentials-requests out")
	}
	if o.file != "" {
		for _, flag := range []string{"to", "layout", "overwrite", "included", "credentials-requests", "output"} {
			if given(flag) {
				return fmt.Errorf("--file prints one file: leave --%s out", flag)
			}
		}
	}
	return checkOutput(&o.output)
}

func (o *releaseExtractOptions) run(ctx context.Context, streams Streams) error {
	readLean()
	if o.from != "" {
		o.ref = o.from
	}
	p := o.progress.start(streams, "reading layers")
	defer p.close()
	streams = p.streams()
	o.read.registry.layers = func(l image.Progress) {
		p.expect(l.Layers, 0)
		p.report(progressEvent{item: fmt.Sprintf("layer %d", l.Index), done: l.Bytes, total: l.Total, ended: l.Bytes == l.Total, unsaid: true})
	}
	r, _, err := o.read.open(ctx, streams, o.ref)
	if err != nil {
		return err
	}
	if o.file != "" {
		data, err := r.File(ctx, o.file)
		if err != nil {
			return err
		}
		_, err = streams.Out.Write(data)
		return err
	}
	selection, err := o.selection(ctx, streams, r)
	if err != nil {
		return err
	}
	out, err := r.Extract(ctx, o.to, inspect.ExtractOptions{
		Layout: inspect.Layout(o.layout), Selection: selection, Overwrite: o.overwrite,
	})
	if conflict := (*inspect.ConflictError)(nil); errors.As(err, &conflict) {
		return fmt.Errorf("extracting %s: nothing was written: %w: name another folder, or replace them with --overwrite", r.Image.Pullspec, err)
	}
	if err != nil {
		return fmt.Errorf("extracting %s to %s: %w", r.Image.Pullspec, o.to, err)
	}
	return o.report(streams, r, out)
}

// selection is what is wanted of the release.
func (o *releaseExtractOptions) selection(ctx context.Context, streams Streams, r *inspect.Release) (inspect.Selection, error) {
	selection := inspect.Selection{CredentialsRequests: o.credentialsRequests}
	var err error
	if o.cloud != "" {
		if selection.Provider, err = inspect.ProviderOf(o.cloud); err != nil {
			return selection, &UsageError{Err: err}
		}
	}
	if !o.included {
		if o.credentialsRequests {
			fmt.Fprintln(streams.Err, "info: CredentialsRequests of optional and of unreleased parts are among these: --included keeps what a cluster would get")
		}
		return selection, nil
	}
	filter, platform, err := o.clusterFilter(ctx, r)
	if err != nil {
		return selection, err
	}
	if platform != "" && o.cloud != "" && !strings.EqualFold(platform, o.cloud) {
		return selection, &UsageError{Err: fmt.Errorf("--cloud is %s, but the cluster's platform is %s: leave --cloud out, or --included", o.cloud, platform)}
	}
	selection.Filter = &filter
	return selection, nil
}

// clusterFilter is what the cluster, or the one to be installed, takes of the release, and the platform that it is on.
func (o *releaseExtractOptions) clusterFilter(ctx context.Context, r *inspect.Release) (manifest.Filter, string, error) {
	if o.installConfig == "" {
		filter, platform, err := o.read.versions.clusterSelection(ctx)
		if err != nil {
			return filter, "", fmt.Errorf("--included follows the cluster: %w (or describe one with --install-config)", err)
		}
		filter, err = r.WithVersion(ctx, filter)
		return filter, platform, err
	}
	data, err := os.ReadFile(o.installConfig)
	if err != nil {
		return manifest.Filter{}, "", fmt.Errorf("reading --install-config: %w", err)
	}
	config, err := inspect.ParseInstallConfig(data)
	if err != nil {
		return manifest.Filter{}, "", fmt.Errorf("--install-config %s: %w", o.installConfig, err)
	}
	filter, err := config.Filter(ctx, r, envOr("CLUSTER_PROFILE", api.DefaultProfile))
	return filter, config.Platform, err
}

// extractResult is what a script is told; fields are added, never renamed or removed.
type extractResult struct {
	Image     string            `json:"image"`
	Digest    release.Digest    `json:"digest,omitempty"`
	Version   string            `json:"version,omitempty"`
	Created   time.Time         `json:"created,omitzero"`
	To        string            `json:"to"`
	Layout    inspect.Layout    `json:"layout"`
	Files     int               `json:"files"`
	Bytes     int64             `json:"bytes"`
	Unchanged int               `json:"unchanged"`
	LeftOut   []inspect.LeftOut `json:"leftOut,omitempty"`
}

func (o *releaseExtractOptions) report(streams Streams, r *inspect.Release, out *inspect.Extracted) error {
	if o.output != "" {
		return printStructured(streams, o.output, extractResult{
			Image: r.Image.Pullspec, Digest: r.Image.Digest, Version: out.Version, Created: out.Created, To: o.to,
			Layout: inspect.Layout(o.layout), Files: out.Files, Bytes: out.Bytes, Unchanged: out.Unchanged, LeftOut: out.LeftOut,
		})
	}
	if n := len(out.LeftOut); n > 0 {
		fmt.Fprintf(streams.Err, "info: %d objects are left out, -o json says why\n", n)
	}
	text := "Extracted release payload"
	if r.Image.Digest != "" {
		text += fmt.Sprintf(" from digest %s", r.Image.Digest)
	}
	at := "an unknown time"
	if !out.Created.IsZero() {
		at = out.Created.Format(time.RFC3339)
	}
	_, err := fmt.Fprintf(streams.Out, "%s created at %s\n", text, at)
	return err
}

// silent is where shell completion says what it does.
func silent() Streams { return Streams{Out: io.Discard, Err: io.Discard} }
