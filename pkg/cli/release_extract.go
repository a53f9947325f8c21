package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/assemble"
)

type releaseExtractOptions struct {
	ref      string
	to       string
	file     string
	registry imageFlags
}

func newReleaseExtractCmd(streams Streams) *cobra.Command {
	var opts releaseExtractOptions
	cmd := &cobra.Command{
		Use:   "extract IMAGE",
		Short: "Write the files of a release image into a folder",
		Long: `Write the files of a release image into a folder, byte for byte as they are in the image.

IMAGE is a pullspec, by tag or digest, or an OCI layout on this machine: DIR, DIR:VERSION or DIR@DIGEST. The folder gets
the two folders of the image, manifests/ (the operator's own, templates) and release-manifests/ (everything else), so that
it can be given to "cvo release graph DIR" and "cvo start --payload-dir DIR". Digests are checked; signatures are not.

--file prints one file instead, such as release-metadata, image-references or a manifest.`,
		Example: `  cvo release extract registry.example/platform/release:2.0.0 --to ./2.0.0
  cvo release extract registry.example/platform/release@sha256:… --file release-metadata`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.ref = args[0]
			return opts.run(cmd.Context(), streams)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.to, "to", ".", "folder to write to")
	flags.StringVar(&opts.file, "file", "", "print this file")
	opts.registry.add(flags)
	cmd.MarkFlagsMutuallyExclusive("to", "file")
	return cmd
}

func (o *releaseExtractOptions) run(ctx context.Context, streams Streams) error {
	images, err := o.registry.images("")
	if err != nil {
		return err
	}
	extracted, err := assemble.Extract(ctx, images, o.ref)
	if err != nil {
		return err
	}
	if o.file != "" {
		data, err := extracted.File(o.file)
		if err != nil {
			return err
		}
		_, err = streams.Out.Write(data)
		return err
	}
	if o.to == "" {
		return &UsageError{Err: errors.New("--to is empty: name a folder")}
	}
	if err := extracted.WriteFolder(o.to); err != nil {
		return err
	}
	created := "an unknown time"
	if !extracted.Created.IsZero() {
		created = extracted.Created.Format(time.RFC3339)
	}
	_, err = fmt.Fprintf(streams.Out, "Extracted release payload from digest %s created at %s\n", extracted.Image.Digest, created)
	return err
}
