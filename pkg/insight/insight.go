// Package insight says how an update of a cluster goes: the control plane, its operators, the machine config pools with
// their nodes, and what needs attention. Assess takes what was read of the cluster at one moment, a clock reading
// included, and returns an Assessment; Assessment.Text prints that as `oc adm upgrade status` does, byte for byte.
// Reading a cluster or a dump is left to the caller, who also says what could not be read: each section then tells what
// is missing, and the others are as good as ever.
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
)

// Input is what is known of a cluster at one moment.
type Input struct {
	// Now is when all this was read.
	Now time.Time
	// ClusterVersion is required.
	ClusterVersion *configv1.ClusterVersion
	Operators      []configv1.ClusterOperator
	Pools          []mcfgv1.MachineConfigPool
	Nodes          []corev1.Node
	// Releases tells of a MachineConfig which release rendered it: the value of the annotation ReleaseAnnotation.
	Releases map[string]string
	// ConfigOperatorImage is the image of the machine config operator's Deployment; nil if that is not known.
	ConfigOperatorImage *string
	Alerts              []Alert
	// Rollout is what the operator tells of the rollout; nil if it does not.
	Rollout *api.ReleaseRollout
	// Missing says what could not be read.
	Missing []Missing
	// AsOriginal keeps habits of the original that cost information: what has no description is left out, a node's grace
	// before it counts as seriously unavailable is over, however fresh the trouble is, and an operator's change within
	// the last second is said to be older. Dumps in the original's format are read so.
	AsOriginal bool
}

// Missing is something that is not known, and why.
type Missing struct {
	Section Section `json:"section"`
	Reason  string  `json:"reason"`
	// Absent says that the cluster has no such thing, which is nothing that went wrong.
	Absent bool `json:"absent,omitempty"`
}

// Section is a part of the assessment.
type Section string

// The sections.
const (
	// SectionVersion is what the ClusterVersion says.
	SectionVersion      Section = "ClusterVersion"
	SectionOperators    Section = "operators"
	SectionControlNodes Section = "control plane nodes"
	SectionWorkers      Section = "workers"
	SectionHealth       Section = "health"
	// SectionConfigOperator is the image of the machine config operator, which tells of updates to another architecture.
	SectionConfigOperator Section = "machine config operator"
)

// Assessment is how the update goes.
type Assessment struct {
	At           time.Time    `json:"at"`
	Updating     bool         `json:"updating"`
	ControlPlane ControlPlane `json:"controlPlane"`
	// ControlPlanePool is nil if there is no such pool.
	ControlPlanePool *Pool     `json:"controlPlanePool,omitempty"`
	WorkerPools      []Pool    `json:"workerPools"`
	Insights         []Insight `json:"insights"`
	// Estimate is the operator's own, from what this cluster's updates took; nil if there is none.
	Estimate *api.RolloutEstimate `json:"estimate,omitempty"`
	// Paused is why nothing new is rolled out; empty if it is.
	Paused  string    `json:"paused,omitempty"`
	Missing []Missing `json:"missing,omitempty"`

	started    time.Time
	asOriginal bool
	// unknown: nothing tells whether an update is under way.
	unknown bool
}

const (
	controlPlanePool = "master"
	workerPool       = "worker"
)

// Assess says how the update goes.
func Assess(in Input) (*Assessment, error) {
	if in.ClusterVersion == nil {
		return nil, errors.New("there is no ClusterVersion")
	}
	a := &Assessment{At: in.Now, WorkerPools: []Pool{}, Insights: []Insight{}, Missing: slices.Clone(in.Missing), asOriginal: in.AsOriginal}
	a.begin(in)
	pools, found := assessPools(in, a)
	for _, pool := range pools {
		if pool.Name == controlPlanePool {
			a.ControlPlanePool = &pool
			continue
		}
		a.WorkerPools = append(a.WorkerPools, pool)
		// What is left to do in a pool that waits, say for being unpaused, is part of the update.
		a.Updating = a.Updating || pool.Total > 0 && pool.Updated != pool.Total
	}
	found = append(found, alertInsights(in.Alerts, a.started)...)
	controlPlane, more := assessControlPlane(in)
	a.ControlPlane = controlPlane
	if controlPlane.Operators.Total == 0 {
		a.misses(SectionOperators, "there are no ClusterOperators that a release brought")
	}
	a.Insights = ranked(append(found, more...), in.AsOriginal)
	return a, nil
}

// begin finds out whether an update is under way, and since when.
func (a *Assessment) begin(in Input) {
	progressing := api.FindCondition(in.ClusterVersion.Status.Conditions, configv1.OperatorProgressing)
	history := in.ClusterVersion.Status.History
	switch {
	case progressing != nil:
		a.started = progressing.LastTransitionTime.Time
		a.Updating = progressing.Status == configv1.ConditionTrue
	case len(history) > 0:
		a.misses(SectionVersion, "the ClusterVersion has no condition Progressing: its history is what tells")
		a.Updating = history[0].State == configv1.PartialUpdate
	default:
		a.unknown = true
		a.misses(SectionVersion, "the ClusterVersion has no condition Progressing: no version operator has reported on it yet")
	}
	if len(history) > 0 {
		a.started = history[0].StartedTime.Time
	} else if progressing != nil {
		a.misses(SectionVersion, "the ClusterVersion has no history: neither the target nor the start of the update is known")
	}
	if in.Rollout == nil {
		return
	}
	status := in.Rollout.Status
	if current := status.Current; current != nil && current.To == in.ClusterVersion.Status.Desired.Version {
		a.Estimate = status.Estimate
		if paused := meta.FindStatusCondition(status.Conditions, api.RolloutPaused); paused != nil && paused.Status == metav1.ConditionTrue {
			a.Paused = cmp.Or(paused.Message, paused.Reason)
		}
	}
}

func (a *Assessment) misses(section Section, format string, args ...any) {
	missing := Missing{Section: section, Reason: fmt.Sprintf(format, args...)}
	if !slices.ContainsFunc(a.Missing, func(m Missing) bool { return m.Section == section }) {
		a.Missing = append(a.Missing, missing)
	}
}

// missing returns why a section is not there, empty if it is.
func (a *Assessment) missing(section Section) string {
	for _, m := range a.Missing {
		if m.Section == section {
			return m.Reason
		}
	}
	return ""
}

// migratesArchitecture reports whether the update is one to the multi-architecture image of the same version.
func migratesArchitecture(cv *configv1.ClusterVersion) bool {
	history := cv.Status.History
	progressing := api.FindCondition(cv.Status.Conditions, configv1.OperatorProgressing)
	return len(history) > 1 && history[0].Version == history[1].Version && history[0].Image != history[1].Image &&
		progressing != nil && progressing.Status == configv1.ConditionTrue
}

func duration(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
