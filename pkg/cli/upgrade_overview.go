package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/recommend"
	"github.com/cluster-version/cvo/pkg/release"
)

// clusterState is what a cluster does, in one word.
type clusterState string

const (
	// stateAtRest: it is at the release that was asked for.
	stateAtRest clusterState = "AtRest"
	// stateUpdating: it moves to another release.
	stateUpdating clusterState = "Updating"
	// stateAttention: it does not go on by itself.
	stateAttention clusterState = "Attention"
	// stateUnknown: it does not tell.
	stateUnknown clusterState = "Unknown"
)

// upgradeOverview is what a cluster says of itself and its updates.
type upgradeOverview struct {
	State      clusterState                              `json:"state"`
	Desired    configv1.Release                          `json:"desired"`
	Requested  *configv1.Update                          `json:"requested,omitempty"`
	Conditions []configv1.ClusterOperatorStatusCondition `json:"conditions"`
	Upstream   string                                    `json:"upstream,omitempty"`
	Channel    string                                    `json:"channel,omitempty"`
	// Recommended are the updates that are recommended for this cluster, newest first.
	Recommended []configv1.Release `json:"recommended"`
	// NotRecommended are those that are not, or where that is not known, newest first.
	NotRecommended []riskyUpdate `json:"notRecommended"`
	// Preflight is what came of the last release that was looked at, where the operator tells.
	Preflight *api.Preflight `json:"preflight,omitempty"`
}

// riskyUpdate is an update that is not recommended.
type riskyUpdate struct {
	configv1.Release `json:",inline"`
	Recommended      metav1.ConditionStatus `json:"recommended"`
	Reason           string                 `json:"reason"`
	Message          string                 `json:"message"`
	Risks            []updateRisk           `json:"risks"`
}

// updateRisk is one risk of an update.
type updateRisk struct {
	Name    string `json:"name"`
	Message string `json:"message"`
	URL     string `json:"url"`
	// Applies is empty where the cluster tells it only of all risks together.
	Applies metav1.ConditionStatus `json:"applies,omitempty"`
}

// newUpgradeOverview sorts what a ClusterVersion says.
func newUpgradeOverview(cv *configv1.ClusterVersion) *upgradeOverview {
	v := &upgradeOverview{
		State: stateOf(cv), Desired: cv.Status.Desired, Requested: cv.Spec.DesiredUpdate,
		Upstream: string(cv.Spec.Upstream), Channel: cv.Spec.Channel,
		Conditions:     append([]configv1.ClusterOperatorStatusCondition{}, cv.Status.Conditions...),
		Recommended:    append([]configv1.Release{}, cv.Status.AvailableUpdates...),
		NotRecommended: []riskyUpdate{},
	}
	slices.SortStableFunc(v.Recommended, release.NewestFirst)
	for _, update := range notRecommended(cv) {
		c := meta.FindStatusCondition(update.Conditions, recommended)
		risky := riskyUpdate{Release: update.Release, Recommended: c.Status, Reason: c.Reason, Message: c.Message, Risks: []updateRisk{}}
		for _, risk := range update.Risks {
			risky.Risks = append(risky.Risks, updateRisk{Name: risk.Name, Message: risk.Message, URL: risk.URL, Applies: recommend.AppliesTo(cv, risk)})
		}
		v.NotRecommended = append(v.NotRecommended, risky)
	}
	return v
}

func stateOf(cv *configv1.ClusterVersion) clusterState {
	is := func(name configv1.ClusterStatusConditionType, status configv1.ConditionStatus) bool {
		c := api.FindCondition(cv.Status.Conditions, name)
		return c != nil && c.Status == status
	}
	switch {
	case is(api.Invalid, configv1.ConditionTrue), is(api.Failing, configv1.ConditionTrue), is(api.ReleaseAccepted, configv1.ConditionFalse):
		return stateAttention
	case is(configv1.OperatorProgressing, configv1.ConditionTrue):
		return stateUpdating
	case is(configv1.OperatorProgressing, configv1.ConditionFalse):
		return stateAtRest
	}
	return stateUnknown
}

// overview is the command without anything asked for.
func (o *upgradeOptions) overview(ctx context.Context, streams Streams) error {
	c, err := o.cluster.open("cvo-upgrade")
	if err != nil {
		return err
	}
	cv, err := o.cluster.readClusterVersion(ctx, c)
	if err != nil {
		return err
	}
	v := newUpgradeOverview(cv)
	if v.Preflight, err = readPreflight(ctx, c, cv); err != nil {
		fmt.Fprintln(streams.Err, "warning: what came of the preflight is not known:", oneLine(err.Error()))
	}
	if o.output != "" {
		err = printStructured(streams, o.output, v)
	} else {
		err = o.printOverview(streams, v)
	}
	if err != nil || !o.exitCode {
		return err
	}
	code := map[clusterState]int{stateUpdating: ExitUpdating, stateAttention: ExitAttention, stateUnknown: ExitPartial}[v.State]
	if code == 0 {
		return nil
	}
	return &StateError{Code: code, Err: fmt.Errorf("the state of the cluster is %s", v.State)}
}

// printOverview prints both parts in one piece each, without what a terminal would take for commands.
func (o *upgradeOptions) printOverview(streams Streams, v *upgradeOverview) error {
	var out, errs bytes.Buffer
	v.text(&out, &errs, o.includeNotRecommended)
	_, err := io.WriteString(streams.Out, printableLines(out.String()))
	_, errOfErrs := io.WriteString(streams.Err, printableLines(errs.String()))
	return errors.Join(err, errOfErrs)
}

