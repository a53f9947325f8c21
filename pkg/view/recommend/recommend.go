// Package recommend lists the possible updates of a cluster with their known issues. Assess takes the ClusterVersion, the firing alerts and
// the issues that the administrator accepts. It returns an Assessment: findings about the current cluster, and the updates, newest first,
// each with its risks. Assessment.Text prints it as `oc adm upgrade recommend` does, byte for byte. The caller reads the cluster or a dump.
package recommend

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/update/firing"
	"github.com/cluster-version/cvo/pkg/update/reported"
	"github.com/cluster-version/cvo/pkg/update/upgradeable"
)

// Names that accept issues other than the risks of an update.
const (
	// AcceptConditionalUpdateRisk accepts all risks of an update.
	AcceptConditionalUpdateRisk = "ConditionalUpdateRisk"

	issueFailing     = string(api.Failing)
	issueProgressing = string(configv1.OperatorProgressing)
	issuePrecheck    = "FailedToCompletePrecheck"
	issueRetrieve    = "CannotRetrieveUpdates"
)

// Input is the known state of a cluster at one moment.
type Input struct {
	// ClusterVersion is required.
	ClusterVersion *configv1.ClusterVersion
	Alerts         []firing.Alert
	// AlertsUnknown replaces the findings about alerts if alerts are unavailable; otherwise nil.
	AlertsUnknown *Finding
	// AlertsAbsent is the reason why the cluster has no alerts, such as a missing Prometheus; nil if it has a source of alerts. In that case
	// there are no findings about alerts.
	AlertsAbsent error
	// PrecheckError is the error from reading the alerts; nil if they were read.
	PrecheckError error
	// Accept names findings and risks that the administrator accepts, in addition to the risks that the ClusterVersion's
	// spec accepts.
	Accept []string
}

// Assessment lists updates and known issues.
type Assessment struct {
	Current  configv1.Release `json:"current"`
	Channel  string           `json:"channel,omitempty"`
	Upstream string           `json:"upstream,omitempty"`
	// Findings describe the cluster, independent of the update.
	Findings []Finding `json:"findings"`
	// Updates are sorted by descending version.
	Updates []Update `json:"updates"`
	// Risks are all risks of the updates.
	Risks []Risk `json:"risks"`
	// Accept are the names accepted for this assessment.
	Accept []string `json:"accept"`
	// Warnings name what cannot be assessed: updates with an invalid version, and the alerts of a cluster that has none.
	Warnings []string `json:"warnings,omitempty"`
}

// source is the origin of a finding. Each origin has its place in the text.
type source int

const (
	fromFailing source = iota
	fromProgressing
	fromPrecheck
	fromPrecheckError
	fromRetrieval
)

// Finding is a condition of the cluster: True is good, False is an issue, Unknown is unknown.
type Finding struct {
	Type    string                 `json:"type"`
	Status  metav1.ConditionStatus `json:"status"`
	Reason  string                 `json:"reason"`
	Message string                 `json:"message"`
	// Name is the name that accepts the finding; empty if it needs no acceptance.
	Name     string `json:"name,omitempty"`
	Accepted bool   `json:"accepted,omitempty"`

	source source
}

// Risk is a known risk of an update.
type Risk struct {
	Name    string `json:"name"`
	URL     string `json:"url,omitempty"`
	Message string `json:"message,omitempty"`
	// Applies reports whether this cluster has the risk.
	Applies  metav1.ConditionStatus `json:"applies"`
	Accepted bool                   `json:"accepted,omitempty"`
}

// Update is a release that the cluster may be updated to.
type Update struct {
	configv1.Release `json:",inline"`
	// Recommended is True for an update without known issues.
	Recommended metav1.ConditionStatus `json:"recommended"`
	Reason      string                 `json:"reason,omitempty"`
	Message     string                 `json:"message,omitempty"`
	// Risks names the risks that apply to this cluster or may apply.
	Risks []string `json:"risks,omitempty"`

	version semver.Version
}

