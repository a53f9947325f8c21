package recommend

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// newest is the number of updates to each minor version that Text prints by default.
const newest = 2

// Text prints the issues of the cluster and the updates: the newest of each minor version, or all.
func (a *Assessment) Text(w io.Writer, all bool) error {
	var out bytes.Buffer
	a.clusterText(&out)
	if len(a.Updates) == 0 {
		fmt.Fprintln(&out, "No updates available. You may still upgrade to a specific release image with --to-image or wait for new updates to be available.")
	}
	for _, updates := range a.byMinor() {
		fmt.Fprintf(&out, "\nUpdates to %s:\n", minorOf(updates[0]))
		if all {
			listText(&out, updates)
		} else {
			newestText(&out, updates)
		}
	}
	_, err := out.WriteTo(w)
	return err
}

// UpdateText prints the issues of the cluster and of one update. If update is nil, it prints only the issues of the cluster.
func (a *Assessment) UpdateText(w io.Writer, update *Update) error {
	var out bytes.Buffer
	a.clusterText(&out)
	if update == nil {
		_, err := out.WriteTo(w)
		return err
	}
	location := fmt.Sprintf("Image: %s\nRelease URL: %s\n", update.Image, update.URL)
	if update.Recommended == metav1.ConditionTrue {
		fmt.Fprintf(&out, "\nUpdate to %s has no known issues relevant to this cluster.\n%s", update.Version, location)
	} else {
		fmt.Fprintf(&out, "\nUpdate to %s %s=%s:\n%sReason: %s\nMessage: %s\n", update.Version, api.UpdateRecommended, update.Recommended,
			location, a.reasonText(update), indented(update.Message))
	}
	if accepted, unaccepted := a.Issues(update); len(unaccepted) == 0 && len(accepted) > 0 {
		fmt.Fprintf(&out, "Update to %s has no known issues relevant to this cluster other than the accepted %s.\n", update.Version, strings.Join(accepted, ","))
	}
	_, err := out.WriteTo(w)
	return err
}

func (a *Assessment) reasonText(update *Update) string {
	named, rest := a.acceptedRisks(update)
	switch {
	case slices.Contains(a.Accept, AcceptConditionalUpdateRisk):
		return fmt.Sprintf("accepted %s via %s", update.Reason, AcceptConditionalUpdateRisk)
	case len(named) > 0 && len(rest) == 0:
		return fmt.Sprintf("accepted %s via %s", update.Reason, strings.Join(named, ", "))
	}
	return update.Reason
}

// Notes returns messages that are not part of the text, because they are not results: missing conditions and outdated updates.
func (a *Assessment) Notes() []string {
	var notes []string
	for _, f := range a.Findings {
		switch {
		case f.source == fromFailing && f.Reason == reasonNotReported:
			notes = append(notes, f.accepted()+"warning: "+f.Message)
		case f.source == fromRetrieval:
			notes = append(notes, fmt.Sprintf("warning: Cannot refresh available updates:\n  Reason: %s\n  Message: %s\n", f.Reason, indented(f.Message)))
		}
	}
	for _, warning := range a.Warnings {
		notes = append(notes, "warning: "+warning)
	}
	return notes
}

func (a *Assessment) clusterText(w io.Writer) {
	var content, accepted, concerned []string
	var paragraphs bytes.Buffer
	for _, f := range a.Findings {
		switch f.source {
		case fromFailing:
			if f.Reason != reasonNotReported {
				fmt.Fprint(w, f.accepted(), f.text())
			}
		case fromProgressing:
			fmt.Fprintf(w, "%sinfo: An update is in progress.  You may wish to let this update complete before requesting a new update.\n  %s\n\n",
				f.accepted(), indented(f.Message))
		case fromPrecheckError:
			fmt.Fprintln(w, "Failed to check for at least some preconditions:", f.Message)
		case fromPrecheck:
			switch {
			case f.Status == metav1.ConditionTrue:
				content = append(content, fmt.Sprintf("%s (%s)", f.Type, f.Reason))
				continue
			case f.Accepted:
				accepted = append(accepted, f.Type)
			default:
				concerned = append(concerned, f.Type)
			}
			paragraphs.WriteString(f.text())
		case fromRetrieval: // shown in the notes
		}
	}
	const subject = "in updating this cluster to later releases"
	for _, list := range []struct {
		types []string
		text  string
	}{
		{content, "no cause for concern " + subject},
		{accepted, "cause for concern " + subject + ", but were explicitly accepted via --accept"},
		{concerned, "cause for concern " + subject},
	} {
		if len(list.types) > 0 {
			slices.Sort(list.types)
			fmt.Fprintf(w, "The following conditions found %s: %s\n\n", list.text, strings.Join(list.types, ", "))
		}
	}
	// As in oc, accepted findings are explained only if there are unaccepted findings.
	if len(concerned) > 0 {
		_, _ = paragraphs.WriteTo(w)
	}
	a.channelText(w)
}

