package updates

import (
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion/control"
	"github.com/cluster-version/cvo/pkg/clusterversion/history"
	"github.com/cluster-version/cvo/pkg/update/risk"
	"github.com/cluster-version/cvo/pkg/update/upgradeable"
)

// Report writes the known updates to a status and returns condition RetrievedUpdates. An empty condition status means that the updates are
// unknown. obstacles block updates to another minor version.
func (k Known) Report(status *configv1.ClusterVersionStatus, schema control.Schema, obstacles []upgradeable.Obstacle, now time.Time) Retrieval {
	retrieved := k.retrieved
	if k.evaluated && !upgradeable.Pending(obstacles) {
		out := risk.Judge(k.riskInput(status, schema, obstacles, now))
		status.AvailableUpdates, status.ConditionalUpdates, status.ConditionalUpdateRisks = out.Available, out.Conditional, out.Risks
		if problems := listed("Omitted: ", out.Problems); problems != "" && retrieved.Status == configv1.ConditionTrue {
			retrieved.Message = printable.Excerpt(strings.TrimSpace(retrieved.Message+" "+problems), maxText)
		}
	}
	return retrieved
}

// riskInput returns the input that decides which updates are recommended. In clusters where risks cannot be accepted, only condition
// Upgradeable and alerts report risks of the cluster itself, as in OpenShift.
func (k Known) riskInput(status *configv1.ClusterVersionStatus, schema control.Schema, obstacles []upgradeable.Obstacle, now time.Time) risk.Input {
	current := status.Desired.Version
	input := risk.Input{
		Current:   current,
		Available: k.updates.Available, Conditional: k.updates.Conditional, Applies: k.applies, Accepted: k.accepted, Now: now,
		Previous: risk.Judged{Available: status.AvailableUpdates, Conditional: status.ConditionalUpdates, Risks: status.ConditionalUpdateRisks},
		Plain:    !schema.AcceptRisks || !schema.ConditionalUpdateRisks || !schema.RiskNames || !schema.RiskConditions,
	}
	if input.Plain {
		return input
	}
	for _, alert := range k.alerts {
		input.Extra = append(input.Extra, risk.Extra{ConditionalUpdateRisk: alert})
	}
	for _, o := range obstacles {
		applies := metav1.Condition{Type: api.RiskApplies, Status: metav1.ConditionTrue, Reason: o.Reason, Message: o.Message}
		if o.Unknown {
			applies.Status = metav1.ConditionUnknown
		}
		input.Extra = append(input.Extra, risk.Extra{
			ConditionalUpdateRisk: configv1.ConditionalUpdateRisk{Name: o.Risk, Message: o.Message, URL: o.URL, Conditions: []metav1.Condition{applies}},
			Concerns:              func(version string) bool { return o.Concerns(current, version) },
		})
	}
	return input
}

// Digest identifies the updates and the query that they answer. It is empty if the service has not answered the query.
func (k Known) Digest() string { return k.digest }

// Describing returns the releases that may describe the running one, from the service, the status and the known updates.
func (k Known) Describing(status configv1.ClusterVersionStatus) []configv1.Release {
	releases := append([]configv1.Release{k.updates.Current, status.Desired}, status.AvailableUpdates...)
	for _, update := range status.ConditionalUpdates {
		releases = append(releases, update.Release)
	}
	return releases
}

// RecordAccepted adds to a history entry the risks that the administrator accepted for the release, as they were listed when the update
// started.
func (k Known) RecordAccepted(entry *history.Release, updates []configv1.ConditionalUpdate) {
	i := slices.IndexFunc(updates, func(u configv1.ConditionalUpdate) bool { return u.Release.Image == entry.Image })
	if i < 0 {
		return
	}
	var names []string
	for _, r := range updates[i].Risks {
		applies := slices.ContainsFunc(r.Conditions, func(c metav1.Condition) bool { return c.Type == api.RiskApplies && c.Status != metav1.ConditionFalse })
		switch {
		case !applies:
		case slices.Contains(k.accepted, r.Name):
			names = append(names, r.Name)
		default:
			return // the administrator requested the update without accepting the risk; the precondition reports it
		}
	}
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	exposed := fmt.Sprintf("exposed to the risks [%s] which were all explicitly accepted by the cluster administrator.", strings.Join(names, ","))
	if entry.AcceptedRisks == "" {
		entry.AcceptedRisks = fmt.Sprintf("The target release %s is %s", entry.Image, exposed)
	} else {
		entry.AcceptedRisks += "; It is " + exposed
	}
}