// Assess returns the updates and known issues of a cluster.
func Assess(in Input) *Assessment {
	cv := in.ClusterVersion
	a := &Assessment{
		Current: cv.Status.Desired, Channel: cv.Spec.Channel, Upstream: string(cv.Spec.Upstream),
		Findings: []Finding{}, Updates: []Update{}, Risks: []Risk{}, Accept: distinct(in.Accept),
	}
	if in.AlertsAbsent != nil {
		a.Warnings = append(a.Warnings, fmt.Sprintf("Alerts are not considered: %v", in.AlertsAbsent))
	}
	a.Findings = append(a.Findings, versionFindings(cv)...)
	a.Findings = append(a.Findings, precheckFindings(in)...)
	if c := api.FindCondition(cv.Status.Conditions, configv1.RetrievedUpdates); c != nil && c.Status != configv1.ConditionTrue {
		a.Findings = append(a.Findings, finding(c, issueRetrieve, fromRetrieval))
	}
	for i := range a.Findings {
		f := &a.Findings[i]
		f.Accepted = f.Name != "" && slices.Contains(a.Accept, f.Name)
	}
	accepted := slices.Clone(a.Accept)
	if desired := cv.Spec.DesiredUpdate; desired != nil {
		for _, risk := range desired.AcceptRisks {
			accepted = append(accepted, risk.Name)
		}
	}
	catalogue := map[string]Risk{}
	for _, update := range a.candidates(cv) {
		assessed, risks := assessUpdate(cv, update)
		a.Updates = append(a.Updates, assessed)
		for _, risk := range risks {
			risk.Accepted = slices.Contains(accepted, risk.Name)
			// The statuses of updates may differ about a shared risk. The worst status counts.
			if known, ok := catalogue[risk.Name]; !ok || weight(risk.Applies) > weight(known.Applies) {
				catalogue[risk.Name] = risk
			}
		}
	}
	sorted.By(a.Updates, func(x, y Update) int { return y.version.Compare(x.version) })
	for _, name := range slices.Sorted(maps.Keys(catalogue)) {
		a.Risks = append(a.Risks, catalogue[name])
	}
	return a
}

func finding(c *configv1.ClusterOperatorStatusCondition, name string, from source) Finding {
	return Finding{Type: string(c.Type), Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message, Name: name, source: from}
}

// versionFindings returns findings about a running or stuck update.
func versionFindings(cv *configv1.ClusterVersion) []Finding {
	var found []Finding
	switch failing := api.FindCondition(cv.Status.Conditions, api.Failing); {
	case failing == nil:
		found = append(found, Finding{
			Type: issueFailing, Status: metav1.ConditionUnknown, Reason: reasonNotReported,
			Message: fmt.Sprintf("No current %s info, see `oc describe clusterversion` for more details.", issueFailing),
			Name:    issueFailing, source: fromFailing,
		})
	case failing.Status != configv1.ConditionFalse:
		found = append(found, finding(failing, issueFailing, fromFailing))
	}
	if p := api.FindCondition(cv.Status.Conditions, configv1.OperatorProgressing); p != nil && p.Status == configv1.ConditionTrue && p.Message != "" {
		found = append(found, finding(p, issueProgressing, fromProgressing))
	}
	return found
}

// reasonNotReported is the reason for a missing condition.
const reasonNotReported = "NotReported"

func precheckFindings(in Input) []Finding {
	switch {
	case in.PrecheckError != nil:
		return []Finding{{
			Type: "recommended/Alert", Status: metav1.ConditionUnknown, Reason: "AlertsNotRead", Message: in.PrecheckError.Error(),
			Name: issuePrecheck, source: fromPrecheckError,
		}}
	case in.AlertsAbsent != nil:
		return nil
	case in.AlertsUnknown != nil:
		unknown := *in.AlertsUnknown
		unknown.source = fromPrecheck
		return []Finding{unknown}
	}
	return alertFindings(in.Alerts)
}

// candidate is an update in the status with its parsed version.
type candidate struct {
	configv1.ConditionalUpdate
	version semver.Version
}

