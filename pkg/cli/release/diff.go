package release

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/author/compare"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/reading"
	"github.com/cluster-version/cvo/pkg/cli/registries"
)

type diffOptions struct {
	from, to  string
	only      []string
	component string
	literal   bool
	full      bool
	exitCode  bool
	output    string
	read      reading.Flags
}

func newDiffCmd(streams command.Streams) *cobra.Command {
	var opts diffOptions
	cmd := &cobra.Command{
		Use:   "diff FROM TO",
		Short: "Compare two releases: images, APIs, permissions, manifests",
		Long: `Compare two releases. Each is an image in a registry, an OCI layout, or a folder with a release. The command shows

  images     changed, rebuilt from the same commit, added and removed images
  apis       changes to the APIs in CRDs (! marks a breaking change), permissions that roles add and remove, and feature
             gates that are now enabled
  manifests  every object, field by field: ~ changed value, + new, - removed; x deleted by the release; ? orphaned: the
             release no longer contains it, and nothing deletes it in clusters

The command compares everything in the releases, for all clusters. In manifests it ignores changes to the release's version
and to the pullspecs of its images; --literal compares these values as well. To see the changes for one cluster, use
'cvo upgrade diff'.

The exit code is 0 with or without differences. With --exit-code it is 3 if there are differences.`,
		Example: `  # Compare with the next release
  cvo release diff registry.example/platform/release:1.0.0 registry.example/platform/release:1.1.0

  # List the APIs with breaking changes
  cvo release diff 1.0.0 1.1.0 --only apis -o json | jq '.definitions[] | select(.breaking) | .name'

  # Compare one component with a release that is not built yet
  cvo release diff registry.example/platform/release:1.0.0 ./release --component dns --full`,
		Args: command.UsageArgs(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.from, opts.to = args[0], args[1]
			return opts.run(cmd.Context(), streams)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&opts.only, "only", nil, "`part` to compare: images, apis or manifests (repeat for more; default all)")
	flags.StringVar(&opts.component, "component", "", "compare only this `component`")
	flags.BoolVar(&opts.literal, "literal", false, "compare versions and pullspecs literally")
	flags.BoolVar(&opts.full, "full", false, "do not shorten long values")
	flags.BoolVar(&opts.exitCode, "exit-code", false, "exit with 3 if there are differences")
	flags.StringVarP(&opts.output, "output", "o", printing.FormatText, "text, json, yaml, jsonpath=… or go-template=…")
	opts.read.Add(cmd)
	registries.LimitLookups(flags)
	cmd.ValidArgsFunction = opts.read.Complete(2)
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(partNames(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		append([]string{printing.FormatText}, printing.ValueFormats()...), cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	return cmd
}

func partNames() []string {
	var names []string
	for _, p := range compare.Parts() {
		names = append(names, string(p))
	}
	return names
}

func (o *diffOptions) run(ctx context.Context, streams command.Streams) error {
	parts, write, err := o.check()
	if err != nil {
		return &command.UsageError{Err: err}
	}
	from, _, err := o.read.Open(ctx, streams, o.from)
	if err != nil {
		return err
	}
	to, _, err := o.read.Open(ctx, streams, o.to)
	if err != nil {
		return err
	}
	comparison, err := compare.Releases(ctx, from, to, compare.Options{Literal: o.literal, Component: o.component})
	if err != nil {
		return err
	}
	if err := write(streams.Out, comparison.Only(parts...)); err != nil {
		return err
	}
	if o.exitCode && !comparison.Identical() {
		return &command.RefusedError{Err: fmt.Errorf("%s and %s are different", o.from, o.to)}
	}
	return nil
}

// check validates the flags and returns the parts to compare and the function that prints them.
func (o *diffOptions) check() ([]compare.Part, func(io.Writer, *compare.Result) error, error) {
	var parts []compare.Part
	for _, name := range o.only {
		if !slices.Contains(compare.Parts(), compare.Part(name)) {
			return nil, nil, fmt.Errorf("unknown part %q: --only accepts images, apis and manifests", name)
		}
		parts = append(parts, compare.Part(name))
	}
	if o.output == printing.FormatText {
		return parts, func(w io.Writer, c *compare.Result) error { return c.WriteText(w, o.full) }, nil
	}
	printer, err := printing.NewValuePrinter(o.output)
	if err != nil {
		return nil, nil, err
	}
	return parts, func(w io.Writer, c *compare.Result) error { return printer(w, c) }, nil
}
