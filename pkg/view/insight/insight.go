// Package insight assesses the progress of a cluster's update: the control plane, its operators, the machine config pools with their nodes,
// and problems that need attention. Assess takes the state of the cluster at one moment, including the time, and returns an Assessment.
// Assessment.Text prints it as `oc adm upgrade status` does, byte for byte. The caller reads the cluster or a dump, and names the parts
// that it could not read. The sections for these parts show the gap; the other sections are complete.
package insight

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/leader"
	"github.com/cluster-version/cvo/pkg/update/firing"
)

// Input is the known state of a cluster at one moment.
type Input struct {
	// Now is the time at which the state was read.
	Now time.Time
	// ClusterVersion is required.
	ClusterVersion *configv1.ClusterVersion
	Operators      []configv1.ClusterOperator
	Pools          []mcfgv1.MachineConfigPool
	Nodes          []corev1.Node
	// Releases maps a MachineConfig to the release that rendered it: the value of the annotation ReleaseAnnotation.
	Releases map[string]string
	// ConfigOperatorImage is the image of the machine config operator's Deployment; nil if unknown.
	ConfigOperatorImage *string
	Alerts              []firing.Alert
	// Rollout is the operator's report of the rollout; nil if there is none.
	Rollout *api.ReleaseRollout
	// Leader is the record of the operator's Lease; zero if unknown.
	Leader leader.Record
	// Missing lists the parts that could not be read.
	Missing []Missing
	// AsOriginal reproduces behavior of oc that loses information. It drops insights without a description, and those about the request, a
	// pause, a deletion and the operator. Without operators, the state is unknown. It ignores a node's grace period before an unavailable node counts as serious. It
	// shows a change of an operator within the last second as older. Use it for dumps in oc's format.
	AsOriginal bool
}

// Missing is an unknown part of the cluster's state, with the reason.
type Missing struct {
	Section Section `json:"section"`
	Reason  string  `json:"reason"`
	// Absent means that the cluster has no such part, which is not an error.
	Absent bool `json:"absent,omitempty"`
}

// Section is a part of the assessment.
type Section string

// Sections of the assessment.
const (
	// SectionVersion is the state in the ClusterVersion.
	SectionVersion      Section = "ClusterVersion"
	SectionOperators    Section = "operators"
	SectionControlNodes Section = "control plane nodes"
	SectionWorkers      Section = "workers"
	SectionHealth       Section = "health"
	// SectionConfigOperator is the image of the machine config operator, which shows updates to another architecture.
	SectionConfigOperator Section = "machine config operator"
)

// Assessment is the progress of an update.
type Assessment struct {
	At           time.Time    `json:"at"`
	Updating     bool         `json:"updating"`
	ControlPlane ControlPlane `json:"controlPlane"`
	// ControlPlanePool is the pool of the control plane; nil if there is none.
	ControlPlanePool *Pool     `json:"controlPlanePool,omitempty"`
	WorkerPools      []Pool    `json:"workerPools"`
	Insights         []Insight `json:"insights"`
	// Estimate is the operator's own estimate, based on this cluster's updates; nil if there is none.
	Estimate *api.RolloutEstimate `json:"estimate,omitempty"`
	// Paused is the reason for a pause; empty if updates are not paused.
	Paused  string    `json:"paused,omitempty"`
	Missing []Missing `json:"missing,omitempty"`

	started    time.Time
	asOriginal bool
	// hasRollout means that the operator reports on the current update, so that only its own estimate counts.
	hasRollout bool
	// halted means that no operator works on the update.
	halted bool
	// unknown means that nothing shows whether the cluster is updating.
	unknown bool
}

// Assess assesses the progress of the update. It fails only without a ClusterVersion.
func Assess(in Input) (*Assessment, error) {
	if in.ClusterVersion == nil {
		return nil, errors.New("there is no ClusterVersion")
	}
	a := &Assessment{At: in.Now, WorkerPools: []Pool{}, Insights: []Insight{}, Missing: slices.Clone(in.Missing), asOriginal: in.AsOriginal}
	a.setTimes(in)
	pools, found := assessPools(in, a)
	for _, pool := range pools {
		if pool.Name == api.ControlPlanePool {
			a.ControlPlanePool = &pool
			continue
		}
		a.WorkerPools = append(a.WorkerPools, pool)
		// Pending work in a waiting pool, such as a paused pool, is part of the update.
		a.Updating = a.Updating || pool.Total > 0 && pool.Updated != pool.Total
	}
	found = append(found, alertInsights(in.Alerts, a.started)...)
	if !in.AsOriginal {
		found = append(found, invalidInsights(in.ClusterVersion)...)
		found = append(found, requestInsights(in.ClusterVersion)...)
		found = append(found, a.pauseInsights(in)...)
	}
	controlPlane, more := assessControlPlane(in)
	a.ControlPlane = controlPlane
	if !in.AsOriginal {
		halts := append(DeletionInsights(in.ClusterVersion, in.Leader.Namespace), VacancyInsights(in.Leader)...)
		found = append(found, halts...)
		a.halted = slices.ContainsFunc(halts, func(i Insight) bool { return i.Level >= Error })
	}
	if a.halted && controlPlane.State != StateCompleted {
		a.ControlPlane.State = StateStalled
	}
	a.agreeOnRemaining(in)
	if controlPlane.Operators.Total == 0 && !slices.ContainsFunc(a.Missing, func(m Missing) bool { return m.Section == SectionOperators }) {
		a.Missing = append(a.Missing, Missing{Section: SectionOperators, Reason: "no ClusterOperator belongs to the release", Absent: true})
	}
	a.Insights = ranked(append(found, more...), in.AsOriginal)
	return a, nil
}

