package report

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/view/collect"
	"github.com/cluster-version/cvo/pkg/view/insight"
)

type historyOptions struct {
	source
	output string
}

// outputWide prints more columns than text output.
const outputWide = "wide"

func historyOutputs() []string {
	return []string{printing.FormatText, outputWide, printing.FormatJSON, printing.FormatYAML}
}

// NewHistory returns the command 'cvo upgrade history'.
func NewHistory(streams command.Streams) *cobra.Command {
	o := &historyOptions{}
	cmd := &cobra.Command{
		Use:   "history",
		Short: "List the cluster's past updates",
		Long: `List the cluster's past updates, the newest first: whether the update completed, when it started and ended, how long it
took, whether the release was verified, and which risks were accepted for it. The command reads status.history of the
ClusterVersion; the operator prunes old entries from it.`,
		Example: `  # List the updates
  cvo upgrade history

  # Include images and all accepted risks
  cvo upgrade history -o wide

  # List releases that were not verified, for a script
  cvo upgrade history -o json | jq -r '.history[] | select(.verified | not) | .version'`,
		Args: command.UsageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	o.source.add(f)
	f.StringVarP(&o.output, "output", "o", printing.FormatText, "`format`: text, wide, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(historyOutputs(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// History is the output for scripts.
type History struct {
	History []pastUpdate `json:"history"`
}

// pastUpdate is an entry of the history with its duration.
type pastUpdate struct {
	configv1.UpdateHistory `json:",inline"`
	// Duration is how long the update took, or has taken until now.
	Duration metav1.Duration `json:"duration"`
	// Current means that the update is in progress, or that the cluster runs this release.
	Current bool `json:"current,omitempty"`
}

func (o *historyOptions) run(ctx context.Context, streams command.Streams) error {
	structured := o.output
	if o.output == outputWide {
		structured = printing.FormatText
	}
	if err := errors.Join(o.validate(), printing.Check(&structured)); err != nil {
		return err
	}
	cv, now, err := o.read(ctx)
	if err != nil {
		return err
	}
	history := historyOf(cv, now)
	if structured != "" {
		return printing.Structured(streams, structured, History{history})
	}
	if len(history) == 0 {
		fmt.Fprintln(streams.Err, "The cluster has no history: no version operator has reported on it yet.")
		return nil
	}
	return o.printText(streams.Out, func(w io.Writer) error { return historyTable(w, history, o.output == outputWide) })
}

// read returns the ClusterVersion and the time at which it was read.
func (o *historyOptions) read(ctx context.Context) (*configv1.ClusterVersion, time.Time, error) {
	switch {
	case o.dump != "":
		cv, err := collect.DumpedClusterVersion(o.dump)
		if err != nil {
			return nil, time.Time{}, err
		}
		return cv, collect.NewestTransition(insight.Input{ClusterVersion: cv}), nil
	case o.fromDir != "":
		gathered, err := collect.MustGather(o.fromDir)
		return gathered.ClusterVersion, gathered.Now, err
	}
	c, err := o.Open("cvo-upgrade-history")
	if err != nil {
		return nil, time.Time{}, err
	}
	cv, err := o.ReadClusterVersion(ctx, c)
	return cv, clock.RealClock{}.Now(), err
}

func historyOf(cv *configv1.ClusterVersion, now time.Time) []pastUpdate {
	history := make([]pastUpdate, 0, len(cv.Status.History))
	for i, entry := range cv.Status.History {
		end := now
		switch {
		case entry.CompletionTime != nil:
			end = entry.CompletionTime.Time
		case i > 0:
			// An update that never completed ended when the next update began.
			end = cv.Status.History[i-1].StartedTime.Time
		}
		history = append(history, pastUpdate{
			UpdateHistory: entry, Duration: metav1.Duration{Duration: max(0, end.Sub(entry.StartedTime.Time)).Truncate(time.Second)}, Current: i == 0,
		})
	}
	return history
}

// riskColumn is the number of characters of the accepted risks that fit into the table.
const riskColumn = 40

func historyTable(w io.Writer, history []pastUpdate, wide bool) error {
	columns := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	header := "VERSION\tSTATE\tSTARTED\tCOMPLETED\tDURATION\tVERIFIED\tACCEPTED RISKS"
	if wide {
		header = "VERSION\tSTATE\tSTARTED\tCOMPLETED\tDURATION\tVERIFIED\tIMAGE\tACCEPTED RISKS"
	}
	fmt.Fprintln(columns, header)
	for _, past := range history {
		verified := "no"
		if past.Verified {
			verified = "yes"
		}
		took := duration.HumanDuration(past.Duration.Duration)
		if past.Current && past.CompletionTime == nil {
			took += ", under way"
		}
		cells := []string{past.Version, string(past.State), timeCell(&past.StartedTime), timeCell(past.CompletionTime), took, verified}
		risks := terminal.OneLine(past.AcceptedRisks)
		if wide {
			cells = append(cells, past.Image)
		} else if runes := []rune(risks); len(runes) > riskColumn {
			risks = string(runes[:riskColumn-1]) + "…"
		}
		cells = append(cells, risks)
		for i := range cells {
			cells[i] = cmp.Or(terminal.OneLine(cells[i]), "-")
		}
		fmt.Fprintln(columns, strings.Join(cells, "\t"))
	}
	return columns.Flush()
}

func timeCell(t *metav1.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
