package clustermetrics

import (
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/clusterversion"
)

// Names of the metrics that each scrape creates. Those without the prefix cvo_ exist in OpenShift clusters with the same labels, values and
// type. All are gauges.
const (
	metricVersion             = "cluster_version"
	metricAvailableUpdates    = "cluster_version_available_updates"
	metricCapability          = "cluster_version_capability"
	metricOperatorUp          = "cluster_operator_up"
	metricOperatorConditions  = "cluster_operator_conditions"
	metricOperatorTransitions = "cluster_operator_condition_transitions"
	metricRiskConditions      = "cluster_version_risk_conditions"
	metricConditionalUpdate   = "cluster_version_conditional_update_condition_seconds"
	metricUpdateRetrieval     = "cluster_version_operator_update_retrieval_timestamp_seconds"
	metricInstaller           = "cluster_installer"
	metricPayload             = "cluster_version_payload"

	metricManifests   = "cvo_rollout_manifests"
	metricRunlevel    = "cvo_rollout_runlevel"
	metricMode        = "cvo_rollout_mode"
	metricComplete    = "cvo_rollout_complete"
	metricPaused      = "cvo_rollout_paused"
	metricRemaining   = "cvo_rollout_remaining_seconds"
	metricHeldBack    = "cvo_rollout_repairs_held_back"
	metricGateWaiting = "cvo_gate_waiting_seconds"
)

// Descriptions returns the descriptions of the metrics that each scrape creates, by name. All are gauges.
func Descriptions() map[string]*prometheus.Desc {
	out := map[string]*prometheus.Desc{}
	for _, d := range []struct {
		name, help string
		labels     []string
	}{
		{
			metricVersion, "Reports the version of the cluster in terms of seconds since the epoch. " +
				"Type 'current' is the version being applied, with the creation date of the payload. " +
				"Type 'desired' exists if spec.desiredUpdate has another image, with the time of the most recent status transition. " +
				"Type 'failure' exists while the rollout fails, with the start of the failure. " +
				"Type 'completed' is the last completely applied version, with the time of its completion. " +
				"Type 'cluster' is the version of the cluster, with the creation date of the ClusterVersion. " +
				"Type 'updating' exists while a version is rolled out, with the start of the rollout. " +
				"Type 'initial' is the first installed version, with the creation date of the ClusterVersion. " +
				"The from_version is the last completed version. For 'completed' it is the completed version before that, for 'cluster' the initial version, and for 'initial' it is empty.",
			[]string{"type", "version", "image", "from_version"},
		},
		{metricAvailableUpdates, "Report the count of available versions for an upstream and channel.", []string{"upstream", "channel"}},
		{metricCapability, "Report currently enabled cluster capabilities. 0 is disabled, and 1 is enabled.", []string{"name"}},
		{metricOperatorUp, "1 if a cluster operator is Available=True. 0 otherwise, including if a cluster operator sets no Available condition. " +
			"The version is the operator's version. The reason is the condition's reason, or NoAvailableCondition.", []string{"name", "version", "reason"}},
		{metricOperatorConditions, "Report the conditions for active cluster operators. 0 is False and 1 is True.", []string{"name", "condition", "reason"}},
		{metricOperatorTransitions, "Reports the number of times that a condition on a cluster operator changes status.", []string{"name", "condition"}},
		{metricRiskConditions, "Report the risk conditions for cluster versions. -1 is Unknown, 0 is False and 1 is True.", []string{"condition", "risk", "reason"}},
		{
			metricConditionalUpdate, "Reports when the Recommended condition status on a conditional update changed to its current state.",
			[]string{"version", "condition", "status", "reason"},
		},
		{metricUpdateRetrieval, "Reports when updates were last successfully retrieved.", []string{"name"}},
		{metricInstaller, "Reports info about the installation process and, if applicable, the install tool. The type is 'openshift-install', or 'other' " +
			"where only the tool's manifests were used, or empty.", []string{"type", "version", "invoker"}},
		{metricPayload, "Report the number of entries in the payload.", []string{"version", "type"}},
		{
			metricManifests, "Manifests of the current release by state. State settled means applied with a gate that was met at least once; all others are pending.",
			[]string{"state"},
		},
		{metricRunlevel, "The lowest runlevel that has not been reached. Absent when all are reached.", nil},
		{metricMode, "1 for the current mode of the rollout: Initializing, Updating or Reconciling.", []string{"mode"}},
		{metricComplete, "1 if every manifest is applied and every gate is met now, else 0.", nil},
		{metricPaused, "1 if an administrator pauses the rollout at a runlevel boundary, else 0.", nil},
		{
			metricRemaining, "Estimated remaining time of the rollout, between low and high, based on this cluster's earlier updates. Absent if unknown.",
			[]string{"bound"},
		},
		{metricHeldBack, "Objects whose repair is deferred because another client keeps changing them.", nil},
		{metricGateWaiting, "How long the rollout has been waiting for a ClusterOperator. Absent if it does not wait for the operator.", []string{"name"}},
	} {
		out[d.name] = prometheus.NewDesc(d.name, d.help, d.labels, nil)
	}
	return out
}

