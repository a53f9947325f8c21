package release

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/internal/inputfile"
	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/extract"
	"github.com/cluster-version/cvo/pkg/author/extract/installconfig"
	"github.com/cluster-version/cvo/pkg/author/inspect"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/progress"
	"github.com/cluster-version/cvo/pkg/cli/reading"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/oci/image"
	"github.com/cluster-version/cvo/pkg/release"
)

type extractOptions struct {
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
	read                reading.Flags
	progress            progress.Flags
}

func newExtractCmd(streams command.Streams) *cobra.Command {
	o := &extractOptions{}
	cmd := &cobra.Command{
		Use:   "extract [IMAGE | --from=IMAGE]",
		Short: "Write the files of a release image to a folder",
		Long: `Write the files of a release image to a folder, byte for byte.

IMAGE is a pullspec, by tag or digest; an OCI layout on this machine, as DIR, DIR:VERSION or DIR@DIGEST; a folder with a
release; or a version that the cluster knows. The default is the release that the cluster runs or is updating to.

By default, the command writes the files in release-manifests/ of the image: all manifests, image-references and
release-metadata. With --layout=image it writes both folders of the image: manifests/ (templates of the operator's own
manifests) and release-manifests/. 'cvo start --payload-dir', 'cvo release graph' and 'cvo upgrade diff' read this layout.

--included selects the manifests that a cluster would get, by its profile, feature set, feature gates, capabilities and
overrides, or by the settings in --install-config. It drops whole documents and does not change the others.

The command writes nothing until it has the complete content and has verified its digests. An existing file with other
content is an error; --overwrite replaces it. Digests are always verified. With --trust the command verifies the signature
before it reads the release. Exit code 3 means that no trusted signer has signed it and that nothing was written.`,
		Example: `  cvo release extract registry.example/platform/release:2.0.0 --to ./2.0.0

  # Prepare for 'cvo start --payload-dir ./2.0.0', if the platform team has signed the release
  cvo release extract registry.example/platform/release:2.0.0 --to ./2.0.0 --layout=image --trust trust.yaml

  # Print one file
  cvo release extract 2.0.0 --file release-metadata

  # Write the manifests that this cluster would get from a known update
  cvo release extract 2.0.0 --included --to ./2.0.0

  # Write the credentials requests for the cloud's administrator, before an install
  cvo release extract registry.example/platform/release:2.0.0 --credentials-requests --included \
    --install-config install-config.yaml --to ./requests`,
		Args: command.UsageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.ref = args[0]
			}
			if err := o.check(cmd.Flags().Changed); err != nil {
				return &command.UsageError{Err: err}
			}
			return o.run(cmd.Context(), streams)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "`release` to extract, instead of an argument")
	f.StringVar(&o.to, "to", ".", "`folder` to write to; created if missing")
	f.StringVar(&o.layout, "layout", string(extract.LayoutFlat), "flat, or image for the two folders of the image")
	f.BoolVar(&o.overwrite, "overwrite", false, "replace existing files with other content")
	f.StringVar(&o.file, "file", "", "print the file with this `name` instead")
	f.BoolVar(&o.included, "included", false, "select only the manifests that a cluster would get")
	f.StringVar(&o.installConfig, "install-config", "", "with --included: describe the cluster by this configuration `file` of OpenShift's installer")
	f.BoolVar(&o.credentialsRequests, "credentials-requests", false, "select only CredentialsRequests")
	f.StringVar(&o.cloud, "cloud", "", "with --credentials-requests: select only the ones for this `cloud`; with --included, default the cluster's")
	printing.AddFlag(cmd, &o.output)
	o.progress.Add(f)
	o.read.Add(cmd)
	command.LowMemory(cmd) // it streams
	command.RefuseVendorFlags(cmd, extractVendorFlags())
	cmd.ValidArgsFunction = o.read.Complete(1)
	var layouts []string
	for _, l := range extract.Layouts() {
		layouts = append(layouts, string(l))
	}
	for name, values := range map[string][]string{"layout": layouts, "cloud": extract.Clouds()} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	_ = cmd.RegisterFlagCompletionFunc("from", o.read.Complete(1))
	_ = cmd.RegisterFlagCompletionFunc("file", o.completeFile)
	_ = cmd.MarkFlagDirname("to")
	return cmd
}

func extractVendorFlags() []command.VendorFlag {
	const (
		binaries = "it is for one vendor's client and installer; get their image with 'cvo release info --image-for NAME', and copy them from it with any container tool"
		sources  = "list repositories and commits with 'cvo release info --commits', and fetch them with git"
	)
	return []command.VendorFlag{
		{Name: "command", Instead: binaries},
		{Name: "command-os", Instead: binaries},
		{Name: "tools", Switched: true, Instead: binaries},
		{Name: "signing-key", Instead: binaries},
		{Name: "git", Instead: sources},
	}
}

