package overview

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/update/reported"
)

// Print prints the text and the warnings with one write each, without control sequences for a terminal.
func (v *Overview) Print(out, warnings io.Writer, includeNotRecommended bool) error {
	var text, warned bytes.Buffer
	v.text(&text, &warned, includeNotRecommended)
	_, err := io.WriteString(out, printable.Lines(text.String()))
	_, warningsErr := io.WriteString(warnings, printable.Lines(warned.String()))
	return errors.Join(err, warningsErr)
}

// text prints the overview as oc does, byte for byte. Warnings go to a separate writer.
func (v *Overview) text(out, warnings io.Writer, includeNotRecommended bool) {
	v.stateText(out, warnings)
	if v.Channel != "" {
		v.channelText(out)
	}
	v.recommendedText(out, warnings)
	switch {
	case includeNotRecommended:
		v.notRecommendedText(out)
	case len(v.NotRecommended) > 0:
		qualifier := ""
		unknown := slices.IndexFunc(v.NotRecommended, func(u ConditionalUpdate) bool { return u.Recommended != metav1.ConditionFalse })
		if unknown >= 0 {
			qualifier = fmt.Sprintf(", or where the recommended status is %q,", v.NotRecommended[unknown].Recommended)
		}
		fmt.Fprintf(out, "\nAdditional updates which are not recommended%s for your cluster configuration are available, "+
			"to view those re-run the command with --include-not-recommended.\n", qualifier)
	}
	v.preflightText(out)
}

func (v *Overview) stateText(out, warnings io.Writer) {
	const missing = "warning: No current %s info, see `oc describe clusterversion` for more details.\n"
	switch c := v.condition(api.Failing); {
	case c == nil:
		fmt.Fprintf(warnings, missing, api.Failing)
	case c.Status != configv1.ConditionFalse:
		fmt.Fprintf(out, "%s=%s:\n\n%s\n\n", c.Type, c.Status, reported.Because(c.Reason, c.Message))
	}
	if v.Unobserved { // the original client does not show it
		fmt.Fprintln(warnings, "warning: The operator has not seen the last change of the ClusterVersion yet")
	}
	if c := v.condition(api.Invalid); c != nil && c.Status == configv1.ConditionTrue { // nor this
		fmt.Fprintf(warnings, "warning: %s\n", c.Message)
	}
	switch c := v.condition(configv1.OperatorProgressing); {
	case c == nil || c.Message == "":
		fmt.Fprintf(warnings, missing, configv1.OperatorProgressing)
	case c.Status == configv1.ConditionTrue:
		fmt.Fprintf(out, "info: An upgrade is in progress. %s\n", c.Message)
	default:
		fmt.Fprintln(out, c.Message)
	}
	fmt.Fprintln(out)
	if c := v.condition(configv1.OperatorUpgradeable); c != nil && c.Status == configv1.ConditionFalse {
		fmt.Fprintf(out, "%s=%s\n\n%s\n\n", c.Type, c.Status, reported.Because(c.Reason, c.Message))
	}
	if c := v.condition(api.ReleaseAccepted); c != nil && c.Status != configv1.ConditionTrue {
		fmt.Fprintf(out, "%s=%s\n\n%s\n\n", c.Type, c.Status, reported.Because(c.Reason, c.Message))
	}
}

func (v *Overview) channelText(out io.Writer) {
	if v.Upstream == "" {
		fmt.Fprintln(out, "Upstream is unset, so the cluster will use an appropriate default.")
	} else {
		fmt.Fprintf(out, "Upstream: %s\n", terminal.OneLine(v.Upstream))
	}
	fmt.Fprintf(out, "Channel: %s", terminal.OneLine(v.Channel))
	if channels := v.Desired.Channels; len(channels) > 0 {
		fmt.Fprintf(out, " (available channels: %s)", terminal.OneLine(strings.Join(channels, ", ")))
	}
	fmt.Fprintln(out)
}

func (v *Overview) recommendedText(out, warnings io.Writer) {
	retrieved := v.condition(configv1.RetrievedUpdates)
	stale := retrieved != nil && retrieved.Status == configv1.ConditionFalse
	if len(v.Recommended) == 0 {
		if stale {
			fmt.Fprintf(warnings, "warning: Cannot display available updates:\n%s\n\n", reported.Because(retrieved.Reason, retrieved.Message))
		} else {
			fmt.Fprintln(out, "No updates available. You may still upgrade to a specific release image with --to-image or wait for new updates to be available.")
		}
		return
	}
	fmt.Fprint(out, "\nRecommended updates:\n\n")
	table := tabwriter.NewWriter(out, 14, 2, 1, ' ', 0)
	fmt.Fprintln(table, "  VERSION\tIMAGE")
	for _, update := range v.Recommended {
		fmt.Fprintf(table, "  %s\t%s\n", terminal.OneLine(update.Version), terminal.OneLine(update.Image))
	}
	_ = table.Flush() // writing to a buffer never fails
	if stale {
		fmt.Fprintf(warnings, "warning: Cannot refresh available updates:\n%s\n\n", reported.Because(retrieved.Reason, retrieved.Message))
	}
}

func (v *Overview) notRecommendedText(out io.Writer) {
	if len(v.NotRecommended) == 0 {
		fmt.Fprint(out, "\nNo updates which are not recommended based on your cluster configuration are available.\n")
		return
	}
	fmt.Fprint(out, "\nUpdates with known issues:\n")
	for _, update := range v.NotRecommended {
		fmt.Fprintf(out, "\n  Version: %s\n  Image: %s\n%s\n",
			terminal.OneLine(update.Version), terminal.OneLine(update.Image), reported.Because(update.Reason, update.explanation()))
	}
}

// explanation returns the message, followed by the URL of each risk that may apply. OpenShift's operator puts the risks and their URLs into
// the message itself; the risks that it omits do not apply.
func (u ConditionalUpdate) explanation() string {
	text := strings.TrimSpace(u.Message)
	named := slices.ContainsFunc(u.Risks, func(r Risk) bool { return r.URL != "" && strings.Contains(text, r.URL) })
	for _, risk := range u.Risks {
		if risk.Applies == metav1.ConditionFalse || risk.Applies == "" && named || strings.Contains(text, risk.URL) {
			continue
		}
		text += " " + terminal.OneLine(risk.URL)
	}
	return text
}

// preflightText prints the preflight of the requested release, until the cluster updates to it.
func (v *Overview) preflightText(out io.Writer) {
	asked, preflight := v.Requested, v.Preflight
	if asked == nil || asked.Version+asked.Image == "" {
		return
	}
	requested := asked.Mode == configv1.UpdateModePreflight
	found := preflight != nil && isPreflightOf(*preflight, *asked)
	switch {
	case requested && !found:
		fmt.Fprintf(out, "\nA preflight of %s is requested and has not started yet.\n", terminal.OneLine(reported.Name(asked.Version, asked.Image)))
	case found && (requested || preflight.Image != v.Desired.Image && (preflight.Version == "" || preflight.Version != v.Desired.Version)):
		fmt.Fprintf(out, "\nPreflight of %s: %s\n\n", terminal.OneLine(reported.Name(preflight.Version, preflight.Image)), preflight.State)
		if ended := preflight.EndedAt; ended != nil { // the cluster may have changed since then
			fmt.Fprintf(out, "  Ended: %s\n", ended.UTC().Format(time.RFC3339))
		}
		fmt.Fprintf(out, "  Step: %s\n  Message: %s\n", terminal.OneLine(preflight.Step), terminal.OneLine(cmp.Or(preflight.Message, "<no message>")))
	}
}
