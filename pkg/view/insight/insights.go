package insight

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/leader"
	"github.com/cluster-version/cvo/pkg/update/firing"
	"github.com/cluster-version/cvo/pkg/update/reported"
)

// Level is the severity of an insight.
type Level int

// Levels in ascending order.
const (
	Info Level = iota
	Warning
	Error
	Critical
)

func (l Level) String() string {
	return [...]string{"Info", "Warning", "Error", "Critical"}[min(max(l, Info), Critical)]
}

// MarshalJSON encodes the name of the level.
func (l Level) MarshalJSON() ([]byte, error) { return json.Marshal(l.String()) }

// Impact is the affected quality of the cluster.
type Impact string

// Impacts of insights.
const (
	ImpactNone    Impact = "None"
	ImpactUnknown Impact = "Unknown"
	ImpactAPI     Impact = "API Availability"
	ImpactSpeed   Impact = "Update Speed"
	ImpactStalled Impact = "Update Stalled"
)

// Insight is a problem that needs attention.
type Insight struct {
	// Since is the start of the problem; zero if unknown.
	Since       time.Time  `json:"since,omitzero"`
	Level       Level      `json:"level"`
	Impact      Impact     `json:"impact"`
	Summary     string     `json:"summary"`
	Description string     `json:"description"`
	Reference   string     `json:"reference"`
	Resources   []Resource `json:"resources"`
}

// Resource is the subject of an insight.
type Resource struct {
	// Kind is the plural name and the group, if any, such as clusteroperators.config.openshift.io.
	Kind string `json:"kind"`
	Name string `json:"name"`
}

const (
	clusterVersions  = "clusterversions.config.openshift.io"
	clusterOperators = "clusteroperators.config.openshift.io"
	configPools      = "machineconfigpools.machineconfiguration.openshift.io"
	releaseRollouts  = api.ReleaseRolloutDefinition
	leases           = "leases.coordination.k8s.io"
	nodeKind         = "nodes"
	// alertKind is oc's kind for alerts, although that group has no such objects.
	alertKind = "alerts.config.openshift.io"

	runbooks          = "https://github.com/openshift/runbooks/blob/master/alerts/cluster-monitoring-operator/"
	referenceDown     = runbooks + "ClusterOperatorDown.md"
	referenceDegraded = runbooks + "ClusterOperatorDegraded.md"

	manuals          = "https://docs.openshift.com/container-platform/latest/"
	referenceHistory = manuals + "updating/troubleshooting_updates/gathering-data-cluster-update.html#gathering-clusterversion-history-cli_troubleshooting_updates"
	referenceNodes   = manuals + "post_installation_configuration/machine-configuration-tasks.html#understanding-the-machine-config-operator"
	referencePaused  = manuals + "support/troubleshooting/troubleshooting-operator-issues.html#troubleshooting-disabling-autoreboot-mco_troubleshooting-operator-issues"

	noMessage = "<no message>"
)

// ranked sorts insights: the worst level first, and within a level the newest first. It drops incomplete insights.
func ranked(found []Insight, asOriginal bool) []Insight {
	kept := []Insight{}
	for _, insight := range found {
		if insight.Summary == "" || insight.Reference == "" {
			continue
		}
		if insight.Description == "" {
			if asOriginal {
				continue
			}
			insight.Description = noMessage
		}
		kept = append(kept, insight)
	}
	sorted.By(kept, func(a, b Insight) int {
		return cmp.Or(cmp.Compare(b.Level, a.Level), b.Since.Compare(a.Since))
	})
	return kept
}

func versionInsights(cv *configv1.ClusterVersion, now time.Time) []Insight {
	insight := Insight{
		Level: Warning, Impact: ImpactStalled, Reference: referenceDegraded,
		Resources: []Resource{{clusterVersions, cv.Name}},
	}
	failing := api.FindCondition(cv.Status.Conditions, api.Failing)
	if failing == nil {
		insight.Since = now
		insight.Summary = fmt.Sprintf("Cluster Version %s has no Failing condition", cv.Name)
		insight.Description = "Current status of Cluster Version reconciliation is unclear.  See 'oc -n openshift-cluster-version logs -l k8s-app=cluster-version-operator --tail -1' to debug."
		return []Insight{insight}
	}
	verb := "is"
	switch failing.Status {
	case configv1.ConditionFalse:
		return nil
	case configv1.ConditionUnknown:
		verb = "may be"
	default:
	}
	insight.Since = failing.LastTransitionTime.Time
	insight.Summary = fmt.Sprintf("Cluster Version %s %s failing to proceed with the update (%s)", cv.Name, verb, failing.Reason)
	insight.Description = cmp.Or(failing.Message, noMessage)
	return []Insight{insight}
}