func (v *upgradeOverview) condition(name configv1.ClusterStatusConditionType) *configv1.ClusterOperatorStatusCondition {
	return api.FindCondition(v.Conditions, name)
}

// text is what oc prints, to the byte; warnings go to another place.
func (v *upgradeOverview) text(out, warnings io.Writer, includeNotRecommended bool) {
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
		unknown := slices.IndexFunc(v.NotRecommended, func(u riskyUpdate) bool { return u.Recommended != metav1.ConditionFalse })
		if unknown >= 0 {
			qualifier = fmt.Sprintf(", or where the recommended status is %q,", v.NotRecommended[unknown].Recommended)
		}
		fmt.Fprintf(out, "\nAdditional updates which are not recommended%s for your cluster configuration are available, "+
			"to view those re-run the command with --include-not-recommended.\n", qualifier)
	}
	v.preflightText(out)
}

func (v *upgradeOverview) stateText(out, warnings io.Writer) {
	const missing = "warning: No current %s info, see `oc describe clusterversion` for more details.\n"
	switch c := v.condition(api.Failing); {
	case c == nil:
		fmt.Fprintf(warnings, missing, api.Failing)
	case c.Status != configv1.ConditionFalse:
		fmt.Fprintf(out, "%s=%s:\n\n%s\n\n", c.Type, c.Status, because(c.Reason, c.Message))
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
		fmt.Fprintf(out, "%s=%s\n\n%s\n\n", c.Type, c.Status, because(c.Reason, c.Message))
	}
	if c := v.condition(api.ReleaseAccepted); c != nil && c.Status != configv1.ConditionTrue {
		fmt.Fprintf(out, "%s=%s\n\n%s\n\n", c.Type, c.Status, because(c.Reason, c.Message))
	}
}

func (v *upgradeOverview) channelText(out io.Writer) {
	if v.Upstream == "" {
		fmt.Fprintln(out, "Upstream is unset, so the cluster will use an appropriate default.")
	} else {
		fmt.Fprintf(out, "Upstream: %s\n", oneLine(v.Upstream))
	}
	fmt.Fprintf(out, "Channel: %s", oneLine(v.Channel))
	if channels := v.Desired.Channels; len(channels) > 0 {
		fmt.Fprintf(out, " (available channels: %s)", oneLine(strings.Join(channels, ", ")))
	}
	fmt.Fprintln(out)
}

func (v *upgradeOverview) recommendedText(out, warnings io.Writer) {
	retrieved := v.condition(configv1.RetrievedUpdates)
	stale := retrieved != nil && retrieved.Status == configv1.ConditionFalse
	if len(v.Recommended) == 0 {
		if stale {
			fmt.Fprintf(warnings, "warning: Cannot display available updates:\n%s\n\n", because(retrieved.Reason, retrieved.Message))
		} else {
			fmt.Fprintln(out, "No updates available. You may still upgrade to a specific release image with --to-image or wait for new updates to be available.")
		}
		return
	}
	fmt.Fprint(out, "\nRecommended updates:\n\n")
	table := tabwriter.NewWriter(out, 14, 2, 1, ' ', 0)
	fmt.Fprintln(table, "  VERSION\tIMAGE")
	for _, update := range v.Recommended {
		fmt.Fprintf(table, "  %s\t%s\n", oneLine(update.Version), oneLine(update.Image))
	}
	_ = table.Flush() // a buffer takes everything
	if stale {
		fmt.Fprintf(warnings, "warning: Cannot refresh available updates:\n%s\n\n", because(retrieved.Reason, retrieved.Message))
	}
}

func (v *upgradeOverview) notRecommendedText(out io.Writer) {
	if len(v.NotRecommended) == 0 {
		fmt.Fprint(out, "\nNo updates which are not recommended based on your cluster configuration are available.\n")
		return
	}
	fmt.Fprint(out, "\nSupported but not recommended updates:\n")
	for _, update := range v.NotRecommended {
		fmt.Fprintf(out, "\n  Version: %s\n  Image: %s\n  Recommended: %s\n%s\n",
			oneLine(update.Version), oneLine(update.Image), update.Recommended, because(update.Reason, update.explanation()))
	}
}

// explanation is the message with where to read on about each risk that may apply. The original's operator puts that
// into the message itself; what it does not name there, it has found not to apply.
func (u riskyUpdate) explanation() string {
	text := strings.TrimSpace(u.Message)
	named := slices.ContainsFunc(u.Risks, func(r updateRisk) bool { return r.URL != "" && strings.Contains(text, r.URL) })
	for _, risk := range u.Risks {
		if risk.Applies == metav1.ConditionFalse || risk.Applies == "" && named || strings.Contains(text, risk.URL) {
			continue
		}
		text += " " + oneLine(risk.URL)
	}
	return text
}

// completeVersions offers the updates that the cluster knows.
func (o *upgradeOptions) completeVersions(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.cluster.complete(cmd, func(cv *configv1.ClusterVersion) []string {
		v := newUpgradeOverview(cv)
		var offers []string
		for _, update := range v.Recommended {
			offers = append(offers, cobra.CompletionWithDesc(oneLine(update.Version), "recommended"))
		}
		for _, update := range v.NotRecommended {
			offers = append(offers, cobra.CompletionWithDesc(oneLine(update.Version), "not recommended: "+oneLine(update.Reason)))
		}
		return offers
	})
}
