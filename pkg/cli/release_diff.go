package cli

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/inspect"
)

type releaseDiffOptions struct {
	from, to  string
	only      []string
	component string
	literal   bool
	full      bool
	exitCode  bool
	output    string
	read      readFlags
}

func newReleaseDiffCmd(streams Streams) *cobra.Command {
	var opts releaseDiffOptions
	cmd := &cobra.Command{
		Use:   "diff FROM TO",
		Short: "Print what is different in another release: images, APIs, permissions, manifests",
		Long: `Print what is different in another release.

Both are images in a registry, OCI layouts, or folders with a release. Told are

  images     which are changed, rebuilt from the same commit, added and removed
  apis       what becomes of the APIs that CRDs bring (! breaks something), what roles allow more and less, and which
             feature gates are on where they were off
  manifests  every object, field by field: ~ another value, + new, - gone; x deleted by the release; ? orphaned, which is
             gone from the release while nothing deletes it in clusters

Everything in the releases is compared, whatever cluster it is for. The version of each release and the pullspecs of its
images are compared by what they stand for, unless --literal asks for the values. What an update would do to one cluster
is told by 'cvo upgrade diff'.

The exit code is 0 whether or not something is different; with --exit-code it is 3 if something is.`,
		Example: `  # What is in the next release?
  cvo release diff registry.example/platform/release:1.0.0 registry.example/platform/release:1.1.0

  # Which APIs break?
  cvo release diff 1.0.0 1.1.0 --only apis -o json | jq '.definitions[] | select(.breaking) | .name'

  # What has changed in one component of a release that is not built yet
  cvo release diff registry.example/platform/release:1.0.0 ./release --component dns --full`,
		Args: usageArgs(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.from, opts.to = args[0], args[1]
			return opts.run(cmd.Context(), streams)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&opts.only, "only", nil, "`part` to tell: images, apis or manifests (repeat for more; default all)")
	flags.StringVar(&opts.component, "component", "", "tell of this `component` only")
	flags.BoolVar(&opts.literal, "literal", false, "compare versions and pullspecs as they stand")
	flags.BoolVar(&opts.full, "full", false, "do not shorten long values")
	flags.BoolVar(&opts.exitCode, "exit-code", false, "exit with 3 if something is different")
	flags.StringVarP(&opts.output, "output", "o", outputText, "text, json, yaml, jsonpath=… or go-template=…")
	opts.read.add(cmd)
	cmd.ValidArgsFunction = opts.read.complete(2)
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(partNames(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		append([]string{outputText}, valueFormats()...), cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	return cmd
}

func partNames() []string {
	var names []string
	for _, p := range inspect.Parts() {
		names = append(names, string(p))
	}
	return names
}

func (o *releaseDiffOptions) run(ctx context.Context, streams Streams) error {
	parts, write, err := o.check()
	if err != nil {
		return &UsageError{Err: err}
	}
	from, _, err := o.read.open(ctx, streams, o.from)
	if err != nil {
		return err
	}
	to, _, err := o.read.open(ctx, streams, o.to)
	if err != nil {
		return err
	}
	comparison, err := inspect.Compare(ctx, from, to, inspect.CompareOptions{Literal: o.literal, Component: o.component})
	if err != nil {
		return err
	}
	if err := write(streams.Out, comparison.Only(parts...)); err != nil {
		return err
	}
	if o.exitCode && !comparison.Identical() {
		return &RefusedError{Err: fmt.Errorf("%s and %s are different", o.from, o.to)}
	}
	return nil
}

// check looks at the flags, and returns what is told and how it is printed.
func (o *releaseDiffOptions) check() ([]inspect.Part, func(io.Writer, *inspect.Comparison) error, error) {
	var parts []inspect.Part
	for _, name := range o.only {
		if !slices.Contains(inspect.Parts(), inspect.Part(name)) {
			return nil, nil, fmt.Errorf("unknown part %q: --only takes images, apis and manifests", name)
		}
		parts = append(parts, inspect.Part(name))
	}
	if o.output == outputText {
		return parts, func(w io.Writer, c *inspect.Comparison) error { return c.WriteText(w, o.full) }, nil
	}
	printer, err := newValuePrinter(o.output)
	if err != nil {
		return nil, nil, err
	}
	return parts, func(w io.Writer, c *inspect.Comparison) error { return printer(w, c) }, nil
}
