package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/insight"
	"github.com/cluster-version/cvo/pkg/recommend"
)

type upgradeRecommendOptions struct {
	upgradeSource
	// outdated shows all updates, not only the newest of each minor version.
	outdated bool
	version  string
	accept   []string
	quiet    bool
	output   string
}

func newUpgradeRecommendCmd(streams Streams) *cobra.Command {
	o := &upgradeRecommendOptions{}
	cmd := &cobra.Command{
		Use:   "recommend",
		Short: "Tell to which releases the cluster may be updated, and what speaks against it",
		Long: `Tell to which releases the cluster may be updated, and what speaks against it: an update that is under way or failed,
alerts that fire, risks of each release. It reads the ClusterVersion and the alerts, and changes nothing. The text is that
of 'oc adm upgrade recommend'.

What was looked at and found acceptable is named with --accept: Failing, Progressing, an alert by its name, a risk by its
name, or ConditionalUpdateRisk for all risks of the release. The risks that spec.desiredUpdate.acceptRisks of the
ClusterVersion names are accepted, too.

Without --version the exit code is 0 whatever speaks against updates. With it, 0 says that nothing does that is not
accepted, 3 that something does, 1 that there is no such update. It is 4 if alerts could not be read, unless
FailedToCompletePrecheck is accepted.`,
		Example: `  # Where to?
  cvo upgrade recommend

  # What speaks against this release?
  cvo upgrade recommend --version 4.15.3

  # For a script: go on unless there is something new
  cvo upgrade recommend --version 4.15.3 --quiet --accept PodDisruptionBudgetAtLimit,AROBrokenDNSMasq

  # Which risks are there, and which of them does this cluster have?
  cvo upgrade recommend -o json | jq '.risks[] | select(.applies != "False")'`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	o.upgradeSource.add(f)
	f.BoolVar(&o.outdated, "show-outdated-releases", false, "show all releases, not only the newest of each minor version")
	f.StringVar(&o.version, "version", "", "show this `version` only")
	f.StringSliceVar(&o.accept, "accept", nil, "`names` of what is acceptable, separated by commas")
	f.BoolVar(&o.quiet, "quiet", false, "with --version: print only what speaks against it and is not accepted")
	addOutput(cmd, &o.output)
	_ = cmd.RegisterFlagCompletionFunc("version", o.completeVersions)
	_ = cmd.RegisterFlagCompletionFunc("accept", o.completeIssues)
	return cmd
}

// validate returns the version that --version names, nil without it.
func (o *upgradeRecommendOptions) validate() (*semver.Version, error) {
	if err := errors.Join(o.upgradeSource.validate(), checkOutput(&o.output)); err != nil {
		return nil, err
	}
	if o.version == "" {
		if o.quiet {
			return nil, &UsageError{errors.New("--quiet can only be set when --version is set")}
		}
		return nil, nil //nolint:nilnil // all versions are asked for
	}
	if o.outdated {
		return nil, &UsageError{errors.New("when --version is set, --show-outdated-releases is unnecessary")}
	}
	version, err := semver.Parse(o.version)
	if err != nil {
		return nil, &UsageError{fmt.Errorf("cannot parse SemVer target %q: %w", o.version, err)}
	}
	return &version, nil
}

func (o *upgradeRecommendOptions) run(ctx context.Context, streams Streams) error {
	version, err := o.validate()
	if err != nil {
		return err
	}
	in, err := o.read(ctx)
	if err != nil {
		return err
	}
	assessment := recommend.Assess(in)
	if !o.quiet {
		for _, note := range assessment.Notes() {
			fmt.Fprintln(streams.Err, printableLines(note))
		}
	}
	if version == nil {
		if err := o.printAll(streams, assessment); err != nil {
			return err
		}
		if in.PrecheckError != nil && !slices.Contains(o.accept, "FailedToCompletePrecheck") {
			return &PartialError{errors.New("not all could be read: alerts are missing")}
		}
		return nil
	}
	update, missing := assessment.Choose(*version)
	if err := o.printOne(streams, assessment, update); err != nil {
		return err
	}
	err = missing
	if update != nil {
		if _, unaccepted := assessment.Issues(update); len(unaccepted) > 0 {
			err = &RefusedError{fmt.Errorf("issues that apply to this cluster but which were not included in --accept: %s", strings.Join(unaccepted, ","))}
		}
	}
	if err != nil && !o.quiet && o.output == "" {
		fmt.Fprintln(streams.Err) // the error is a paragraph of its own
	}
	return err
}

func (o *upgradeRecommendOptions) printAll(streams Streams, a *recommend.Assessment) error {
	if o.output != "" {
		return printStructured(streams, o.output, a)
	}
	return o.printText(streams.Out, func(w io.Writer) error { return a.Text(w, o.outdated) })
}

// recommendedUpdate is one update with what speaks against it.
type recommendedUpdate struct {
	*recommend.Assessment
	Updates []recommend.Update `json:"updates"`
	// Accepted and Unaccepted are the names of what speaks against the update.
	Accepted   []string `json:"accepted"`
	Unaccepted []string `json:"unaccepted"`
}

func (o *upgradeRecommendOptions) printOne(streams Streams, a *recommend.Assessment, update *recommend.Update) error {
	switch {
	case o.output != "" && update != nil:
		one := recommendedUpdate{Assessment: a, Updates: []recommend.Update{*update}}
		one.Accepted, one.Unaccepted = a.Issues(update)
		return printStructured(streams, o.output, one)
	case o.quiet || o.output != "":
		return nil
	}
	return o.printText(streams.Out, func(w io.Writer) error { return a.UpdateText(w, update) })
}

func (o *upgradeRecommendOptions) read(ctx context.Context) (recommend.Input, error) {
	in := recommend.Input{Accept: o.accept}
	var alerts []insight.Alert
	switch {
	case o.dump != "":
		var err error
		if in.ClusterVersion, err = dumpedVersion(o.dump); err != nil {
			return in, err
		}
		file := strings.Replace(o.dump, dumpSuffix, "-alerts.json", 1)
		data, err := readFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return in, err
		}
		if len(bytes.TrimSpace(data)) == 0 {
			in.AlertsUnknown = &recommend.Finding{
				Type: "recommended/Alert", Status: metav1.ConditionUnknown, Reason: "NoTestData", Name: "AlertNoTestData",
				Message: "This --mock-clusterversion run did not have alert data available at " + file,
			}
			return in, nil
		}
		if alerts, err = parseAlerts(data); err != nil {
			in.PrecheckError = fmt.Errorf("parsing alerts: %w", err)
		}
	case o.fromDir != "":
		gathered, err := readMustGather(o.fromDir)
		if err != nil {
			return in, err
		}
		in.ClusterVersion, alerts = gathered.ClusterVersion, gathered.Alerts
		if at := slices.IndexFunc(gathered.Missing, func(m insight.Missing) bool { return m.Section == insight.SectionHealth }); at >= 0 {
			in.AlertsUnknown = &recommend.Finding{
				Type: "recommended/Alert", Status: metav1.ConditionUnknown, Reason: "NotGathered", Name: "AlertNotGathered",
				Message: gathered.Missing[at].Reason,
			}
		}
	default:
		c, err := o.open("cvo-upgrade-recommend")
		if err != nil {
			return in, err
		}
		if in.ClusterVersion, err = o.readClusterVersion(ctx, c); err != nil {
			return in, err
		}
		cfg, err := o.config()
		if err != nil {
			return in, err
		}
		alerts, in.PrecheckError = readAlerts(ctx, cfg)
	}
	for _, alert := range alerts {
		in.Alerts = append(in.Alerts, recommend.Alert(alert))
	}
	return in, nil
}

// readForCompletion reads what a shell offers, as long as somebody who presses a key may wait.
func (o *upgradeRecommendOptions) readForCompletion(cmd *cobra.Command) (recommend.Input, error) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	return o.read(ctx)
}

// completeVersions offers the updates that the cluster has.
func (o *upgradeRecommendOptions) completeVersions(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	in, err := o.readForCompletion(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var versions []string
	for _, update := range recommend.Assess(in).Updates {
		versions = append(versions, update.Version)
	}
	return versions, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// completeIssues offers what there is to accept.
func (o *upgradeRecommendOptions) completeIssues(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	in, err := o.readForCompletion(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a := recommend.Assess(in)
	names := []string{recommend.AcceptConditionalUpdateRisk}
	for _, f := range a.Findings {
		if f.Name != "" {
			names = append(names, f.Name)
		}
	}
	for _, risk := range a.Risks {
		if risk.Applies != metav1.ConditionFalse {
			names = append(names, risk.Name)
		}
	}
	before := typed[:strings.LastIndex(typed, ",")+1]
	slices.Sort(names)
	names = slices.Compact(names)
	for i := range names {
		names[i] = before + names[i]
	}
	return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
