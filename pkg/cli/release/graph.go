package release

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/reading"
	"github.com/cluster-version/cvo/pkg/engine/drawing"
	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/release"
)

type graphOptions struct {
	source   string
	mode     string
	output   string
	excluded bool
	cluster  reading.ClusterFlags
	read     reading.Flags
}

func newGraphCmd(streams command.Streams) *cobra.Command {
	var opts graphOptions
	cmd := &cobra.Command{
		Use:   "graph IMAGE|DIR",
		Short: "Print the order in which a release is applied, or its excluded manifests",
		Long: `Print the order in which the operator applies a release.

The release is an image in a registry; an image in an OCI layout on this machine, as DIR, DIR:VERSION or DIR@DIGEST; a
folder with manifests/ and release-manifests/; or a version that the cluster knows. Signatures are only checked with
--trust.

In mode updating, the operator applies runlevels sequentially, the components of a runlevel in parallel, and the files of a
component sequentially. In modes initializing and reconciling it orders only dependencies: a CRD before the objects of its
kind, and a Namespace before its objects. If a dependency contradicts the runlevels, the graph moves the CRD or Namespace
forward to its first user, and marks it. In every mode a Job is a barrier: it waits for everything before it.

With --excluded the command prints the manifests that a cluster with this profile, feature set, feature gates and
capabilities does not get, and the reasons.`,
		Example: `  # Print the order of an update to this release
  cvo release graph registry.example/platform/release:2.1.0

  # Draw the graph of a release that is not built yet
  cvo release graph ./release -o svg > release.svg

  # List the manifests that a cluster without optional capabilities does not get
  cvo release graph ./release --capability None --excluded

  # List the longest chain of manifests
  cvo release graph ./release -o json | jq '.nodes[.criticalPath[]].object'`,
		Args: command.UsageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.source = args[0]
			return opts.run(cmd.Context(), streams)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.mode, "mode", "updating", "mode of the operator: initializing, updating or reconciling")
	flags.StringVarP(&opts.output, "output", "o", "text", "text, json or yaml; for the graph also dot or svg")
	flags.BoolVar(&opts.excluded, "excluded", false, "list the excluded manifests and the reasons")
	opts.cluster.Add(flags)
	opts.read.Add(cmd)
	cmd.ValidArgsFunction = opts.read.Complete(1)
	for name, values := range map[string][]string{
		"mode": {"initializing", "updating", "reconciling"}, "output": {"text", "json", "yaml", "dot", "svg"},
		"feature-set": inclusion.KnownFeatureSets(), "profile": {}, "feature-gate": {},
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func (o *graphOptions) run(ctx context.Context, streams command.Streams) error {
	mode, err := release.ParseMode(o.mode)
	if err != nil {
		return &command.UsageError{Err: err}
	}
	write, err := o.writer(mode)
	if err != nil {
		return &command.UsageError{Err: err}
	}
	p, err := reading.Load(ctx, streams, o.source, o.read, o.cluster)
	if err != nil {
		return err
	}
	return write(streams.Out, p)
}

// writer returns the function that prints a payload in the chosen format.
func (o *graphOptions) writer(mode release.Mode) (func(io.Writer, *payload.Payload) error, error) {
	formats := map[string]func(io.Writer, *taskgraph.Graph) error{
		"text": escapedGraph(drawing.WriteText), "dot": escapedGraph(drawing.WriteDOT), "svg": escapedGraph(drawing.WriteSVG),
		"json": func(w io.Writer, g *taskgraph.Graph) error { return printing.JSON(w, drawing.NewDocument(g)) },
		"yaml": func(w io.Writer, g *taskgraph.Graph) error { return printing.YAML(w, drawing.NewDocument(g)) },
	}
	if o.excluded {
		switch o.output {
		case "text":
			return writeExcluded, nil
		case "json":
			return func(w io.Writer, p *payload.Payload) error { return printing.JSON(w, newExclusions(p)) }, nil
		case "yaml":
			return func(w io.Writer, p *payload.Payload) error { return printing.YAML(w, newExclusions(p)) }, nil
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

// escapedGraph wraps a graph writer, so that its output cannot control a terminal.
func escapedGraph(write func(io.Writer, *taskgraph.Graph) error) func(io.Writer, *taskgraph.Graph) error {
	return func(w io.Writer, g *taskgraph.Graph) error {
		var text strings.Builder
		if err := write(&text, g); err != nil {
			return err
		}
		_, err := io.WriteString(w, printable.Lines(text.String()))
		return err
	}
}

// exclusions is the output of --excluded for scripts; fields are added, never renamed or removed.
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
	fmt.Fprintf(&out, "%s: %d manifests included, %d excluded\n", printable.Text(list.Version), list.Included, len(list.Excluded))
	if len(list.Excluded) > 0 {
		table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		fmt.Fprint(table, "\nFILE\tOBJECT\tREASON\n")
		for _, e := range list.Excluded {
			file := e.File
			if e.Document > 1 {
				file = fmt.Sprintf("%s[%d]", file, e.Document)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\n", printable.Text(file), printable.Text(e.Object.String()), printable.Text(e.Reason))
		}
		_ = table.Flush() // writes to memory
	}
	_, err := io.WriteString(w, out.String())
	return err
}