func (a *Assessment) channelText(w io.Writer) {
	if a.Channel == "" {
		return
	}
	if a.Upstream == "" {
		fmt.Fprintln(w, "Upstream update service is unset, so the cluster will use an appropriate default.")
	} else {
		fmt.Fprintln(w, "Upstream update service:", a.Upstream)
	}
	available := ""
	if len(a.Current.Channels) > 0 {
		available = fmt.Sprintf(" (available channels: %s)", strings.Join(a.Current.Channels, ", "))
	}
	fmt.Fprintf(w, "Channel: %s%s\n", a.Channel, available)
}

func (f Finding) accepted() string {
	if f.Accepted {
		return "accepted "
	}
	return ""
}

func (f Finding) text() string {
	return fmt.Sprintf("%s=%s:\n\n  Reason: %s\n  Message: %s\n\n", f.Type, f.Status, f.Reason, indented(f.Message))
}

// indented indents the continuation lines of a message to the column of an indented paragraph.
func indented(message string) string { return strings.ReplaceAll(message, "\n", "\n  ") }

func minorOf(u Update) string { return fmt.Sprintf("%d.%d", u.version.Major, u.version.Minor) }

// byMinor groups the updates by minor version, newest first.
func (a *Assessment) byMinor() [][]Update {
	var all [][]Update
	for _, update := range a.Updates {
		if last := len(all) - 1; last >= 0 && minorOf(all[last][0]) == minorOf(update) {
			all[last] = append(all[last], update)
			continue
		}
		all = append(all, []Update{update})
	}
	return all
}

// issuesTable prints rows in oc's layout, which has wide columns for short versions.
func issuesTable(w io.Writer, header bool, updates ...Update) {
	columns := tabwriter.NewWriter(w, 14, 2, 1, ' ', tabwriter.DiscardEmptyColumns)
	if header {
		fmt.Fprintln(columns, "  VERSION\tISSUES")
	}
	for _, update := range updates {
		issues := "no known issues relevant to this cluster"
		if update.Recommended != metav1.ConditionTrue {
			issues = update.Reason
		}
		fmt.Fprintf(columns, "  %s\t%s\n", update.Version, issues)
	}
	_ = columns.Flush() // writing to a buffer never fails
}

func listText(w io.Writer, updates []Update) { issuesTable(w, true, updates...) }

// newestText prints recommended updates as rows, and the other updates as paragraphs between them. As in oc, each row has its own layout.
func newestText(w io.Writer, updates []Update) {
	header, afterParagraph := true, false
	for i, update := range updates {
		recommended := update.Recommended == metav1.ConditionTrue
		if afterParagraph || !recommended {
			fmt.Fprintln(w)
		}
		if i == newest {
			fmt.Fprintf(w, "And %d older %s updates you can see with '--show-outdated-releases' or '--version VERSION'.\n", len(updates)-newest, minorOf(update))
			return
		}
		if !recommended {
			fmt.Fprintf(w, "  Version: %s\n  Image: %s\n  Reason: %s\n  Message: %s\n",
				update.Version, update.Image, update.Reason, indented(strings.TrimSpace(update.Message)))
			afterParagraph = true
			continue
		}
		issuesTable(w, header || afterParagraph, update)
		header, afterParagraph = false, false
	}
}
