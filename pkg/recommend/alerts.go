package recommend

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Alert is one that Prometheus knows.
type Alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	State       string            `json:"state"`
	ActiveAt    time.Time         `json:"activeAt"`
}

const (
	alertPending  = "pending"
	alertCritical = "critical"
	// labelPrecheck is put on alerts that somebody wants to see before an update.
	labelPrecheck = "openShiftUpdatePrecheck"

	slowRedistribution = "which may slow workload redistribution during rolling node updates."
)

// alertClass is a group of alerts that mean the same for an update.
type alertClass struct {
	name string
	has  func(alert Alert, name string) bool
	// concern says what such an alert means.
	concern string
	// quiet is told if none of the group fires; of a group without it nothing is told then.
	quiet string
}

func named(names ...string) func(Alert, string) bool {
	return func(_ Alert, name string) bool { return slices.Contains(names, name) }
}

// alertClasses are in the order in which an alert is tried; the first that has it counts.
func alertClasses() []alertClass {
	return []alertClass{
		{
			"CriticalAlerts", func(alert Alert, _ string) bool { return alert.Labels["severity"] == alertCritical },
			"suggesting significant cluster issues worth investigating.", "No critical alerts firing.",
		},
		{classPDB, named("PodDisruptionBudgetAtLimit"), "which might slow node drains.", "No PodDisruptionBudget alerts firing."},
		{"PodImagePullAlerts", named("KubeContainerWaiting"), slowRedistribution, "No Pod container image pull alerts firing."},
		{
			"NodeAlerts", named("KubeletHealthState", "KubeNodeNotReady", "KubeNodeReadinessFlapping", "KubeNodeUnreachable"),
			slowRedistribution, "No Node alerts firing.",
		},
		{
			"UpdatePrecheckAlerts", func(alert Alert, _ string) bool { return alert.Labels[labelPrecheck] == "true" },
			"suggesting issues worth investigating before updating the cluster.", "No alerts with the openShiftUpdatePrecheck label true are firing.",
		},
		{name: "VirtAlerts", has: named("VirtHandlerDaemonSetRolloutFailing", "VMCannotBeEvicted"), concern: slowRedistribution},
	}
}

const classPDB = "PodDisruptionBudgetAlerts"

// alertFindings are about the alerts that fire, and about the groups of which none does.
func alertFindings(alerts []Alert) []Finding {
	classes := alertClasses()
	var found []Finding
	fires := map[string]bool{}
	for _, alert := range alerts {
		name := alert.Labels["alertname"]
		if name == "" || alert.State == alertPending {
			continue
		}
		// One that allows no disruption at all is a critical alert, and counts for budgets, too.
		atLimit, exceeded := name == "PodDisruptionBudgetAtLimit", name == "PodDisruptionBudgetLimit"
		for _, class := range classes {
			if !class.has(alert, name) {
				continue
			}
			fires[class.name] = true
			critical := alert.Labels["severity"] == alertCritical
			details := alertDetails(alert, name)
			if critical && exceeded || !critical && atLimit {
				fires[classPDB] = true
				details = fmt.Sprintf("Namespace=%s, PodDisruptionBudget=%s. %s", alert.Labels["namespace"], alert.Labels["poddisruptionbudget"], details)
			}
			found = append(found, Finding{
				Type:    fmt.Sprintf("recommended/%s/%s/%d", class.name, name, len(found)),
				Status:  metav1.ConditionFalse,
				Reason:  "Alert:" + alert.State,
				Message: fmt.Sprintf("%s alert %s %s, %s %s", alert.Labels["severity"], name, alert.State, class.concern, details),
				Name:    name, source: fromPrecheck,
			})
			break
		}
	}
	for _, class := range classes {
		if class.quiet != "" && !fires[class.name] {
			found = append(found, Finding{
				Type: "recommended/" + class.name, Status: metav1.ConditionTrue, Reason: "AsExpected", Message: class.quiet, source: fromPrecheck,
			})
		}
	}
	return found
}

func alertDetails(alert Alert, name string) string {
	summary := cmp.Or(alert.Annotations["summary"], name)
	if !strings.HasSuffix(summary, ".") {
		summary += "."
	}
	var texts []string
	for _, annotation := range []string{"description", "message"} {
		if text := alert.Annotations[annotation]; text != "" {
			texts = append(texts, text)
		}
	}
	description := "The alert has no description."
	if len(texts) > 0 {
		description = "The alert description is: " + strings.Join(texts, " | ")
	}
	return fmt.Sprintf("%s %s %s", summary, description, cmp.Or(alert.Annotations["runbook_url"], "<alert does not have a runbook_url annotation>"))
}
