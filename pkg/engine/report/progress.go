// Package report contains values that describe a rollout: Progress, the result of a pass, and Snapshot, which also has every manifest of
// the release. Package rollout sets these values. The reconciler, views, metrics and command line read them, partly from JSON. The package
// counts and sorts, but makes no decisions.
package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Progress is the result of a pass and the source of status, metrics and views. It is immutable.
type Progress struct {
	Release release.Release `json:"release"`
	Mode    release.Mode    `json:"mode"`
	// Total is the number of manifests. Done is the number of applied manifests whose gate has settled at least once; it never decreases.
	Total int `json:"total"`
	Done  int `json:"done"`
	// Complete is true if every manifest is applied and every gate is settled now.
	Complete bool `json:"complete"`
	// HandedOver is true once the machine-config operator's gate has settled. The node stage then manages the nodes.
	HandedOver bool `json:"handedOver"`
	// Problems contains the manifests that block others or have something to report, sorted by runlevel and name.
	Problems []Problem `json:"problems,omitempty"`
	// Runlevels lists the runlevels in order.
	Runlevels []Runlevel `json:"runlevels"`
	// Dropped contains, per object, the manifest fields that the server's schema does not know.
	Dropped []Dropped `json:"dropped,omitempty"`
	// Loosened contains, per object, the fields through which other writers weaken the security of pods.
	Loosened []Loosened `json:"loosened,omitempty"`
	// Controlled contains the objects that another object controls.
	Controlled []Controlled `json:"controlled,omitempty"`
	// ScaledToZero contains the workloads without replicas whose manifests leave their number to other clients.
	ScaledToZero []manifest.ID `json:"scaledToZero,omitempty"`
	// Deletions contains the incomplete deletions.
	Deletions []Deletion `json:"deletions,omitempty"`
	// UnknownDeletions is set while Deletions may lack some, because this rollout has not found out about each object that the release
	// deletes.
	UnknownDeletions Unknown `json:"unknownDeletions,omitzero"`
	// RetryAt is the time of the next pass if no event occurs, for example to retry a failed attempt; zero if the rollout waits only for
	// events.
	RetryAt time.Time `json:"retryAt,omitzero"`
	// Paused describes the pause of the rollout; nil if it is not paused.
	Paused *Pause `json:"paused,omitempty"`
	// Estimate is the estimated completion, calculated by the observer of the rollout; nil if unknown.
	Estimate *Estimate `json:"estimate,omitempty"`
}

// Estimate is the estimated completion of a rollout.
type Estimate struct {
	// Low and High are the bounds of the remaining work.
	Low  time.Duration `json:"lowNanoseconds"`
	High time.Duration `json:"highNanoseconds"`
	// Earliest and Latest are the bounds of the completion time; zero while the rollout is paused. Earliest is also zero if the rollout may
	// complete at any moment.
	Earliest time.Time `json:"earliest,omitzero"`
	Latest   time.Time `json:"latest,omitzero"`
	// Basis is History or ThisRollout. Rollouts is the number of earlier rollouts that the estimate is based on.
	Basis    string `json:"basis"`
	Rollouts int    `json:"rollouts,omitempty"`
}

// At returns the estimate at a later time, if nothing has made progress until then. It returns nil once the latest completion has passed,
// because then the estimate was wrong. The remaining time of a paused rollout stays the same.
func (e *Estimate) At(now time.Time) *Estimate {
	if e == nil || e.Latest.IsZero() {
		return e
	}
	if !now.Before(e.Latest) {
		return nil
	}
	out := *e
	out.Low, out.High = max(e.Earliest.Sub(now), 0).Round(time.Second), e.Latest.Sub(now).Round(time.Second)
	if !now.Before(e.Earliest) {
		out.Low, out.Earliest = 0, time.Time{}
	}
	return &out
}

// Runlevel is the progress of one runlevel.
type Runlevel struct {
	Runlevel   int         `json:"runlevel"`
	Total      int         `json:"total"`
	Done       int         `json:"done"`
	Components []Component `json:"components"`
}

// Component is the progress of one component within a runlevel.
type Component struct {
	Name  string `json:"name"`
	Total int    `json:"total"`
	Done  int    `json:"done"`
}

