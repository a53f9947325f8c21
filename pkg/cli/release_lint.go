package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/lint"
)

const outputSARIF = "sarif"

type releaseLintOptions struct {
	source     string
	output     string
	strict     bool
	disable    []string
	infos      bool
	rules      bool
	explain    string
	kubernetes string
	read       readFlags
}

func newReleaseLintCmd(streams Streams) *cobra.Command {
	var opts releaseLintOptions
	cmd := &cobra.Command{
		Use:   "lint RELEASE",
		Short: "Look for mistakes in a release before a cluster finds them",
		Long: `Look for mistakes in a release before a cluster finds them.

The release is an image in a registry, an OCI layout, or a folder that holds manifests/ and release-manifests/. Every document of every file is read, and the objects are compared with each other: for every
profile, feature set and feature gate, not for one cluster.

An error keeps the release, or an object of it, from being applied; a warning says that something hardly does what its
author meant. The exit code is 3 if there are errors, or warnings with --strict, and 0 otherwise.`,
		Example: `  # A release that is about to be built
  cvo release lint ./release

  # In a pipeline, where nothing may be wrong but what is known
  cvo release lint ./release --strict --disable byte-order-mark,unknown-profile -o sarif > lint.sarif

  # What is there to be found, and what is this about
  cvo release lint --rules
  cvo release lint --explain duplicate-object`,
		Args: usageArgs(func(cmd *cobra.Command, args []string) error {
			if opts.rules || opts.explain != "" {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.ExactArgs(1)(cmd, args)
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				opts.source = args[0]
			}
			return opts.run(cmd.Context(), streams)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&opts.output, "output", "o", outputText, "text, json, yaml or sarif")
	flags.BoolVar(&opts.strict, "strict", false, "refuse the release for warnings, too")
	flags.StringSliceVar(&opts.disable, "disable", nil, "`rule` that is not looked for (repeat, or separate by commas, for more)")
	flags.BoolVar(&opts.infos, "info", false, "print what is only worth knowing, too")
	flags.BoolVar(&opts.rules, "rules", false, "list the rules")
	flags.StringVar(&opts.explain, "explain", "", "say what a `rule` is about")
	flags.StringVar(&opts.kubernetes, "kubernetes-version", "", "`version` that the release is for, such as 1.36; default what its images say")
	opts.read.add(cmd)
	opts.complete(cmd)
	cmd.MarkFlagsMutuallyExclusive("rules", "explain")
	return cmd
}

// complete completes arguments and values of flags.
func (o *releaseLintOptions) complete(cmd *cobra.Command) {
	cmd.ValidArgsFunction = o.read.complete(1)
	for name, values := range map[string][]string{
		"output": {outputText, outputJSON, outputYAML, outputSARIF}, "disable": lint.RuleIDs(), "explain": lint.RuleIDs(),
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

func (o *releaseLintOptions) run(ctx context.Context, streams Streams) error {
	switch {
	case o.rules:
		return o.writeRules(streams.Out, lint.Rules())
	case o.explain != "":
		rule, ok := lint.RuleByID(o.explain)
		if !ok {
			return &UsageError{Err: unknownRule(o.explain)}
		}
		return o.writeRule(streams.Out, rule)
	}
	write, err := o.check()
	if err != nil {
		return &UsageError{Err: err}
	}
	release, _, err := o.read.open(ctx, streams, o.source)
	if err != nil {
		return err
	}
	fsys, err := release.Files(ctx)
	if err != nil {
		return err
	}
	files, err := lint.ReadFiles(fsys)
	if err != nil {
		return err
	}
	report := lint.Check(files, lint.Options{Disable: o.disable, Kubernetes: o.kubernetes})
	if err := write(streams.Out, report); err != nil {
		return err
	}
	switch t := report.Totals; {
	case t.Errors > 0:
		return &RefusedError{Err: fmt.Errorf("%s is not fit to be applied: %s", o.source, t)}
	case t.Warnings > 0 && o.strict:
		return &RefusedError{Err: fmt.Errorf("%s has warnings, and --strict takes them for errors: %s", o.source, t)}
	}
	return nil
}

func unknownRule(id string) error {
	return fmt.Errorf("unknown rule %q: cvo release lint --rules lists them", id)
}

// check looks at the flags, and returns what prints a report as asked for.
func (o *releaseLintOptions) check() (func(io.Writer, *lint.Report) error, error) {
	for _, id := range o.disable {
		if !slices.Contains(lint.RuleIDs(), id) {
			return nil, unknownRule(id)
		}
	}
	if o.kubernetes != "" {
		if err := lint.ParseKubernetes(o.kubernetes); err != nil {
			return nil, fmt.Errorf("--kubernetes-version: %w", err)
		}
	}
	switch o.output {
	case outputText:
		return func(w io.Writer, r *lint.Report) error { return lint.WriteText(w, r, o.infos) }, nil
	case outputJSON:
		return func(w io.Writer, r *lint.Report) error { return writeJSON(w, r) }, nil
	case outputYAML:
		return func(w io.Writer, r *lint.Report) error { return writeYAML(w, r) }, nil
	case outputSARIF:
		return lint.WriteSARIF, nil
	}
	return nil, fmt.Errorf("unknown output %q: use text, json, yaml or sarif", o.output)
}

func (o *releaseLintOptions) writeRules(w io.Writer, rules []lint.Rule) error {
	return o.structured(w, rules, func(out io.Writer) {
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, r := range rules {
			fmt.Fprintf(table, "%s\t%s\t%s\n", r.ID, r.Severity, r.Summary)
		}
		_ = table.Flush() // writes to memory
	})
}

func (o *releaseLintOptions) writeRule(w io.Writer, r lint.Rule) error {
	return o.structured(w, r, func(out io.Writer) {
		fmt.Fprintf(out, "%s (%s)\n\n%s\n%s\n\nRemedy: %s.\n", r.ID, r.Severity, r.Summary, r.Why, r.Remedy)
	})
}

// structured prints a value as JSON or YAML, or as text.
func (o *releaseLintOptions) structured(w io.Writer, value any, text func(io.Writer)) error {
	switch o.output {
	case outputText:
		var out strings.Builder
		text(&out)
		_, err := io.WriteString(w, out.String())
		return err
	case outputJSON:
		return writeJSON(w, value)
	case outputYAML:
		return writeYAML(w, value)
	}
	return &UsageError{Err: errors.New("rules are printed as text, json or yaml")}
}
