package insight

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cluster-version/cvo/pkg/api"
)

// Details selects the parts that are printed in full.
type Details struct {
	Nodes, Health, Operators bool
}

// nodeRows is the number of nodes of a pool that are printed without Details.Nodes. Nodes in trouble are always printed.
const nodeRows = 10

// Text prints the assessment in oc's format. It does not escape text from the cluster, which a terminal may interpret as commands.
func (a *Assessment) Text(w io.Writer, details Details) error {
	var out bytes.Buffer
	switch {
	case a.Updating:
		fmt.Fprintln(&out, "= Control Plane =")
		a.controlPlaneText(&out, details)
		a.poolsText(&out, details)
		fmt.Fprintln(&out, "\n= Update Health =")
		a.healthText(&out, details)
	case a.unknown:
		fmt.Fprintln(&out, "It is unknown whether the cluster is updating:", firstLine(a.missing(SectionVersion)))
	default:
		fmt.Fprintln(&out, "The cluster is not updating.")
	}
	_, err := out.WriteTo(w)
	return err
}

// Summary returns one line about the progress of the update.
func (a *Assessment) Summary() string {
	if a.unknown {
		return "It is unknown whether the cluster is updating."
	}
	if !a.Updating {
		return "The cluster is not updating."
	}
	parts := []string{a.controlPlaneSummary()}
	pools := a.WorkerPools
	if a.ControlPlanePool != nil {
		pools = append([]Pool{*a.ControlPlanePool}, pools...)
	}
	for _, pool := range pools {
		if pool.Total > 0 {
			parts = append(parts, fmt.Sprintf("%s nodes %d/%d", pool.Name, pool.Updated, pool.Total))
		}
	}
	counts := map[Level]int{}
	for _, found := range a.Insights {
		counts[found.Level]++
	}
	for _, level := range []Level{Critical, Error, Warning} {
		if counts[level] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[level], strings.ToLower(level.String())))
		}
	}
	return fmt.Sprintf("%s: %s", a.ControlPlane.Target, strings.Join(parts, "; "))
}

func (a *Assessment) controlPlaneSummary() string {
	p := a.ControlPlane
	parts := []string{string(p.State)}
	if p.State != StateCompleted && p.Operators.Total > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d operators updated", p.Operators.Updated, p.Operators.Total))
	}
	for i, operator := range p.Operators.Updating {
		name := operator.Name
		if i == 0 {
			name = "updating " + name
		}
		parts = append(parts, name)
	}
	if a.Estimate != nil && p.State != StateCompleted {
		parts = append(parts, estimateText(*a.Estimate)+" left")
	}
	if a.Paused != "" {
		parts = append(parts, "paused: "+firstLine(a.Paused))
	}
	return strings.Join(parts, ", ")
}

// estimateText returns the operator's own estimate of the remaining time.
func estimateText(e api.RolloutEstimate) string {
	low, high := shortDuration(rounded(e.RemainingLow.Duration)), shortDuration(rounded(e.RemainingHigh.Duration))
	switch {
	case low == high:
		return low
	case e.RemainingLow.Duration == 0:
		return "up to " + high
	}
	return low + " to " + high
}

// table aligns rows of cells; the last cell of a row is not padded.
func table(w io.Writer, rows [][]string) {
	columns := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(columns, strings.Join(row, "\t"))
	}
	_ = columns.Flush() // writing to a buffer never fails
}

func (a *Assessment) controlPlaneText(w io.Writer, details Details) {
	p := a.ControlPlane
	if p.State == StateCompleted {
		fmt.Fprintf(w, "Update to %s successfully completed at %s (duration: %s)\n",
			p.Target.Version, p.Completed.UTC().Format(time.RFC3339), shortDuration(p.Duration.Duration))
		return
	}
	fmt.Fprintln(w, "Assessment:     ", p.State)
	fmt.Fprintln(w, "Target Version: ", p.Target)
	if why := a.missing(SectionOperators); why != "" {
		fmt.Fprintln(w, "Duration:       ", shortDuration(p.Duration.Duration))
		fmt.Fprintln(w, "Operators:       unknown:", firstLine(why))
		return
	}
	if p.Operators.Total == 0 {
		if p.Pending != "" {
			fmt.Fprintln(w, "Pending:         The ClusterVersion reports:", firstLine(p.Pending))
		}
		fmt.Fprintf(w, "Duration:        %s%s\n", shortDuration(p.Duration.Duration), a.remainingText())
		return
	}
	var updating []string
	rows := [][]string{{"NAME", "SINCE", "REASON", "MESSAGE"}}
	for _, operator := range p.Operators.Updating {
		updating = append(updating, operator.Name)
		first, more, _ := strings.Cut(operator.Message, "\n")
		rows = append(rows, []string{operator.Name, a.operatorSince(operator.Since), ellipsis(cmp.Or(operator.Reason, "-"), 20), first})
		for line := range strings.Lines(more) {
			rows = append(rows, []string{"", "", "", strings.TrimSuffix(line, "\n")})
		}
	}
	if len(updating) > 0 {
		fmt.Fprintln(w, "Updating:       ", strings.Join(updating, ", "))
	}
	fmt.Fprintf(w, "Completion:      %.0f%% (%d operators updated, %d updating, %d waiting)\n",
		100*float64(p.Operators.Updated)/float64(max(p.Operators.Total, 1)), p.Operators.Updated, len(updating), p.Operators.Waiting)
	if p.Pending != "" {
		fmt.Fprintln(w, "Pending:         All operators are updated. The ClusterVersion reports:", firstLine(p.Pending))
	}
	fmt.Fprintf(w, "Duration:        %s%s\n", shortDuration(p.Duration.Duration), a.remainingText())
	fmt.Fprintln(w, "Operator Health:", p.Operators.healthText())
	if details.Operators && len(updating) > 0 {
		fmt.Fprintln(w, "\nUpdating Cluster Operators")
		table(w, rows)
	}
}