// observation is the input for the metrics of one scrape.
type observation struct {
	now time.Time
	// clusterVersion is nil if the cluster has none.
	clusterVersion *configv1.ClusterVersion
	operators      []configv1.ClusterOperator
	measured       clusterversion.Measured
	transitions    map[transition]int
	// installer is the origin of the installation, when known.
	installer      installation
	installerKnown bool
}

// metrics returns the metrics of the observation. It is pure.
func (o observation) metrics() []prometheus.Metric {
	desc, s := Descriptions(), &series{}
	o.versions(desc, s)
	o.status(desc, s)
	for i := range o.operators {
		operatorMetrics(desc, s, &o.operators[i])
	}
	for t, n := range o.transitions {
		s.gauge(desc[metricOperatorTransitions], float64(n), t.name, t.condition)
	}
	if o.installerKnown {
		s.gauge(desc[metricInstaller], 1, o.installer.kind, o.installer.version, o.installer.invoker)
	}
	if at := o.measured.Retrieved; !at.IsZero() {
		s.gauge(desc[metricUpdateRetrieval], seconds(at), "")
	}
	o.rollout(desc, s)
	return s.list
}

// current returns the release that is rolled out, from the reconciler or, before its first report, from the status.
func (o observation) current() (version, image string) {
	if r := o.measured.Running; r.Image != "" {
		return r.Version, r.Image
	}
	if o.clusterVersion != nil {
		return o.clusterVersion.Status.Desired.Version, o.clusterVersion.Status.Desired.Image
	}
	return "", ""
}

// versions adds the series of cluster_version.
func (o observation) versions(desc map[string]*prometheus.Desc, s *series) {
	d := desc[metricVersion]
	version, image := o.current()
	if o.clusterVersion == nil {
		s.gauge(d, seconds(o.measured.Created), "current", version, image, "")
		return
	}
	cv := o.clusterVersion
	history := cv.Status.History
	completed, previous := lastCompleted(history)
	from := ""
	if completed != nil {
		from = completed.Version
		at := time.Time{}
		if completed.CompletionTime != nil {
			at = completed.CompletionTime.Time
		}
		s.gauge(d, seconds(at), "completed", completed.Version, completed.Image, previous)
	}
	s.gauge(d, seconds(o.measured.Created), "current", version, image, from)
	created := seconds(cv.CreationTimestamp.Time)
	initial := configv1.UpdateHistory{}
	if len(history) > 0 {
		initial = history[len(history)-1]
	}
	s.gauge(d, created, "initial", initial.Version, initial.Image, "")
	since := initial.Version
	if completed == nil {
		since = "" // the release is still being installed
	}
	s.gauge(d, created, "cluster", version, image, since)
	wanted, asked := cv.Spec.DesiredUpdate, cv.Spec.DesiredUpdate != nil && cv.Spec.DesiredUpdate.Image != image
	if asked {
		s.gauge(d, seconds(lastTransition(cv)), "desired", wanted.Version, wanted.Image, from)
	}
	if failing := api.FindCondition(cv.Status.Conditions, api.Failing); failing != nil && failing.Status == configv1.ConditionTrue {
		if asked {
			version, image = wanted.Version, wanted.Image
		}
		s.gauge(d, seconds(failing.LastTransitionTime.Time), "failure", version, image, from)
	}
	if len(history) > 0 && history[0].State == configv1.PartialUpdate {
		s.gauge(d, seconds(history[0].StartedTime.Time), "updating", history[0].Version, history[0].Image, from)
	}
}

// lastCompleted returns the newest completed entry of the history, and the version completed before it.
func lastCompleted(history []configv1.UpdateHistory) (last *configv1.UpdateHistory, previous string) {
	for i, h := range history {
		switch {
		case h.State != configv1.CompletedUpdate:
		case last == nil:
			last = &history[i]
		default:
			return last, h.Version
		}
	}
	return last, ""
}

