package rollout

import (
	"cmp"
	"slices"
	"time"

	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

// Progress is what a pass found; status, metrics and views are made of it. It is a value that nobody changes.
type Progress struct {
	Release release.Release `json:"release"`
	Mode    release.Mode    `json:"mode"`
	// Total manifests, and those that have been applied with their gate met once. Done never runs backwards.
	Total int `json:"total"`
	Done  int `json:"done"`
	// Complete: every manifest is applied and every gate is met now.
	Complete bool `json:"complete"`
	// HandedOver: the machine-config operator's gate is met, so the nodes are with the node stage.
	HandedOver bool `json:"handedOver"`
	// Problems are the manifests that hold others back or that have something to report, by runlevel and name.
	Problems []Problem `json:"problems,omitempty"`
	// Runlevels in order.
	Runlevels []Runlevel `json:"runlevels"`
	// Dropped are manifest fields that the server's schema does not know, by object.
	Dropped []Dropped `json:"dropped,omitempty"`
	// Loosened tells what others added beside our fields that loosens the security of pods, by object.
	Loosened []Loosened `json:"loosened,omitempty"`
	// Deletions are under way.
	Deletions []Deletion `json:"deletions,omitempty"`
	// RetryAt is when something is to be looked at again though no event may come, such as a failed attempt; zero if
	// only events are waited for.
	RetryAt time.Time `json:"retryAt,omitzero"`
	// Paused tells how the rollout is held back; nil if it is not.
	Paused *Pause `json:"paused,omitempty"`
	// Estimate is when the rollout will be complete, as whoever watches it works it out; nil if that cannot be told.
	Estimate *Estimate `json:"estimate,omitempty"`
}

// Estimate is when a rollout will be complete.
type Estimate struct {
	// Low and High are how much work is left.
	Low  time.Duration `json:"lowNanoseconds"`
	High time.Duration `json:"highNanoseconds"`
	// Earliest and Latest are when that will be done; zero while the rollout is paused.
	Earliest time.Time `json:"earliest,omitzero"`
	Latest   time.Time `json:"latest,omitzero"`
	// Basis is History or ThisRollout, Rollouts how many earlier ones it is told by.
	Basis    string `json:"basis"`
	Rollouts int    `json:"rollouts,omitempty"`
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

// Problem is one manifest that has not settled: its gate waits or failed, or it could not be applied.
type Problem struct {
	ID        manifest.ID   `json:"object"`
	File      string        `json:"file"`
	Runlevel  int           `json:"runlevel"`
	Component string        `json:"component"`
	State     gate.State    `json:"state"`
	Patience  gate.Patience `json:"patience,omitempty"`
	Reason    string        `json:"reason"`
	Message   string        `json:"message"`
	// Since is how long the rollout has been held by this: from when the object says the trouble began, or from when a
	// pass first came to it, whichever is later. An operator that was in trouble for days before an update gets its
	// time like any other.
	Since time.Time `json:"since,omitzero"`
	// Err is set if applying failed.
	Err error `json:"-"`
}

// Dropped tells which fields of an object were left out.
type Dropped struct {
	ID     manifest.ID `json:"object"`
	File   string      `json:"file"`
	Fields []string    `json:"fields"`
}

// Loosened tells what others added to an object, as `manager: field`.
type Loosened struct {
	ID     manifest.ID `json:"object"`
	Fields []string    `json:"fields"`
}

// Deletion is the deletion of one object that has been asked for and is not done.
type Deletion struct {
	ID      manifest.ID `json:"object"`
	Since   time.Time   `json:"since"`
	Message string      `json:"message,omitempty"`
}

// FirstOpen is the lowest runlevel that has not been reached in full, -1 if there is none.
func (p Progress) FirstOpen() int {
	for _, level := range p.Runlevels {
		if level.Done < level.Total {
			return level.Runlevel
		}
	}
	return -1
}

// ClusterOperators returns the names of the ClusterOperators that have the given patience among the problems, sorted.
func (p Progress) ClusterOperators(patience gate.Patience) []string {
	var names []string
	for _, problem := range p.Problems {
		if problem.IsClusterOperator() && problem.Patience == patience && problem.Err == nil {
			names = append(names, problem.ID.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Same reports whether two progresses of one plan would be told in the same way.
func (p Progress) Same(other Progress) bool {
	told := func(a, b Problem) bool {
		a.Err, b.Err = nil, nil // the message holds their text
		return a == b
	}
	return p.Done == other.Done && p.Total == other.Total && p.Complete == other.Complete &&
		p.HandedOver == other.HandedOver && samePause(p.Paused, other.Paused) && slices.EqualFunc(p.Problems, other.Problems, told) &&
		slices.Equal(p.Deletions, other.Deletions) // they keep the cluster from other minor versions
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

func sortProblems(problems []Problem) {
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Runlevel, b.Runlevel), cmp.Compare(a.Component, b.Component),
			cmp.Compare(a.File, b.File), cmp.Compare(a.ID.String(), b.ID.String()))
	})
}