func (t Target) String() string {
	switch {
	case t.Version == "":
		return "unknown"
	case t.Install:
		return t.Version + " (a new install)"
	case t.PreviousIncomplete:
		return fmt.Sprintf("%s (from incomplete %s)", t.Version, t.Previous)
	case t.MultiArchitecture:
		return t.Version + " to Multi-Architecture"
	}
	return fmt.Sprintf("%s (from %s)", t.Version, t.Previous)
}

func (a *Assessment) remainingText() string {
	p := a.ControlPlane
	var text string
	switch {
	case a.Estimate != nil:
		text = estimateText(*a.Estimate)
	case p.Remaining == nil || p.Remaining.Duration == 0:
		return ""
	case p.Target.MultiArchitecture:
		text = "N/A for Multi-Architecture Migration"
	case p.Remaining.Duration < -10*time.Minute:
		text = "N/A; estimate duration was " + shortDuration(p.Estimated.Duration)
	case p.Remaining.Duration < 10*time.Minute:
		text = "<10m"
	default:
		text = shortDuration(p.Remaining.Duration)
	}
	return " (Est. Time Remaining: " + text + ")"
}

func (o Operators) healthText() string {
	text := fmt.Sprintf("%d Healthy", o.Healthy)
	if o.Unavailable > 0 {
		text += fmt.Sprintf(", %d Unavailable", o.Unavailable)
	}
	if o.Degraded > 0 {
		text += fmt.Sprintf(", %d Available but degraded", o.Degraded)
	}
	return text
}

func (a *Assessment) poolsText(w io.Writer, details Details) {
	if why := a.missing(SectionControlNodes); why != "" {
		fmt.Fprintln(w, "\nControl Plane Nodes: unknown:", firstLine(why))
	}
	if pool := a.ControlPlanePool; pool != nil && pool.Total > 0 {
		if pool.Updated == pool.Total {
			fmt.Fprintf(w, "\nAll control plane nodes successfully updated to %s\n", pool.Nodes[0].Version)
		} else {
			fmt.Fprintln(w, "\nControl Plane Nodes")
			pool.nodesText(w, details)
		}
	}
	why := a.missing(SectionWorkers)
	peopled := slices.ContainsFunc(a.WorkerPools, func(p Pool) bool { return p.Total > 0 })
	if !peopled && why == "" {
		return
	}
	fmt.Fprintln(w, "\n= Worker Upgrade =")
	if why != "" {
		fmt.Fprintln(w, "\nMissing data:", firstLine(why))
	}
	if !peopled {
		return
	}
	rows := [][]string{{"WORKER POOL", "ASSESSMENT", "COMPLETION", "STATUS"}}
	for _, pool := range a.WorkerPools {
		rows = append(rows, pool.row())
	}
	fmt.Fprintln(w)
	table(w, rows)
	for _, pool := range a.WorkerPools {
		if pool.Total > 0 {
			fmt.Fprintln(w, "\nWorker Pool Nodes:", pool.Name)
			pool.nodesText(w, details)
		}
	}
}

func (p Pool) row() []string {
	if p.State == StateUnknown {
		return []string{p.Name, string(p.State), "", ""}
	}
	if p.Total == 0 {
		return []string{p.Name, "Empty", "", "0 Total"}
	}
	status := fmt.Sprintf("%d Available, %d Progressing, %d Draining", p.Available, p.Progressing, p.Draining)
	if p.Excluded > 0 {
		status += fmt.Sprintf(", %d Excluded", p.Excluded)
	}
	if p.Degraded > 0 {
		status += fmt.Sprintf(", %d Degraded", p.Degraded)
	}
	completion := fmt.Sprintf("%.0f%% (%d/%d)", 100*float64(p.Updated)/float64(p.Total), p.Total-p.Outdated, p.Total)
	return []string{p.Name, string(p.State), completion, status}
}

