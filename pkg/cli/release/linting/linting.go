// Package linting provides the command 'cvo release lint'. It reads a release or a folder of components, and prints the findings of package
// lint.
package linting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/manifests"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/assemble"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/compose"
	"github.com/cluster-version/cvo/pkg/author/lint"
	"github.com/cluster-version/cvo/pkg/author/lint/finding"
	"github.com/cluster-version/cvo/pkg/author/lint/kinds"
	"github.com/cluster-version/cvo/pkg/author/lint/source"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/cli/reading"
)

const outputSARIF = "sarif"

type options struct {
	source     string
	output     string
	strict     bool
	disable    []string
	infos      bool
	rules      bool
	explain    string
	kubernetes string
	from       string
	profile    string
	noAnnotate bool
	read       reading.Flags
}

// New returns the command 'cvo release lint'.
func New(streams command.Streams) *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use:   "lint RELEASE",
		Short: "Find mistakes in a release before you ship it",
		Long: `Find mistakes in a release before you ship it.

The release is an image in a registry, an OCI layout, a folder with manifests/ and release-manifests/, or a folder of
components as for cvo release new --from-dir. In a folder of components, the command adds the default profile, or the
profile in --profile, to manifests that name none, as cvo release new does. It then reads no images.

The command reads every document of every file and compares the objects with each other. It covers every profile,
feature set and feature gate, not just those of one cluster. With --from it also compares the CRDs with the release that
clusters update from.

An error prevents a cluster from applying the release or one of its objects. A warning marks something that the author
probably did not intend. The exit code is 3 if there are errors, or warnings with --strict, and 0 otherwise.`,
		Example: `  # Check a release before you build it
  cvo release lint ./release

  # Check a folder of components
  cvo release lint ./platform

  # Check in a pipeline, and allow only known problems
  cvo release lint ./release --strict --disable byte-order-mark,unknown-profile -o sarif > lint.sarif

  # Find kinds that the new release drops
  cvo release lint ./release --from registry.example/platform/release:1.0.0

  # List the rules, and explain one
  cvo release lint --rules
  cvo release lint --explain duplicate-object`,
		Args: command.UsageArgs(func(cmd *cobra.Command, args []string) error {
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
	flags.StringVarP(&opts.output, "output", "o", printing.FormatText, "text, json, yaml or sarif")
	flags.BoolVar(&opts.strict, "strict", false, "also reject the release for warnings")
	flags.StringSliceVar(&opts.disable, "disable", nil, "`rule` to skip (for more, repeat or separate with commas)")
	flags.BoolVar(&opts.infos, "info", false, "also print informational findings")
	flags.BoolVar(&opts.rules, "rules", false, "list the rules")
	flags.StringVar(&opts.explain, "explain", "", "explain a `rule`")
	flags.StringVar(&opts.kubernetes, "kubernetes-version", "", "Kubernetes `version` of the release, such as 1.36; default from its images")
	flags.StringVar(&opts.from, "from", "", "`release` or folder that clusters update from: also find kinds dropped since then, and changed storage versions")
	flags.StringVar(&opts.profile, "profile", api.DefaultProfile, "cluster `profile` of manifests in a folder of components that name none")
	flags.BoolVar(&opts.noAnnotate, "no-annotate", false, "add no profile to manifests in a folder of components")
	opts.read.Add(cmd)
	opts.complete(cmd)
	cmd.MarkFlagsMutuallyExclusive("profile", "no-annotate")
	cmd.MarkFlagsMutuallyExclusive("rules", "explain")
	return cmd
}

// complete completes arguments and values of flags.
func (o *options) complete(cmd *cobra.Command) {
	cmd.ValidArgsFunction = o.read.Complete(1)
	for name, values := range map[string][]string{
		"output": {printing.FormatText, printing.FormatJSON, printing.FormatYAML, outputSARIF}, "disable": finding.RuleIDs(), "explain": finding.RuleIDs(),
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	_ = cmd.RegisterFlagCompletionFunc("from", o.read.Complete(2))
}

func (o *options) run(ctx context.Context, streams command.Streams) error {
	switch {
	case o.rules:
		return o.writeRules(streams.Out, finding.Rules())
	case o.explain != "":
		if err := finding.CheckIDs([]string{o.explain}); err != nil {
			return &command.UsageError{Err: err}
		}
		rule, _ := finding.RuleByID(o.explain)
		return o.writeRule(streams.Out, rule)
	}
	write, err := o.check()
	if err != nil {
		return &command.UsageError{Err: err}
	}
	files, disable, mistakes, err := o.files(ctx, streams, o.source)
	if err != nil {
		return err
	}
	opts := lint.Options{Disable: append(disable, o.disable...), Kubernetes: o.kubernetes}
	for _, m := range mistakes {
		rule := "component"
		if m.Missing {
			rule = "component-input"
		}
		opts.Found.File(rule, filepath.Join(o.source, m.Path), 0, "%v", m)
	}
	if o.from != "" {
		opts.From, _, mistakes, err = o.files(ctx, streams, o.from)
		for _, m := range mistakes {
			if !m.Missing {
				err = errors.Join(err, m)
			}
		}
		if err != nil {
			return fmt.Errorf("reading --from %s: %w", o.from, err)
		}
	}
	report := lint.Check(files, opts)
	if err := write(streams.Out, report); err != nil {
		return err
	}
	switch t := report.Totals; {
	case t.Errors > 0:
		return &command.RefusedError{Err: fmt.Errorf("%s cannot be applied: %s", o.source, t)}
	case t.Warnings > 0 && o.strict:
		return &command.RefusedError{Err: fmt.Errorf("%s has warnings, and --strict treats them as errors: %s", o.source, t)}
	}
	return nil
}

// files returns the files to lint of a release or of a folder of components, the rules to disable, and mistakes in the folder.
func (o *options) files(ctx context.Context, streams command.Streams, origin string) (files []source.File, disable []string, mistakes []*input.ContentError, err error) {
	if !input.IsFolder(origin) {
		files, err = o.read.LintFiles(ctx, streams, origin)
		return files, nil, nil, err
	}
	files, disable, mistakes, err = compose.LintFolder(ctx, origin, compose.Options{
		Profile: o.profile, NoAnnotate: o.noAnnotate, Now: time.Now(), BaseComponent: assemble.OperatorComponent,
		Operator: manifests.FS(), Monitoring: manifests.Monitoring(),
	})
	if _, ok := errors.AsType[*compose.ContradictionError](err); ok {
		return nil, nil, nil, &command.UsageError{Err: err}
	}
	return files, disable, mistakes, err
}

// check validates the flags and returns the function that prints a report.
func (o *options) check() (func(io.Writer, *finding.Report) error, error) {
	if o.profile == "" {
		return nil, errors.New("--profile has no value: name a profile, or use --no-annotate")
	}
	if err := finding.CheckIDs(o.disable); err != nil {
		return nil, err
	}
	if o.kubernetes != "" {
		if _, err := kinds.ParseVersion(o.kubernetes); err != nil {
			return nil, fmt.Errorf("--kubernetes-version: %w", err)
		}
	}
	switch o.output {
	case printing.FormatText:
		return func(w io.Writer, r *finding.Report) error { return finding.WriteText(w, r, o.infos) }, nil
	case printing.FormatJSON:
		return func(w io.Writer, r *finding.Report) error { return printing.JSON(w, r) }, nil
	case printing.FormatYAML:
		return func(w io.Writer, r *finding.Report) error { return printing.YAML(w, r) }, nil
	case outputSARIF:
		return func(w io.Writer, r *finding.Report) error { return printing.JSON(w, finding.SARIF(r)) }, nil
	}
	return nil, fmt.Errorf("unknown output %q: use text, json, yaml or sarif", o.output)
}

func (o *options) writeRules(w io.Writer, rules []finding.Rule) error {
	return o.structured(w, rules, func(out io.Writer) {
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, r := range rules {
			fmt.Fprintf(table, "%s\t%s\t%s\n", r.ID, r.Severity, r.Summary)
		}
		_ = table.Flush() // writes to memory
	})
}

func (o *options) writeRule(w io.Writer, r finding.Rule) error {
	return o.structured(w, r, func(out io.Writer) {
		fmt.Fprintf(out, "%s (%s)\n\n%s\n%s\n\nRemedy: %s.\n", r.ID, r.Severity, r.Summary, r.Why, r.Remedy)
	})
}

// structured prints a value as JSON or YAML, or calls text.
func (o *options) structured(w io.Writer, value any, text func(io.Writer)) error {
	switch o.output {
	case printing.FormatText:
		var out strings.Builder
		text(&out)
		_, err := io.WriteString(w, out.String())
		return err
	case printing.FormatJSON:
		return printing.JSON(w, value)
	case printing.FormatYAML:
		return printing.YAML(w, value)
	}
	return &command.UsageError{Err: errors.New("rules are printed as text, json or yaml")}
}
