package recommend

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/update/firing"
)

// alertClass is a group of alerts with the same effect on an update.
type alertClass struct {
	name   string
	effect firing.Effect
	// quiet is the message if no alert of the group fires; empty for no message.
	quiet string
}

// alertClasses returns the groups in order of precedence: an alert belongs to the first that matches.
func alertClasses() []alertClass {
	return []alertClass{
		{"CriticalAlerts", firing.Cluster, "No critical alerts firing."},
		{classPDB, firing.Drains, "No PodDisruptionBudget alerts firing."},
		{"PodImagePullAlerts", firing.ImagePulls, "No Pod container image pull alerts firing."},
		{"NodeAlerts", firing.Nodes, "No Node alerts firing."},
		{"UpdatePrecheckAlerts", firing.Precheck, "No alerts with the openShiftUpdatePrecheck label true are firing."},
		{name: "VirtAlerts", effect: firing.Machines},
	}
}

const classPDB = "PodDisruptionBudgetAlerts"

// alertFindings returns findings about the firing alerts, and about groups without a firing alert.
func alertFindings(alerts []firing.Alert) []Finding {
	classes := alertClasses()
	var found []Finding
	fires := map[string]bool{}
	for _, alert := range alerts {
		name := alert.Name()
		if name == "" || alert.State == firing.StatePending {
			continue
		}
		// PodDisruptionBudgetLimit, which allows no disruption, is a critical alert, and also counts for the group of budgets.
		for _, class := range classes {
			if !alert.Has(class.effect) {
				continue
			}
			fires[class.name] = true
			critical := alert.IsCritical()
			details := alertDetails(alert)
			if critical && alert.IsBudgetExceeded() || !critical && alert.IsBudgetAtLimit() {
				fires[classPDB] = true
				namespace, budget := alert.Budget()
				details = fmt.Sprintf("Namespace=%s, PodDisruptionBudget=%s. %s", namespace, budget, details)
			}
			found = append(found, Finding{
				Type:    fmt.Sprintf("recommended/%s/%s/%d", class.name, name, len(found)),
				Status:  metav1.ConditionFalse,
				Reason:  "Alert:" + alert.State,
				Message: fmt.Sprintf("%s alert %s %s, %s. %s", alert.Severity(), name, alert.State, class.effect.Concern(), details),
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

func alertDetails(alert firing.Alert) string {
	summary := alert.Summary()
	if !strings.HasSuffix(summary, ".") {
		summary += "."
	}
	return fmt.Sprintf("%s %s %s", summary, alert.Described(), alert.RunbookText())
}
