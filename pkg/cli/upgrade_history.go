package cli

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

	"github.com/cluster-version/cvo/pkg/insight"
)

type upgradeHistoryOptions struct {
	upgradeSource
	output string
}

// outputWide has more columns than text.
const outputWide = "wide"

func historyOutputs() []string { return []string{outputText, outputWide, outputJSON, outputYAML} }

func newUpgradeHistoryCmd(streams Streams) *cobra.Command {
	o := &upgradeHistoryOptions{}
	cmd := &cobra.Command{
		Use:   "history",
		Short: "List the releases that the cluster was updated to",
		Long: `List the releases that the cluster was updated to, the newest first: whether the update was completed, when it began and
ended, how long it took, whether the release was verified, and which risks were accepted for it. It reads the
ClusterVersion's status.history, of which the operator prunes old entries.`,
		Example: `  # What has this cluster run?
  cvo upgrade history

  # With images and all of what was accepted
  cvo upgrade history -o wide

  # Releases that nobody verified, for a script
  cvo upgrade history -o json | jq -r '.history[] | select(.verified | not) | .version'`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), streams) },
	}
	f := cmd.Flags()
	o.upgradeSource.add(f)
	f.StringVarP(&o.output, "output", "o", outputText, "`format`: text, wide, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(historyOutputs(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// updateHistory is the history for scripts.
type updateHistory struct {
	History []pastUpdate `json:"history"`
}

// pastUpdate is an entry of the history with how long it took.
type pastUpdate struct {
	configv1.UpdateHistory `json:",inline"`
	// Duration is how long it took, or has taken until now.
	Duration metav1.Duration `json:"duration"`
	// Current: the update is under way, or the release is the one that the cluster runs.
	Current bool `json:"current,omitempty"`
}

func (o *upgradeHistoryOptions) run(ctx context.Context, streams Streams) error {
	structured := o.output
	if o.output == outputWide {
		structured = outputText
	}
	if err := errors.Join(o.validate(), checkOutput(&structured)); err != nil {
		return err
	}
	cv, now, err := o.read(ctx)
	if err != nil {
		return err
	}
	history := historyOf(cv, now)
	if structured != "" {
		return printStructured(streams, structured, updateHistory{history})
	}
	if len(history) == 0 {
		fmt.Fprintln(streams.Err, "The cluster has no history: no version operator has reported on it yet.")
		return nil
	}
	return o.printText(streams.Out, func(w io.Writer) error { return historyTable(w, history, o.output == outputWide) })
}

// read also returns when the cluster was looked at.
func (o *upgradeHistoryOptions) read(ctx context.Context) (*configv1.ClusterVersion, time.Time, error) {
	switch {
	case o.dump != "":
		cv, err := dumpedVersion(o.dump)
		if err != nil {
			return nil, time.Time{}, err
		}
		return cv, newestTransition(insight.Input{ClusterVersion: cv}), nil
	case o.fromDir != "":
		gathered, err := readMustGather(o.fromDir)
		return gathered.ClusterVersion, gathered.Now, err
	}
	c, err := o.open("cvo-upgrade-history")
	if err != nil {
		return nil, time.Time{}, err
	}
	cv, err := o.readClusterVersion(ctx, c)
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
			// What was never completed ended when the next one began.
			end = cv.Status.History[i-1].StartedTime.Time
		}
		history = append(history, pastUpdate{
			UpdateHistory: entry, Duration: metav1.Duration{Duration: max(0, end.Sub(entry.StartedTime.Time)).Truncate(time.Second)}, Current: i == 0,
		})
	}
	return history
}

// riskColumn is how much of the accepted risks fits into the table.
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
		risks := oneLine(past.AcceptedRisks)
		if wide {
			cells = append(cells, past.Image)
		} else if runes := []rune(risks); len(runes) > riskColumn {
			risks = string(runes[:riskColumn-1]) + "…"
		}
		cells = append(cells, risks)
		for i := range cells {
			cells[i] = cmp.Or(oneLine(cells[i]), "-")
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
