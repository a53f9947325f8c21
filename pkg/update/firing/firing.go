// Package firing is the noun for an alert of a Prometheus, and decides how an alert affects an update. It takes the labels and
// annotations that authors of alerting rules choose. It neither reads alerts nor decides whether an update may start.
package firing

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/cluster-version/cvo/internal/printable"
)

// Alert is an alert of Prometheus, as its API returns it.
type Alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	State       string            `json:"state"`
	ActiveAt    time.Time         `json:"activeAt"`
}

// States of an alert.
const (
	StatePending = "pending"
	StateFiring  = "firing"
)

// maxLine is the length of a Line, in bytes.
const maxLine = 512

// Line returns a text of another author on one line, of bounded length and without terminal control characters.
func Line(text string) string {
	line := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, printable.Excerpt(text, 2*maxLine))
	return printable.Excerpt(strings.Join(strings.Fields(line), " "), maxLine)
}

// Names of alerts: a PodDisruptionBudget allows no disruption now; a PodDisruptionBudget has fewer pods than it requires.
const (
	budgetAtLimit  = "PodDisruptionBudgetAtLimit"
	budgetExceeded = "PodDisruptionBudgetLimit"
)

// Effect is a possible effect of an alert on an update.
type Effect int

// Effects of alerts. An alert may have several.
const (
	// Cluster: the cluster has a significant issue.
	Cluster Effect = iota
	// Drains: nodes are drained slowly.
	Drains
	// ImagePulls: containers wait for their images.
	ImagePulls
	// Nodes: a node does not take workloads.
	Nodes
	// Machines: virtual machines cannot be moved.
	Machines
	// Precheck: the author of the alert wants it to be reported before an update.
	Precheck
)

// Concern describes the effect, as a part of a sentence about an alert.
func (e Effect) Concern() string {
	switch e {
	case Cluster:
		return "suggesting significant cluster issues worth investigating"
	case Drains:
		return "which might slow node drains"
	case Precheck:
		return "suggesting issues worth investigating before updating the cluster"
	case ImagePulls, Nodes, Machines:
		return "which may slow workload redistribution during rolling node updates"
	}
	return ""
}

// Name returns the name of the alert, empty if it has none.
func (a Alert) Name() string { return a.Labels["alertname"] }

// Severity returns the severity of the alert, empty if it has none.
func (a Alert) Severity() string { return a.Labels["severity"] }

// IsCritical reports whether the alert has the highest severity.
func (a Alert) IsCritical() bool { return a.Severity() == "critical" }

// Runbook returns the URL of the runbook, empty if the alert has none.
func (a Alert) Runbook() string { return a.Annotations["runbook_url"] }

// RunbookText returns the URL of the runbook, or a text about its absence.
func (a Alert) RunbookText() string {
	return cmp.Or(a.Runbook(), "<alert does not have a runbook_url annotation>")
}

// Summary returns the summary of the alert, or its name.
func (a Alert) Summary() string { return cmp.Or(a.Annotations["summary"], a.Name()) }

// Descriptions returns the texts about the alert that are longer than its summary.
func (a Alert) Descriptions() []string {
	return slices.DeleteFunc([]string{a.Annotations["description"], a.Annotations["message"]}, func(text string) bool { return text == "" })
}

// Described returns a sentence with the descriptions.
func (a Alert) Described() string {
	texts := a.Descriptions()
	if len(texts) == 0 {
		return "The alert has no description."
	}
	return "The alert description is: " + strings.Join(texts, " | ")
}

// IsBudgetAtLimit reports whether a PodDisruptionBudget allows no disruption at the moment.
func (a Alert) IsBudgetAtLimit() bool { return a.Name() == budgetAtLimit }

// IsBudgetExceeded reports whether a PodDisruptionBudget has fewer pods than it requires.
func (a Alert) IsBudgetExceeded() bool { return a.Name() == budgetExceeded }

// Budget names the PodDisruptionBudget of an alert about one.
func (a Alert) Budget() (namespace, name string) {
	return a.Labels["namespace"], a.Labels["poddisruptionbudget"]
}

// Has reports whether the alert has an effect.
func (a Alert) Has(e Effect) bool {
	switch e {
	case Cluster:
		return a.IsCritical()
	case Drains:
		return a.IsBudgetAtLimit()
	case ImagePulls:
		return a.Name() == "KubeContainerWaiting"
	case Nodes:
		return slices.Contains([]string{"KubeletHealthState", "KubeNodeNotReady", "KubeNodeReadinessFlapping", "KubeNodeUnreachable"}, a.Name())
	case Machines:
		return slices.Contains([]string{"VirtHandlerDaemonSetRolloutFailing", "VMCannotBeEvicted"}, a.Name())
	case Precheck:
		return a.Labels["openShiftUpdatePrecheck"] == "true"
	}
	return false
}