// setTimes determines whether the cluster is updating, and when the update started.
func (a *Assessment) setTimes(in Input) {
	progressing := api.FindCondition(in.ClusterVersion.Status.Conditions, configv1.OperatorProgressing)
	history := in.ClusterVersion.Status.History
	switch {
	case progressing != nil:
		a.started = progressing.LastTransitionTime.Time
		a.Updating = progressing.Status == configv1.ConditionTrue
	case len(history) > 0:
		a.addMissing(SectionVersion, "the ClusterVersion has no condition Progressing: using its history")
		a.Updating = history[0].State == configv1.PartialUpdate
	default:
		a.unknown = true
		a.addMissing(SectionVersion, "the ClusterVersion has no condition Progressing: no version operator has reported on it yet")
	}
	if len(history) > 0 {
		a.started = history[0].StartedTime.Time
	} else if progressing != nil {
		a.addMissing(SectionVersion, "the ClusterVersion has no history: neither the target nor the start of the update is known")
	}
	if in.Rollout == nil {
		return
	}
	status := in.Rollout.Status
	if current := status.Current; current != nil && current.To == in.ClusterVersion.Status.Desired.Version {
		a.hasRollout, a.Estimate = true, estimateAt(status.Estimate, in.Now)
		if paused := meta.FindStatusCondition(status.Conditions, api.RolloutPaused); paused != nil && paused.Status == metav1.ConditionTrue {
			a.Paused = cmp.Or(paused.Message, paused.Reason)
		}
	}
}

// estimateAt returns an estimate as of a later time; nil once its latest completion has passed.
func estimateAt(e *api.RolloutEstimate, now time.Time) *api.RolloutEstimate {
	if e == nil || e.LatestCompletion == nil {
		return e // a paused update keeps its remaining time
	}
	high := e.LatestCompletion.Sub(now)
	if high <= 0 {
		return nil
	}
	out := *e
	out.RemainingLow, out.RemainingHigh = duration(0), duration(high.Round(time.Second))
	if e.EarliestCompletion != nil {
		low := e.EarliestCompletion.Sub(now)
		if out.RemainingLow = duration(max(low, 0).Round(time.Second)); low <= 0 {
			out.EarliestCompletion = nil
		}
	}
	return &out
}

// agreeOnRemaining makes all texts show the same remaining time: the operator's own estimate or, if the operator does not report on the
// update, the estimate of oc. There is none while the update fails or no operator works on it, and none in the past. Only the texts of oc's own dumps keep those.
func (a *Assessment) agreeOnRemaining(in Input) {
	if in.AsOriginal {
		return
	}
	p := &a.ControlPlane
	failing := api.FindCondition(in.ClusterVersion.Status.Conditions, api.Failing)
	switch {
	case a.halted, failing != nil && failing.Status == configv1.ConditionTrue:
		a.Estimate, p.Remaining, p.Estimated = nil, nil, nil
	case a.Estimate != nil && p.State != StateCompleted:
		high := a.Estimate.RemainingHigh
		estimated := duration((in.Now.Sub(p.Started) + high.Duration).Truncate(time.Minute))
		p.Remaining, p.Estimated = &high, &estimated
	case a.hasRollout, p.Remaining != nil && p.Remaining.Duration <= 0:
		p.Remaining, p.Estimated = nil, nil
	}
}

func (a *Assessment) addMissing(section Section, format string, args ...any) {
	missing := Missing{Section: section, Reason: fmt.Sprintf(format, args...)}
	if !slices.ContainsFunc(a.Missing, func(m Missing) bool { return m.Section == section }) {
		a.Missing = append(a.Missing, missing)
	}
}

// missing returns the reason why a section could not be read; empty if it was read or the cluster has no such part.
func (a *Assessment) missing(section Section) string {
	for _, m := range a.Missing {
		if m.Section == section && !m.Absent {
			return m.Reason
		}
	}
	return ""
}

// migratesArchitecture reports whether the update changes to the multi-architecture image of the same version.
func migratesArchitecture(cv *configv1.ClusterVersion) bool {
	history := cv.Status.History
	progressing := api.FindCondition(cv.Status.Conditions, configv1.OperatorProgressing)
	return len(history) > 1 && history[0].Version == history[1].Version && history[0].Image != history[1].Image &&
		progressing != nil && progressing.Status == configv1.ConditionTrue
}

func duration(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