// completeFile offers the files in the release.
func (o *extractOptions) completeFile(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ref := o.from
	if len(args) > 0 {
		ref = args[0]
	}
	if ref == "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	r, _, err := o.read.Open(ctx, command.Silent(), ref)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, err := r.Names(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// check rejects contradictory flags.
func (o *extractOptions) check(given func(flag string) bool) error {
	switch {
	case o.ref != "" && o.from != "":
		return errors.New("the release is named twice, as an argument and with --from: omit one of them")
	case !slices.Contains(extract.Layouts(), extract.Layout(o.layout)):
		return fmt.Errorf("unknown --layout %q: use flat or image", o.layout)
	case o.to == "":
		return errors.New("--to is empty: name a folder")
	case o.installConfig != "" && !o.included:
		return errors.New("--install-config selects manifests: use it with --included")
	case o.cloud != "" && !o.credentialsRequests:
		return errors.New("--cloud selects CredentialsRequests: use it with --credentials-requests")
	case o.layout == string(extract.LayoutImage) && (o.included || o.credentialsRequests):
		return errors.New("--layout=image is a whole release: omit --included and --credentials-requests")
	}
	if o.file != "" {
		for _, flag := range []string{"to", "layout", "overwrite", "included", "credentials-requests", "output"} {
			if given(flag) {
				return fmt.Errorf("--file prints one file: omit --%s", flag)
			}
		}
	}
	return printing.Check(&o.output)
}

func (o *extractOptions) run(ctx context.Context, streams command.Streams) error {
	if o.from != "" {
		o.ref = o.from
	}
	p := o.progress.Start(ctx, streams, "reading layers")
	defer p.Close()
	streams = p.Streams()
	o.read.Registry.Layers = func(l image.Progress) {
		p.Expect(l.Layers)
		p.Report(progress.Event{Item: fmt.Sprintf("layer %d", l.Index), Done: l.Bytes, Total: l.Total, Ended: l.Bytes == l.Total, Silent: true})
	}
	r, images, err := o.read.Open(ctx, streams, o.ref)
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
	selection, err := o.selection(ctx, streams, r, images)
	if err != nil {
		return err
	}
	out, err := extract.Files(ctx, r, o.to, extract.Options{
		Layout: extract.Layout(o.layout), Selection: selection, Overwrite: o.overwrite,
	})
	if conflict := (*extract.ConflictError)(nil); errors.As(err, &conflict) {
		return fmt.Errorf("extracting %s: nothing was written: %w: name another folder, or replace them with --overwrite", r.Image.Pullspec, err)
	}
	if err != nil {
		return fmt.Errorf("extracting %s to %s: %w", r.Image.Pullspec, o.to, err)
	}
	return o.report(streams, r, out)
}

// selection returns the parts of the release to extract.
func (o *extractOptions) selection(ctx context.Context, streams command.Streams, r *inspect.Release, images *image.Reader) (extract.Selection, error) {
	selection := extract.Selection{CredentialsRequests: o.credentialsRequests}
	var err error
	if o.cloud != "" {
		if selection.Provider, err = extract.ProviderOf(o.cloud); err != nil {
			return selection, &command.UsageError{Err: err}
		}
	}
	if !o.included {
		if o.credentialsRequests {
			streams.Infof("The files include CredentialsRequests of optional and unreleased parts: use --included to select the ones for a cluster")
		}
		return selection, nil
	}
	filter, platform, err := o.clusterFilter(ctx, streams, r, images)
	if err != nil {
		return selection, err
	}
	if platform != "" && o.cloud != "" && !strings.EqualFold(platform, o.cloud) {
		return selection, &command.UsageError{Err: fmt.Errorf("--cloud is %s, but the cluster's platform is %s: omit --cloud or --included", o.cloud, platform)}
	}
	selection.Filter = &filter
	if o.cloud == "" {
		selection.Provider, _ = extract.ProviderOf(platform) // other platforms have no cloud
	}
	return selection, nil
}

// clusterFilter returns the filter that the existing or planned cluster uses to select manifests, and its platform.
func (o *extractOptions) clusterFilter(ctx context.Context, streams command.Streams, r *inspect.Release, images *image.Reader,
) (inclusion.Filter, string, error) {
	if o.installConfig == "" {
		cluster, err := reading.ClusterSelection(ctx, &o.read.Versions)
		if err != nil {
			return inclusion.Filter{}, "", fmt.Errorf("--included needs the settings of a cluster: %w (or describe it with --install-config)", err)
		}
		filter, enables, err := cluster.ForUpdate(ctx, r, images)
		if enables != "" {
			streams.Infof("%s", enables)
		}
		return filter, cluster.Platform, err
	}
	data, err := inputfile.Read(o.installConfig)
	if err != nil {
		return inclusion.Filter{}, "", fmt.Errorf("reading --install-config: %w", err)
	}
	config, err := installconfig.Parse(data)
	if err != nil {
		return inclusion.Filter{}, "", fmt.Errorf("--install-config %s: %w", o.installConfig, err)
	}
	filter, err := extract.ClusterFilter(ctx, r, config, command.EnvOr("CLUSTER_PROFILE", api.DefaultProfile))
	return filter, config.Platform, err
}

// extractResult is the output for scripts; fields are added, never renamed or removed.
type extractResult struct {
	Image     string            `json:"image"`
	Digest    release.Digest    `json:"digest,omitempty"`
	Version   string            `json:"version,omitempty"`
	Created   time.Time         `json:"created,omitzero"`
	To        string            `json:"to"`
	Layout    extract.Layout    `json:"layout"`
	Files     int               `json:"files"`
	Bytes     int64             `json:"bytes"`
	Unchanged int               `json:"unchanged"`
	LeftOut   []extract.LeftOut `json:"leftOut,omitempty"`
}

func (o *extractOptions) report(streams command.Streams, r *inspect.Release, out *extract.Result) error {
	if o.output != "" {
		return printing.Structured(streams, o.output, extractResult{
			Image: r.Image.Pullspec, Digest: r.Image.Digest, Version: out.Version, Created: out.Created, To: o.to,
			Layout: extract.Layout(o.layout), Files: out.Files, Bytes: out.Bytes, Unchanged: out.Unchanged, LeftOut: out.LeftOut,
		})
	}
	if n := len(out.LeftOut); n > 0 {
		streams.Infof("Excluded %s; -o json lists the reasons", printable.Count(n, "object"))
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
