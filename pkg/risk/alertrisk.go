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
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// Limits of what is told of alerts: whoever may write rules for them, or label what they are about, writes these texts.
const (
	maxAlertRisks     = 50
	maxAlertInstances = 5
	maxAlertText      = 512
	maxAlertMessage   = 2 << 10
	maxAlertURL       = 1 << 10
)

// noRunbook stands where an alert names no page that explains it.
const noRunbook = "https://github.com/openshift/runbooks/tree/master/alerts?runbook=notfound"

// Labels and annotations of alerts.
const (
	severityLabel         = "severity"
	precheckLabel         = "openShiftUpdatePrecheck"
	summaryAnnotation     = "summary"
	descriptionAnnotation = "description"
	messageAnnotation     = "message"
	runbookAnnotation     = "runbook_url"
)

// impact tells what an alert means for an update; empty if nothing.
func impact(name string, alert promv1.Alert) string {
	switch {
	case alert.Labels[severityLabel] == "critical":
		return "suggesting significant cluster issues worth investigating"
	case name == "PodDisruptionBudgetAtLimit":
		return "which might slow node drains"
	case slices.Contains(slowing(), name):
		return "which may slow workload redistribution during rolling node updates"
	case alert.Labels[precheckLabel] == "true":
		return "suggesting issues worth investigating before updating the cluster"
	default:
		return ""
	}
}

// slowing are alerts about what nodes need to take over work from those that restart.
func slowing() []string {
	return []string{
		"KubeContainerWaiting", "KubeletHealthState", "KubeNodeNotReady", "KubeNodeReadinessFlapping", "KubeNodeUnreachable",
		"VirtHandlerDaemonSetRolloutFailing", "VMCannotBeEvicted",
	}
}

// alertReason begins the reason why the risk of an alert applies.
const alertReason = "Alert:"

// alertRisks makes risks of the alerts that fire and have an impact, sorted by name. The error tells of those that cannot
// be risks.
func alertRisks(found []promv1.Alert, now time.Time) ([]configv1.ConditionalUpdateRisk, error) {
	instances := map[string][]promv1.Alert{}
	dropped := map[string]bool{}
	for _, alert := range found {
		name := string(alert.Labels[model.AlertNameLabel])
		if alert.State != promv1.AlertStateFiring || impact(name, alert) == "" {
			continue
		}
		if !extraName.MatchString(name) || len(name) > maxRiskName {
			dropped[fmt.Sprintf("alert %.100q fires and is no risk: its name does not match %s", name, extraName)] = true
			continue
		}
		instances[name] = append(instances[name], alert)
	}
	names := slices.Sorted(maps.Keys(instances))
	if len(names) > maxAlertRisks {
		dropped[fmt.Sprintf("%d alerts fire: only the first %d of them, by name, are risks", len(names), maxAlertRisks)] = true
		names = names[:maxAlertRisks]
	}
	var risks []configv1.ConditionalUpdateRisk
	for _, name := range names {
		risks = append(risks, alertRisk(name, instances[name], now))
	}
	var errs []error
	for _, text := range slices.Sorted(maps.Keys(dropped)) {
		if len(errs) == maxAlertInstances {
			errs = append(errs, fmt.Errorf("%d more alerts are no risks", len(dropped)-maxAlertInstances))
			break
		}
		errs = append(errs, errors.New(text))
	}
	return risks, errors.Join(errs...)
}

// alertRisk makes one risk of the instances of an alert.
func alertRisk(name string, instances []promv1.Alert, now time.Time) configv1.ConditionalUpdateRisk {
	texts, runbooks := map[string]bool{}, map[string]bool{}
	for _, instance := range instances {
		texts[alertText(name, instance)] = true
		if runbook := string(instance.Annotations[runbookAnnotation]); isWebPage(runbook) {
			runbooks[runbook] = true
		}
	}
	messages := slices.Sorted(maps.Keys(texts))
	if more := len(messages) - maxAlertInstances; more > 0 {
		messages = append(messages[:maxAlertInstances], fmt.Sprintf("and %d more", more))
	}
	message := api.Excerpt(strings.Join(messages, "; "), maxAlertMessage)
	return configv1.ConditionalUpdateRisk{
		Name: name, Message: message, URL: cmp.Or(append(slices.Sorted(maps.Keys(runbooks)), noRunbook)...),
		MatchingRules: []configv1.ClusterCondition{{Type: always}},
		Conditions: []metav1.Condition{{
			Type: Applies, Status: metav1.ConditionTrue, Reason: alertReason + string(promv1.AlertStateFiring), Message: message,
			LastTransitionTime: metav1.NewTime(now).Rfc3339Copy(),
		}},
	}
}

// alertText tells of one instance of an alert.
func alertText(name string, alert promv1.Alert) string {
	details := cmp.Or(printable(alert.Annotations[summaryAnnotation]), name)
	if !strings.HasSuffix(details, ".") {
		details += "."
	}
	if name == "PodDisruptionBudgetAtLimit" {
		details = fmt.Sprintf("Namespace=%s, PodDisruptionBudget=%s. %s",
			printable(alert.Labels["namespace"]), printable(alert.Labels["poddisruptionbudget"]), details)
	}
	if description := cmp.Or(printable(alert.Annotations[descriptionAnnotation]), printable(alert.Annotations[messageAnnotation])); description != "" {
		details += " The alert description is: " + description
	} else {
		details += " The alert has no description."
	}
	text := fmt.Sprintf("%s alert %s %s, %s. %s", printable(alert.Labels[severityLabel]), name, alert.State, impact(name, alert), details)
	return strings.TrimSpace(text)
}

// printable is a text on one line, bounded, without what steers terminals.
func printable(text model.LabelValue) string {
	line := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, api.Excerpt(string(text), 2*maxAlertText))
	return api.Excerpt(strings.Join(strings.Fields(line), " "), maxAlertText)
}

func isWebPage(text string) bool {
	page, err := url.ParseRequestURI(text)
	return err == nil && len(text) <= maxAlertURL && (page.Scheme == "https" || page.Scheme == "http") && page.Host != "" &&
		!strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}