// lastTransition returns the time of the last status change.
func lastTransition(cv *configv1.ClusterVersion) time.Time {
	at := cv.CreationTimestamp.Time
	if history := cv.Status.History; len(history) > 0 {
		at = latest(at, history[0].StartedTime.Time)
		if history[0].CompletionTime != nil {
			at = latest(at, history[0].CompletionTime.Time)
		}
	}
	for _, c := range cv.Status.Conditions {
		at = latest(at, c.LastTransitionTime.Time)
	}
	return at
}

// clusterVersionName is the name of the ClusterVersion in the metrics of ClusterOperators.
const clusterVersionName = "version"

// notFound is the reason label for a missing ClusterVersion.
const notFound = "ClusterVersionNotFound"

// status adds the metrics of the ClusterVersion's status.
func (o observation) status(desc map[string]*prometheus.Desc, s *series) {
	if o.clusterVersion == nil {
		s.gauge(desc[metricOperatorUp], 0, clusterVersionName, "", notFound)
		s.gauge(desc[metricOperatorConditions], 0, clusterVersionName, string(configv1.OperatorAvailable), notFound)
		return
	}
	cv := o.clusterVersion
	completed, _ := lastCompleted(cv.Status.History)
	version := ""
	if completed != nil {
		version = completed.Version
	}
	if c := api.FindCondition(cv.Status.Conditions, configv1.OperatorAvailable); c != nil && known(c.Status) {
		s.gauge(desc[metricOperatorUp], boolean(c.Status == configv1.ConditionTrue), clusterVersionName, version, c.Reason)
	}
	conditionMetrics(desc, s, clusterVersionName, cv.Status.Conditions)
	retrieved := api.FindCondition(cv.Status.Conditions, configv1.RetrievedUpdates)
	if cv.Spec.Upstream != "" || len(cv.Status.AvailableUpdates) > 0 || retrieved != nil && retrieved.Status == configv1.ConditionTrue {
		upstream := "<default>"
		if cv.Spec.Upstream != "" {
			upstream = string(cv.Spec.Upstream)
		}
		if o.measured.UpdateService != "" {
			upstream = o.measured.UpdateService
		}
		s.gauge(desc[metricAvailableUpdates], float64(len(cv.Status.AvailableUpdates)), upstream, cv.Spec.Channel)
	}
	for _, name := range cv.Status.Capabilities.EnabledCapabilities {
		s.gauge(desc[metricCapability], 1, string(name))
	}
	for _, name := range cv.Status.Capabilities.KnownCapabilities {
		s.gauge(desc[metricCapability], 0, string(name)) // unless the series exists already
	}
	for _, update := range cv.Status.ConditionalUpdates {
		for _, c := range update.Conditions {
			if c.Type == api.UpdateRecommended {
				s.gauge(desc[metricConditionalUpdate], seconds(c.LastTransitionTime.Time), update.Release.Version, c.Type, string(c.Status), c.Reason)
			}
		}
	}
	for _, risk := range cv.Status.ConditionalUpdateRisks {
		for _, c := range risk.Conditions {
			if c.Type == api.RiskApplies {
				value := map[metav1.ConditionStatus]float64{metav1.ConditionTrue: 1, metav1.ConditionFalse: 0}
				applies, sure := value[c.Status]
				if !sure {
					applies = -1
				}
				s.gauge(desc[metricRiskConditions], applies, c.Type, risk.Name, c.Reason)
			}
		}
	}
}

func operatorMetrics(desc map[string]*prometheus.Desc, s *series, co *configv1.ClusterOperator) {
	version := ""
	for _, v := range co.Status.Versions {
		if v.Name == "operator" {
			version = v.Version
			break
		}
	}
	up, reason := 0.0, "NoAvailableCondition"
	if c := api.FindCondition(co.Status.Conditions, configv1.OperatorAvailable); c != nil {
		up, reason = boolean(c.Status == configv1.ConditionTrue), c.Reason
	}
	s.gauge(desc[metricOperatorUp], up, co.Name, version, reason)
	conditionMetrics(desc, s, co.Name, co.Status.Conditions)
}

func conditionMetrics(desc map[string]*prometheus.Desc, s *series, name string, conditions []configv1.ClusterOperatorStatusCondition) {
	for _, c := range conditions {
		if known(c.Status) {
			s.gauge(desc[metricOperatorConditions], boolean(c.Status == configv1.ConditionTrue), name, string(c.Type), c.Reason)
		}
	}
}

func known(status configv1.ConditionStatus) bool {
	return status == configv1.ConditionTrue || status == configv1.ConditionFalse
}
