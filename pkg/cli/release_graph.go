package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/taskgraph"
)

type releaseGraphOptions struct {
	source   string
	mode     string
	output   string
	excluded bool
	cluster  clusterFlags
	read     readFlags
}

func newReleaseGraphCmd(streams Streams) *cobra.Command {
	var opts releaseGraphOptions
	cmd := &cobra.Command{
		Use:   "graph IMAGE|DIR",
		Short: "Print the order in which a release is applied, or what of it is left out",
		Long: `Print the order in which a release is applied.

The release is an image in a registry; one in an OCI layout on this machine, as DIR, DIR:VERSION or DIR@DIGEST; a folder
that holds manifests/ and release-manifests/; or a version that the cluster knows. Looking at an image takes no signature,
unless --trust asks for one.

When updating, runlevels follow each other, the components of one run side by side, and the files of a component one
after the other. When initializing and reconciling nothing is ordered but what objects need: a CRD comes before the
objects of its kind, and a Namespace before what is in it. Where that contradicts the runlevels, the CRD or Namespace is
drawn forward to its first user, and marked. Jobs divide the order in every mode.

With --excluded it prints instead which manifests a cluster with this profile, feature set, feature gates and
capabilities does not get, and why.`,
		Example: `  # What would happen when, in an update to this release
  cvo release graph registry.example/platform/release:2.1.0

  # A picture of a release that has not been built yet
  cvo release graph ./release -o svg > release.svg

  # What a cluster without optional parts would leave out
  cvo release graph ./release --capability None --excluded

  # The longest chain of manifests
  cvo release graph ./release -o json | jq '.nodes[.criticalPath[]].object'`,
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.source = args[0]
			return opts.run(cmd.Context(), streams)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.mode, "mode", "updating", "what for: initializing, updating or reconciling")
	flags.StringVarP(&opts.output, "output", "o", "text", "text, json or yaml; for the graph also dot or svg")
	flags.BoolVar(&opts.excluded, "excluded", false, "list the manifests that are left out, and why")
	opts.cluster.add(flags)
	opts.read.add(cmd)
	cmd.ValidArgsFunction = opts.read.complete(1)
	for name, values := range map[string][]string{
		"mode": {"initializing", "updating", "reconciling"}, "output": {"text", "json", "yaml", "dot", "svg"},
		"feature-set": manifest.KnownFeatureSets(), "profile": {}, "feature-gate": {},
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func (o *releaseGraphOptions) run(ctx context.Context, streams Streams) error {
	mode, err := release.ParseMode(o.mode)
	if err != nil {
		return &UsageError{Err: err}
	}
	write, err := o.writer(mode)
	if err != nil {
		return &UsageError{Err: err}
	}
	p, err := loadRelease(ctx, streams, o.source, o.read, o.cluster)
	if err != nil {
		return err
	}
	return write(streams.Out, p)
}

// writer returns what prints a payload as asked for.
func (o *releaseGraphOptions) writer(mode release.Mode) (func(io.Writer, *payload.Payload) error, error) {
	formats := map[string]func(io.Writer, *taskgraph.Graph) error{
		"text": taskgraph.WriteText, "dot": taskgraph.WriteDOT, "svg": taskgraph.WriteSVG, "json": taskgraph.WriteJSON,
		"yaml": func(w io.Writer, g *taskgraph.Graph) error { return writeYAML(w, taskgraph.NewDocument(g)) },
	}
	if o.excluded {
		switch o.output {
		case "text":
			return writeExcluded, nil
		case "json":
			return func(w io.Writer, p *payload.Payload) error { return writeJSON(w, newExclusions(p)) }, nil
		case "yaml":
			return func(w io.Writer, p *payload.Payload) error { return writeYAML(w, newExclusions(p)) }, nil
		}
		return nil, fmt.Errorf("unknown output %q: --excluded prints text, json or yaml", o.output)
	}
	format, ok := formats[o.output]
	if !ok {
		return nil, fmt.Errorf("unknown output %q: use text, dot, svg, json or yaml", o.output)
	}
	return func(w io.Writer, p *payload.Payload) error {
		g, err := taskgraph.Build(p.Manifests, mode)
		if err != nil {
			return err
		}
		return format(w, g)
	}, nil
}

// exclusions is what --excluded prints for scripts; fields are added, never renamed or removed.
type exclusions struct {
	Version  string      `json:"version"`
	Included int         `json:"included"`
	Excluded []exclusion `json:"excluded"`
}

type exclusion struct {
	File     string      `json:"file"`
	Document int         `json:"document"`
	Object   manifest.ID `json:"object"`
	Reason   string      `json:"reason"`
}

func newExclusions(p *payload.Payload) exclusions {
	list := exclusions{Version: p.Release.Version, Included: len(p.Manifests), Excluded: make([]exclusion, 0, len(p.Excluded))}
	for _, e := range p.Excluded {
		m := e.Manifest
		list.Excluded = append(list.Excluded, exclusion{File: m.File, Document: m.Document, Object: m.ID(), Reason: e.Reason})
	}
	return list
}

func writeExcluded(w io.Writer, p *payload.Payload) error {
	list := newExclusions(p)
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %d manifests included, %d left out\n", printable(list.Version), list.Included, len(list.Excluded))
	if len(list.Excluded) > 0 {
		table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		fmt.Fprint(table, "\nFILE\tOBJECT\tREASON\n")
		for _, e := range list.Excluded {
			file := e.File
			if e.Document > 1 {
				file = fmt.Sprintf("%s[%d]", file, e.Document)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\n", printable(file), printable(e.Object.String()), printable(e.Reason))
		}
		_ = table.Flush() // writes to memory
	}
	_, err := io.WriteString(w, out.String())
	return err
}