// invalidInsights reports a spec with values that the operator ignores.
func invalidInsights(cv *configv1.ClusterVersion) []Insight {
	invalid := api.FindCondition(cv.Status.Conditions, api.Invalid)
	if invalid == nil || invalid.Status != configv1.ConditionTrue {
		return nil
	}
	return []Insight{{
		Since: invalid.LastTransitionTime.Time, Level: Warning, Impact: ImpactStalled, Reference: api.UserDocs + "update.md#when-it-is-stuck",
		Summary: "The operator ignores invalid values in the spec", Description: invalid.Message, Resources: []Resource{{clusterVersions, cv.Name}},
	}}
}

// requestInsights reports a requested release that the operator rejects, and an accepted one of which the cluster gets nothing.
func requestInsights(cv *configv1.ClusterVersion) []Insight {
	accepted := api.FindCondition(cv.Status.Conditions, api.ReleaseAccepted)
	if accepted == nil {
		return nil
	}
	name := reported.Name(cv.Status.Desired.Version, cv.Status.Desired.Image)
	insight := Insight{Since: accepted.LastTransitionTime.Time, Level: Warning, Resources: []Resource{{clusterVersions, cv.Name}}}
	_, warning, warned := strings.Cut(accepted.Message, api.AcceptedWarning)
	switch {
	case accepted.Status == configv1.ConditionFalse:
		if wanted := reported.Requested(cv); wanted != nil {
			name = reported.Name(wanted.Version, wanted.Image)
		}
		insight.Impact, insight.Reference = ImpactStalled, api.UserDocs+"update.md#when-it-is-stuck"
		insight.Summary, insight.Description = fmt.Sprintf("Release %s is not accepted (%s)", name, accepted.Reason), accepted.Message
	case accepted.Status == configv1.ConditionTrue && warned:
		insight.Impact, insight.Reference = ImpactUnknown, api.UserDocs+"troubleshoot.md#the-cluster-gets-no-component"
		insight.Summary, insight.Description = fmt.Sprintf("The cluster gets no component of release %s", name), warning
	default:
		return nil
	}
	return []Insight{insight}
}

// pauseInsights reports a pause of the running update or the next one.
func (a *Assessment) pauseInsights(in Input) []Insight {
	if in.Rollout == nil {
		return nil
	}
	paused := meta.FindStatusCondition(in.Rollout.Status.Conditions, api.RolloutPaused)
	if paused == nil || paused.Reason == api.ReasonNotAsked || paused.Reason != api.ReasonNoUpdate && !a.hasRollout {
		return nil
	}
	return []Insight{{
		Since: paused.LastTransitionTime.Time, Level: Warning, Impact: ImpactStalled,
		Summary:     cmp.Or(paused.Message, paused.Reason),
		Description: "An administrator paused updates. 'cvo upgrade resume' continues them.", Reference: api.UserDocs + "update.md#pause",
		Resources: []Resource{{releaseRollouts, in.ClusterVersion.Name}},
	}}
}

const (
	// handover is the time that an operator may take to succeed another one. An update of the operator itself releases the Lease before the
	// next pod pulls its image and starts.
	handover = time.Minute
	// shortHandover is the part of it that is not reported.
	shortHandover = 5 * time.Second
)

// VacancyInsights reports that no version operator leads. An expired Lease is an error at once, because its operator did not hand over. It
// returns nothing if none has ever led, because an operator may use another Lease.
func VacancyInsights(last leader.Record) []Insight {
	vacancy := last.Vacancy()
	released := last.Host == ""
	if vacancy == "" || released && last.Silent <= shortHandover {
		return nil
	}
	insight := Insight{
		Since: last.RenewedAt, Level: Error, Impact: ImpactStalled, Summary: "No version operator leads: " + vacancy,
		Reference: api.UserDocs + "troubleshoot.md#the-operator-does-not-run",
		Resources: []Resource{{leases, last.Namespace + "/" + last.LeaseName}},
	}
	since := "No operator has led since " + last.RenewedAt.UTC().Format(time.RFC3339) + ". "
	switch {
	case last.IsUninstall():
		insight.Since = time.Time{} // 'cvo uninstall' renews the Lease
		insight.Description = "An uninstall is running. Until an operator runs again, the cluster does not change and the ClusterVersion is stale."
	case last.AfterUninstall:
		insight.Description = since + "Run " + UninstallRemedy(last) + "."
	case released && last.Silent <= handover:
		insight.Level, insight.Impact = Info, ImpactSpeed
		insight.Description = since + "The next one usually leads within a minute."
	default:
		insight.Description = since + fmt.Sprintf("Until one runs, the cluster does not change and the ClusterVersion is stale. Look at its Deployment with "+
			"'kubectl -n %s describe deployment %s', or restart 'cvo start'.", last.Namespace, api.OperatorDeployment)
	}
	return []Insight{insight}
}