// candidates returns all updates in the status. An update that is both conditional and available counts as conditional, because that entry
// has more information.
func (a *Assessment) candidates(cv *configv1.ClusterVersion) []candidate {
	updates := slices.Clone(cv.Status.ConditionalUpdates)
	for _, available := range cv.Status.AvailableUpdates {
		if !slices.ContainsFunc(cv.Status.ConditionalUpdates, func(u configv1.ConditionalUpdate) bool { return u.Release.Image == available.Image }) {
			updates = append(updates, configv1.ConditionalUpdate{Release: available})
		}
	}
	var found []candidate
	for _, update := range updates {
		version, err := semver.Parse(update.Release.Version)
		if err != nil {
			a.Warnings = append(a.Warnings, fmt.Sprintf("Cannot parse SemVer available update %q: %v", update.Release.Version, err))
			continue
		}
		found = append(found, candidate{ConditionalUpdate: *update.DeepCopy(), version: version})
	}
	blocked := api.FindCondition(cv.Status.Conditions, configv1.OperatorUpgradeable)
	if blocked == nil || blocked.Status != configv1.ConditionFalse {
		return found
	}
	current, err := semver.Parse(cv.Status.Desired.Version)
	if err != nil {
		a.Warnings = append(a.Warnings, fmt.Sprintf("Cannot inject %s=%s as a conditional update risk: cannot parse SemVer version %q: %v\n\nReason: %s\n  Message: %s\n",
			blocked.Type, blocked.Status, cv.Status.Desired.Version, err, blocked.Reason, indented(blocked.Message)))
		return found
	}
	for i := range found {
		if upgradeable.Concerns(cv.Status.Desired.Version, found[i].version.String()) {
			found[i].block(cv, current, blocked)
		}
	}
	return found
}

// block adds the condition that blocks updates to another minor version as a risk of the update, unless the update already has that risk.
func (c *candidate) block(cv *configv1.ClusterVersion, current semver.Version, by *configv1.ClusterOperatorStatusCondition) {
	if slices.ContainsFunc(c.Risks, func(risk configv1.ConditionalUpdateRisk) bool { return strings.Contains(risk.Message, by.Message) }) {
		return
	}
	applies := func(status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: api.RiskApplies, Status: status}}
	}
	recommended := metav1.Condition{Type: api.UpdateRecommended, Status: metav1.ConditionFalse, Reason: by.Reason, Message: by.Message}
	if at := slices.IndexFunc(c.Conditions, func(known metav1.Condition) bool { return known.Type == api.UpdateRecommended }); at >= 0 {
		// Replacing the condition loses its information about the other risks, so the risks keep it.
		for i, risk := range risksOf(cv, *c, c.Conditions[at])[:len(c.Risks)] {
			c.Risks[i].Conditions = applies(risk.Applies)
		}
		if c.Conditions[at].Status != metav1.ConditionTrue {
			recommended.Reason, recommended.Message = "MultipleReasons", by.Message+"\n\n"+c.Conditions[at].Message
		}
		c.Conditions[at] = recommended
	} else {
		c.Conditions = append(c.Conditions, recommended)
	}
	manual := "updating/preparing_for_updates/updating-cluster-prepare.html#cluster-upgradeable_updating-cluster-prepare"
	if current.Minor <= 13 {
		manual = "updating/index.html#understanding_clusteroperator_conditiontypes_updating-clusters-overview"
	}
	c.Risks = append(c.Risks, configv1.ConditionalUpdateRisk{
		Name: "UpgradeableFalse", Message: by.Message, Conditions: applies(metav1.ConditionTrue),
		URL: fmt.Sprintf("https://docs.openshift.com/container-platform/%d.%d/%s", current.Major, current.Minor, manual),
	})
}

func assessUpdate(cv *configv1.ClusterVersion, c candidate) (Update, []Risk) {
	u := Update{Release: c.Release, Recommended: metav1.ConditionTrue, version: c.version}
	if len(c.Risks) == 0 && len(c.RiskNames) == 0 {
		return u, nil
	}
	known := metav1.Condition{}
	if at := slices.IndexFunc(c.Conditions, func(known metav1.Condition) bool { return known.Type == api.UpdateRecommended }); at >= 0 {
		known = c.Conditions[at]
	} else {
		// Like oc, this puts as many empty names before the names as there are names.
		names := make([]string, len(c.Risks), 2*len(c.Risks))
		for _, risk := range c.Risks {
			names = append(names, risk.Name)
		}
		slices.Sort(names)
		known = metav1.Condition{Status: metav1.ConditionUnknown, Reason: "NoConditions", Message: fmt.Sprintf(
			"Conditional update to %s has risks (%s), but no conditions.", c.Release.Version, strings.Join(names, ", "))}
	}
	risks := risksOf(cv, c, known)
	if known.Status == metav1.ConditionTrue {
		return u, risks
	}
	u.Recommended, u.Reason, u.Message = known.Status, known.Reason, known.Message
	for _, risk := range risks {
		if risk.Applies != metav1.ConditionFalse {
			u.Risks = append(u.Risks, risk.Name)
		}
	}
	return u, risks
}