// Problem is one unsettled manifest. Its gate waits or has failed, or it could not be applied.
type Problem struct {
	ID        manifest.ID   `json:"object"`
	File      string        `json:"file"`
	Runlevel  int           `json:"runlevel"`
	Component string        `json:"component"`
	State     gate.State    `json:"state"`
	Patience  gate.Patience `json:"patience,omitempty"`
	Reason    string        `json:"reason"`
	Message   string        `json:"message"`
	// Pod names the pod that keeps a workload waiting, and the reason, such as `pod web-1: ImagePullBackOff`; empty if unknown.
	Pod string `json:"pod,omitempty"`
	// Since is the start of the problem: the time in the object or the time when a pass first reached the object, whichever is later. An
	// operator that was in trouble for days before an update therefore still gets the usual time to recover.
	Since time.Time `json:"since,omitzero"`
	// Err is the error of a failed apply; otherwise nil.
	Err error `json:"-"`
}

// PodFinding is the trouble of one pod of a workload.
type PodFinding struct {
	// Summary names the pod and the reason, such as `pod web-1: ImagePullBackOff`. It is empty if no pod is known to be in trouble.
	Summary string
	// Text is a clause with the details. It may be set without a Summary: then it is the reason why nothing is known.
	Text string
}

// Dropped contains the omitted fields of one object.
type Dropped struct {
	ID     manifest.ID `json:"object"`
	File   string      `json:"file"`
	Fields []string    `json:"fields"`
}

// Loosened contains the fields that other writers added to one object, as `manager: field`.
type Loosened struct {
	ID     manifest.ID `json:"object"`
	Fields []string    `json:"fields"`
}

// Controlled is an object of the release with another controller. That controller may write the object too.
type Controlled struct {
	ID manifest.ID `json:"object"`
	// Controller is the kind and name of the controller.
	Controller string `json:"controller"`
}

// Deletion is an incomplete deletion of one object.
type Deletion struct {
	ID      manifest.ID `json:"object"`
	Since   time.Time   `json:"since"`
	Message string      `json:"message,omitempty"`
}

// Unknown describes why something is unknown; zero if it is known.
type Unknown struct {
	// Pending is true until a pass over observed objects has ended.
	Pending bool `json:"pending,omitempty"`
	// Reason is the reason why that pass did not find out; empty before.
	Reason string `json:"reason,omitempty"`
}

// FirstOpen returns the lowest incomplete runlevel, or -1 if there is none.
func (p Progress) FirstOpen() int {
	for _, level := range p.Runlevels {
		if level.Done < level.Total {
			return level.Runlevel
		}
	}
	return -1
}

// Same reports whether p and other, of the same plan, would produce the same status.
func (p Progress) Same(other Progress) bool {
	sameProblem := func(a, b Problem) bool {
		a.Err, b.Err = nil, nil // the message contains their text
		return a == b
	}
	return p.Done == other.Done && p.Total == other.Total && p.Complete == other.Complete &&
		p.HandedOver == other.HandedOver && samePause(p.Paused, other.Paused) && slices.EqualFunc(p.Problems, other.Problems, sameProblem) &&
		p.UnknownDeletions == other.UnknownDeletions &&
		slices.Equal(p.Deletions, other.Deletions) // deletions block updates to other minor versions
}

// Pause describes a paused rollout: runlevel Before and higher runlevels do not start.
type Pause struct {
	Before int `json:"before"`
	// Reached is true once all runlevels below Before have settled, so no work is in progress.
	Reached bool `json:"reached"`
}

func samePause(a, b *Pause) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// IsClusterOperator reports whether the problem is about the gate of a ClusterOperator.
func (p Problem) IsClusterOperator() bool {
	return p.ID.Group == "config.openshift.io" && p.ID.Kind == "ClusterOperator"
}

// IsWorkload reports whether the problem is about a Deployment, DaemonSet or StatefulSet.
func (p Problem) IsWorkload() bool { return p.ID.Group == "apps" }

// SortProblems sorts problems by runlevel, component, file and object.
func SortProblems(problems []Problem) {
	sorted.By(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Runlevel, b.Runlevel), cmp.Compare(a.Component, b.Component),
			cmp.Compare(a.File, b.File), cmp.Compare(a.ID.String(), b.ID.String()))
	})
}
