package risk

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/update/firing"
)

// Limits for texts in alerts. Every client that can write alerting rules, or label the monitored objects, can choose these texts.
const (
	maxAlertRisks     = 50
	maxAlertInstances = 5
	maxAlertMessage   = 2 << 10
	maxAlertURL       = 1 << 10
)

// noRunbook is the URL for an alert without a runbook.
const noRunbook = "https://github.com/openshift/runbooks/tree/master/alerts?runbook=notfound"

// impact describes the effect of an alert on an update; empty if it has none.
func impact(alert firing.Alert) string {
	for _, effect := range []firing.Effect{firing.Cluster, firing.Drains, firing.ImagePulls, firing.Nodes, firing.Machines, firing.Precheck} {
		if alert.Has(effect) {
			return effect.Concern()
		}
	}
	return ""
}

// alertReason is the prefix of an alert's reason in its Applies condition.
const alertReason = "Alert:"

// alertRisks returns a risk for each firing alert that has an impact, sorted by name. The error lists the alerts that
// cannot become risks.
func alertRisks(found []firing.Alert, now time.Time) ([]configv1.ConditionalUpdateRisk, error) {
	instances := map[string][]firing.Alert{}
	dropped := map[string]bool{}
	for _, alert := range found {
		name := alert.Name()
		if alert.State != firing.StateFiring || impact(alert) == "" {
			continue
		}
		if !extraName.MatchString(name) || len(name) > api.MaxRiskName {
			dropped[fmt.Sprintf("alert %.100q is firing but cannot be a risk: its name does not match %s", name, extraName)] = true
			continue
		}
		instances[name] = append(instances[name], alert)
	}
	names := slices.Sorted(maps.Keys(instances))
	if len(names) > maxAlertRisks {
		dropped[fmt.Sprintf("%d alerts are firing, but only the first %d by name are risks", len(names), maxAlertRisks)] = true
		names = names[:maxAlertRisks]
	}
	var risks []configv1.ConditionalUpdateRisk
	for _, name := range names {
		risks = append(risks, alertRisk(name, instances[name], now))
	}
	var errs []error
	for _, text := range slices.Sorted(maps.Keys(dropped)) {
		if len(errs) == maxAlertInstances {
			errs = append(errs, fmt.Errorf("%d more messages about alerts are omitted", len(dropped)-maxAlertInstances))
			break
		}
		errs = append(errs, errors.New(text))
	}
	return risks, errors.Join(errs...)
}

// alertRisk returns one risk for all instances of an alert.
func alertRisk(name string, instances []firing.Alert, now time.Time) configv1.ConditionalUpdateRisk {
	texts, runbooks := map[string]bool{}, map[string]bool{}
	for _, instance := range instances {
		texts[alertText(instance)] = true
		if runbook := instance.Runbook(); isWebPage(runbook) {
			runbooks[runbook] = true
		}
	}
	messages := slices.Sorted(maps.Keys(texts))
	if more := len(messages) - maxAlertInstances; more > 0 {
		messages = append(messages[:maxAlertInstances], fmt.Sprintf("and %d more", more))
	}
	message := printable.Excerpt(strings.Join(messages, "; "), maxAlertMessage)
	return configv1.ConditionalUpdateRisk{
		Name: name, Message: message, URL: cmp.Or(append(slices.Sorted(maps.Keys(runbooks)), noRunbook)...),
		MatchingRules: []configv1.ClusterCondition{{Type: always}},
		Conditions: []metav1.Condition{{
			Type: api.RiskApplies, Status: metav1.ConditionTrue, Reason: alertReason + firing.StateFiring, Message: message,
			LastTransitionTime: metav1.NewTime(now).Rfc3339Copy(),
		}},
	}
}

// alertText describes one instance of an alert.
func alertText(alert firing.Alert) string {
	details := cmp.Or(firing.Line(alert.Summary()), alert.Name())
	if !strings.HasSuffix(details, ".") {
		details += "."
	}
	if alert.IsBudgetAtLimit() {
		namespace, budget := alert.Budget()
		details = fmt.Sprintf("Namespace=%s, PodDisruptionBudget=%s. %s", firing.Line(namespace), firing.Line(budget), details)
	}
	description := " The alert has no description."
	for _, text := range alert.Descriptions() {
		if line := firing.Line(text); line != "" {
			description = " The alert description is: " + line
			break
		}
	}
	text := fmt.Sprintf("%s alert %s %s, %s. %s", firing.Line(alert.Severity()), alert.Name(), alert.State, impact(alert), details+description)
	return strings.TrimSpace(text)
}

func isWebPage(text string) bool {
	page, err := url.ParseRequestURI(text)
	return err == nil && len(text) <= maxAlertURL && (page.Scheme == "https" || page.Scheme == "http") && page.Host != "" &&
		!strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}