func (p Pool) nodesText(w io.Writer, details Details) {
	rows := [][]string{{"NAME", "ASSESSMENT", "PHASE", "VERSION", "EST", "MESSAGE"}}
	var omitted []Node
	for i, node := range p.Nodes {
		if i >= nodeRows && !details.Nodes && !node.Degraded && (!node.Unavailable || node.updating) {
			omitted = append(omitted, node)
			continue
		}
		rows = append(rows, []string{node.Name, string(node.State), string(node.Phase), cmp.Or(node.Version, "?"), node.Estimate, node.Message})
	}
	table(w, rows)
	if len(omitted) > 0 {
		count := func(is func(Node) bool) (n int) {
			for _, node := range omitted {
				if is(node) {
					n++
				}
			}
			return n
		}
		completed := count(func(n Node) bool { return n.updated })
		fmt.Fprintf(w, "...\nOmitted additional %d Total, %d Completed, %d Available, %d Progressing, %d Outdated, %d Draining, %d Excluded, and 0 Degraded nodes.\n",
			len(omitted), completed,
			count(func(n Node) bool { return !n.Unavailable }),
			count(func(n Node) bool { return n.State == NodeProgressing }),
			len(omitted)-completed,
			count(func(n Node) bool { return n.Phase == PhaseDraining }),
			count(func(n Node) bool { return n.Phase == PhasePaused }))
		fmt.Fprintln(w, "Pass along --details=nodes to see all information.")
	}
}

func (a *Assessment) healthText(w io.Writer, details Details) {
	if why := a.missing(SectionHealth); why != "" {
		fmt.Fprintf(w, "Missing data: %s\n\n", firstLine(why))
	}
	if len(a.Insights) == 0 {
		table(w, [][]string{
			{"SINCE", "LEVEL", "IMPACT", "MESSAGE"},
			{a.since(a.started), Info.String(), string(ImpactNone), "Update is proceeding well"},
		})
		return
	}
	if details.Health {
		for i, insight := range a.Insights {
			if i > 0 {
				fmt.Fprintln(w)
			}
			insight.text(w, a.since(insight.Since))
		}
		return
	}
	rows := [][]string{{"SINCE", "LEVEL", "IMPACT", "MESSAGE"}}
	for _, insight := range a.Insights {
		rows = append(rows, []string{a.since(insight.Since), insight.Level.String(), string(insight.Impact), insight.Summary})
	}
	table(w, rows)
	if len(a.Insights) > 1 || a.Insights[0].Level != Info {
		fmt.Fprintln(w, "\nRun with --details=health for additional description and links to related online documentation")
	}
}

func (i Insight) text(w io.Writer, since string) {
	fmt.Fprintln(w, "Message:", i.Summary)
	fmt.Fprintln(w, "  Since:      ", since)
	fmt.Fprintln(w, "  Level:      ", i.Level)
	fmt.Fprintln(w, "  Impact:     ", i.Impact)
	fmt.Fprintln(w, "  Reference:  ", i.Reference)
	if len(i.Resources) > 0 {
		fmt.Fprintln(w, "  Resources:")
	}
	for _, resource := range i.Resources {
		fmt.Fprintf(w, "    %s: %s\n", resource.Kind, resource.Name)
	}
	// Further lines start with a comma, as in oc.
	fmt.Fprintln(w, "  Description:", strings.ReplaceAll(i.Description, "\n", "\n               , "))
}

// since returns the time since t; a dash if t is unknown.
func (a *Assessment) since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return shortDuration(a.At.Sub(t))
}

// operatorSince is like since. For durations of less than a second it repeats oc's mistake: it cuts the fraction with its unit off
// "368.975µs" and reads the rest as seconds.
func (a *Assessment) operatorSince(t time.Time) string {
	ago := a.At.Sub(t)
	if !a.asOriginal || ago <= 0 || ago >= time.Second {
		return a.since(t)
	}
	count, _, _ := strings.Cut(strings.TrimRight(ago.String(), "nµms"), ".")
	seconds, err := time.ParseDuration(count + "s")
	if err != nil {
		return a.since(t)
	}
	return shortDuration(seconds)
}

// shortDuration prints whole seconds and omits trailing zero units.
func shortDuration(d time.Duration) string {
	text := d.Truncate(time.Second).String()
	if text == "0s" {
		return "now"
	}
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}

func ellipsis(text string, length int) string {
	runes := []rune(text)
	if len(runes) <= length {
		return text
	}
	return string(runes[:length-3]) + "..."
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