// risksOf returns the risks of an update, and whether each applies, as far as the status shows this.
func risksOf(cv *configv1.ClusterVersion, c candidate, recommended metav1.Condition) []Risk {
	all := slices.Clone(c.Risks)
	for _, name := range c.RiskNames {
		named := func(risk configv1.ConditionalUpdateRisk) bool { return risk.Name == name }
		if slices.ContainsFunc(all, named) {
			continue
		}
		risk := configv1.ConditionalUpdateRisk{Name: name}
		if at := slices.IndexFunc(cv.Status.ConditionalUpdateRisks, named); at >= 0 {
			risk = cv.Status.ConditionalUpdateRisks[at]
		}
		all = append(all, risk)
	}
	// An operator that reports for each risk whether it applies is authoritative. Older operators use the name of the only applicable risk
	// as the reason.
	alone := slices.ContainsFunc(all, func(risk configv1.ConditionalUpdateRisk) bool { return risk.Name == recommended.Reason })
	risks := make([]Risk, 0, len(all))
	for _, risk := range all {
		r := Risk{Name: risk.Name, URL: risk.URL, Message: risk.Message, Applies: metav1.ConditionUnknown}
		switch status := reported.AppliesTo(cv, risk); {
		case status != "":
			r.Applies = status
		case recommended.Status == metav1.ConditionTrue, alone && risk.Name != recommended.Reason:
			r.Applies = metav1.ConditionFalse
		case alone && recommended.Status == metav1.ConditionFalse:
			r.Applies = metav1.ConditionTrue
		}
		risks = append(risks, r)
	}
	return risks
}

func weight(applies metav1.ConditionStatus) int {
	return slices.Index([]metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionUnknown, metav1.ConditionTrue}, applies)
}

// Choose returns the update to a version. If there is none, the error states which versions are unavailable.
func (a *Assessment) Choose(version semver.Version) (*Update, error) {
	var major, minor bool
	var chosen *Update
	for i := range a.Updates {
		update := &a.Updates[i]
		major = major || update.version.Major == version.Major
		minor = minor || update.version.Major == version.Major && update.version.Minor == version.Minor
		if chosen == nil && update.Version == version.String() {
			chosen = update
		}
	}
	without := fmt.Sprintf("so cannot display context for the requested release %s", version)
	switch {
	case chosen != nil:
		return chosen, nil
	case len(a.Updates) == 0:
		return nil, fmt.Errorf("no updates available, %s", without)
	case !major:
		return nil, fmt.Errorf("no updates to %d available, %s", version.Major, without)
	case !minor:
		return nil, fmt.Errorf("no updates to %d.%d available, %s", version.Major, version.Minor, without)
	}
	return nil, fmt.Errorf("no update to %s available, so cannot display context for the requested release", version)
}

// Issues returns the names of the accepted and the unaccepted issues of an update, each sorted. As in oc, one name stands for all risks of
// the update, unless some of them were accepted by name.
func (a *Assessment) Issues(u *Update) (accepted, unaccepted []string) {
	for _, f := range a.Findings {
		switch {
		case f.Name == "":
		case f.Accepted:
			accepted = append(accepted, f.Name)
		default:
			unaccepted = append(unaccepted, f.Name)
		}
	}
	if u.Recommended != metav1.ConditionTrue {
		named, rest := a.acceptedRisks(u)
		switch {
		case slices.Contains(a.Accept, AcceptConditionalUpdateRisk):
			accepted = append(accepted, AcceptConditionalUpdateRisk)
		case len(named) == 0:
			unaccepted = append(unaccepted, AcceptConditionalUpdateRisk)
		default:
			accepted, unaccepted = append(accepted, named...), append(unaccepted, rest...)
		}
	}
	return distinct(accepted), distinct(unaccepted)
}

// distinct returns each name once, sorted. The result is never nil, so that it is a list in JSON.
func distinct(names []string) []string {
	return append([]string{}, slices.Compact(slices.Sorted(slices.Values(names)))...)
}

// acceptedRisks separates the risks of an update that were accepted by name from its other risks.
func (a *Assessment) acceptedRisks(u *Update) (named, rest []string) {
	for _, name := range u.Risks {
		if slices.ContainsFunc(a.Risks, func(r Risk) bool { return r.Name == name && r.Accepted }) {
			named = append(named, name)
		} else {
			rest = append(rest, name)
		}
	}
	return named, rest
}
