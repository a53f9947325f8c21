package report

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

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/cli/cluster"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/view/collect"
	"github.com/cluster-version/cvo/pkg/view/insight"
	"github.com/cluster-version/cvo/pkg/view/recommend"
)

type recommendOptions struct {
	source
	// outdated shows all updates instead of only the newest update of each minor version.
	outdated bool
	version  string
	accept   []string
	quiet    bool
	output   string
}

// NewRecommend returns the command 'cvo upgrade recommend'.
func NewRecommend(streams command.Streams) *cobra.Command {
	o := &recommendOptions{}
	cmd := &cobra.Command{
		Use:   "recommend",
		Short: "List the available updates and the reasons against each",
		Long: `List the available updates and the reasons against each: a running or failed update, firing alerts, and the risks of each
release. The command reads the ClusterVersion and the alerts, and changes nothing. The text output matches
'oc adm upgrade recommend'.

Name the issues that you accept with --accept: Failing, Progressing, the name of an alert, the name of a risk, or
ConditionalUpdateRisk for all risks of the release. Risks in spec.desiredUpdate.acceptRisks of the ClusterVersion are
also accepted.

Exit codes without --version: 0 regardless of issues; 4 if the command could not read the alerts, unless you accept
FailedToCompletePrecheck. With --version: 0 if you accept all issues; 3 if not, where unreadable alerts count as an issue; 1
if there is no such update.`,
		Example: `  # List the updates
  cvo upgrade recommend

  # List the issues of one release
  cvo upgrade recommend --version 4.15.3

  # Succeed if there are no new issues, for a script
  cvo upgrade recommend --version 4.15.3 --quiet --accept PodDisruptionBudgetAtLimit,AROBrokenDNSMasq

  # List the risks that apply, or may apply, to this cluster
  cvo upgrade recommend -o json | jq '.risks[] | select(.applies != "False")'`,
		Args: command.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	o.source.add(f)
	f.BoolVar(&o.outdated, "show-outdated-releases", false, "show all releases, not only the newest of each minor version")
	f.StringVar(&o.version, "version", "", "show only this `version`")
	f.StringSliceVar(&o.accept, "accept", nil, "comma-separated `names` of issues that you accept")
	f.BoolVar(&o.quiet, "quiet", false, "with --version: print only issues that are not accepted")
	printing.AddFlag(cmd, &o.output)
	_ = cmd.RegisterFlagCompletionFunc("version", o.completeVersions)
	_ = cmd.RegisterFlagCompletionFunc("accept", o.completeIssues)
	return cmd
}

// validate returns the version in --version, or nil without the flag.
func (o *recommendOptions) validate() (*semver.Version, error) {
	if err := errors.Join(o.source.validate(), printing.Check(&o.output)); err != nil {
		return nil, err
	}
	if o.version == "" {
		if o.quiet {
			return nil, &command.UsageError{Err: errors.New("--quiet can only be set when --version is set")}
		}
		return nil, nil // nil means all versions
	}
	if o.outdated {
		return nil, &command.UsageError{Err: errors.New("when --version is set, --show-outdated-releases is unnecessary")}
	}
	version, err := release.ParseVersion(o.version)
	if err != nil {
		return nil, &command.UsageError{Err: fmt.Errorf("cannot parse SemVer target %q: %w", o.version, err)}
	}
	return &version, nil
}

func (o *recommendOptions) run(ctx context.Context, streams command.Streams) error {
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
			fmt.Fprintln(streams.Err, printable.Lines(note))
		}
	}
	if version == nil {
		if err := o.printAll(streams, assessment); err != nil {
			return err
		}
		if in.PrecheckError != nil && !slices.Contains(o.accept, "FailedToCompletePrecheck") {
			return &command.PartialError{Err: errors.New("incomplete: alerts could not be read")}
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
			err = &command.RefusedError{Err: fmt.Errorf("issues that apply to this cluster but which were not included in --accept: %s", strings.Join(unaccepted, ","))}
		}
	}
	return err
}

func (o *recommendOptions) printAll(streams command.Streams, a *recommend.Assessment) error {
	if o.output != "" {
		return printing.Structured(streams, o.output, a)
	}
	return o.printText(streams.Out, func(w io.Writer) error { return a.Text(w, o.outdated) })
}

// recommendedUpdate is one update with its issues.
type recommendedUpdate struct {
	*recommend.Assessment
	Updates []recommend.Update `json:"updates"`
	// Accepted and Unaccepted are the names of the update's issues.
	Accepted   []string `json:"accepted"`
	Unaccepted []string `json:"unaccepted"`
}

func (o *recommendOptions) printOne(streams command.Streams, a *recommend.Assessment, update *recommend.Update) error {
	switch {
	case o.output != "" && update != nil:
		one := recommendedUpdate{Assessment: a, Updates: []recommend.Update{*update}}
		one.Accepted, one.Unaccepted = a.Issues(update)
		return printing.Structured(streams, o.output, one)
	case o.quiet || o.output != "":
		return nil
	}
	return o.printText(streams.Out, func(w io.Writer) error { return a.UpdateText(w, update) })
}

func (o *recommendOptions) read(ctx context.Context) (recommend.Input, error) {
	in := recommend.Input{Accept: o.accept}
	switch {
	case o.dump != "":
		var err error
		if in.ClusterVersion, err = collect.DumpedClusterVersion(o.dump); err != nil {
			return in, err
		}
		file := strings.Replace(o.dump, collect.DumpSuffix, "-alerts.json", 1)
		data, err := collect.ReadFile(file)
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
		if in.Alerts, err = collect.ParseAlerts(data); err != nil {
			in.PrecheckError = fmt.Errorf("parsing alerts: %w", err)
		}
	case o.fromDir != "":
		gathered, err := collect.MustGather(o.fromDir)
		if err != nil {
			return in, err
		}
		in.ClusterVersion, in.Alerts = gathered.ClusterVersion, gathered.Alerts
		if at := slices.IndexFunc(gathered.Missing, func(m insight.Missing) bool { return m.Section == insight.SectionHealth }); at >= 0 {
			in.AlertsUnknown = &recommend.Finding{
				Type: "recommended/Alert", Status: metav1.ConditionUnknown, Reason: "NotGathered", Name: "AlertNotGathered",
				Message: gathered.Missing[at].Reason,
			}
		}
	default:
		c, err := o.Open("cvo-upgrade-recommend")
		if err != nil {
			return in, err
		}
		if in.ClusterVersion, err = o.ReadClusterVersion(ctx, c); err != nil {
			return in, err
		}
		cfg, err := o.Config()
		if err != nil {
			return in, err
		}
		in.Alerts, err = collect.Alerts(ctx, cfg)
		if errors.Is(err, collect.ErrAbsent) {
			in.AlertsAbsent = err
		} else {
			in.PrecheckError = err
		}
	}
	return in, nil
}

// readForCompletion reads the input for a shell completion, within the time that a user waits after a key press.
func (o *recommendOptions) readForCompletion(cmd *cobra.Command) (recommend.Input, error) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, cluster.CompletionTime)
	defer cancel()
	return o.read(ctx)
}

// completeVersions offers the updates of the cluster.
func (o *recommendOptions) completeVersions(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
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

// completeIssues offers the issues that can be accepted.
func (o *recommendOptions) completeIssues(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
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