// UninstallRemedy returns the commands after an uninstall that did not finish.
func UninstallRemedy(last leader.Record) string {
	return fmt.Sprintf("'cvo uninstall%s' with the flags of the first run to finish the uninstall, or 'cvo install' to restore deleted objects", api.PlaceFlags(last.Namespace, last.LeaseName))
}

// DeletionInsights reports that the ClusterVersion is being deleted, for example by an interrupted uninstall. It names the command that
// finishes the uninstall of the operator in the namespace; empty for the default one.
func DeletionInsights(cv *configv1.ClusterVersion, namespace string) []Insight {
	if cv.DeletionTimestamp == nil {
		return nil
	}
	summary := fmt.Sprintf("ClusterVersion %s is being deleted", cv.Name)
	if len(cv.Finalizers) > 0 {
		summary += " and waits for its finalizers " + api.FinalizersText(cv.Finalizers)
	}
	command := "cvo uninstall" + api.PlaceFlags(namespace, cv.Name)
	if len(cv.Status.History) > 0 && cv.Status.History[0].State == configv1.PartialUpdate {
		command += " --force"
	}
	return []Insight{{
		Since: cv.DeletionTimestamp.Time, Level: Error, Impact: ImpactStalled, Summary: summary,
		Description: "No operator rolls out a release or repairs objects. If an uninstall was interrupted, '" + command + "' finishes it. " +
			"Otherwise, recreate the ClusterVersion once it is gone.",
		Reference: api.UserDocs + "update.md#when-the-clusterversion-was-deleted",
		Resources: []Resource{{clusterVersions, cv.Name}},
	}}
}

func operatorInsights(name string, available, degraded *configv1.ClusterOperatorStatusCondition, now time.Time) []Insight {
	var found []Insight
	for _, check := range []struct {
		condition *configv1.ClusterOperatorStatusCondition
		bad       configv1.ConditionStatus
		verb      string
		reference string
		severe    time.Duration
	}{
		{available, configv1.ConditionFalse, "unavailable", referenceDown, 20 * time.Minute},
		{degraded, configv1.ConditionTrue, "degraded", referenceDegraded, 40 * time.Minute},
	} {
		// Operators may be unavailable for a few minutes during their update, so only longer problems are reported.
		if check.condition == nil || check.condition.Status != check.bad || now.Sub(check.condition.LastTransitionTime.Time) <= 5*time.Minute {
			continue
		}
		level := Warning
		if now.Sub(check.condition.LastTransitionTime.Time) > check.severe {
			level = Error
		}
		found = append(found, Insight{
			Since: check.condition.LastTransitionTime.Time, Level: level, Impact: ImpactAPI,
			Summary:     fmt.Sprintf("Cluster Operator %s is %s (%s)", name, check.verb, check.condition.Reason),
			Description: cmp.Or(check.condition.Message, noMessage), Reference: check.reference,
			Resources: []Resource{{clusterOperators, name}},
		})
	}
	return found
}

func alertInsights(alerts []firing.Alert, started time.Time) []Insight {
	var found []Insight
	for _, alert := range alerts {
		name := alert.Name()
		level, known := map[string]Level{"warning": Warning, "critical": Critical}[alert.Severity()]
		if name == "" || alert.State == firing.StatePending || !known {
			continue
		}
		// These alerts delay nodes, regardless of their start.
		affects := alert.IsBudgetExceeded() || alert.IsBudgetAtLimit()
		during := alert.ActiveAt.After(started)
		var description string
		switch {
		case during && affects:
			description = "Alert known to affect updates started firing during the update."
		case during:
			description = "Alert started firing during the update."
		case affects:
			description = "Alert known to affect updates has been firing since before the update started."
		default:
			continue
		}
		found = append(found, Insight{
			Since: alert.ActiveAt, Level: level, Impact: ImpactUnknown,
			Summary:     "Alert is firing: " + alert.Summary(),
			Description: description + " " + alert.Described(),
			Reference:   alert.RunbookText(),
			Resources:   []Resource{{alertKind, alertName(alert.Labels["namespace"], name)}},
		})
	}
	return found
}

func alertName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
