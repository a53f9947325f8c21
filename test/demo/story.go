package main

import (
	"maps"
	"slices"
	"sync"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/view/nodes"
)

// story is the state of the demo so far, from which the views are drawn. It is a value, so a receiver may keep it.
type story struct {
	began time.Time
	steps []step
	// phases are the install and the update, if they have begun.
	phases []phase
	// conditions are those of the ClusterVersion. The ClusterOperators are listed by name.
	conditions []configv1.ClusterOperatorStatusCondition
	operators  map[string]configv1.ClusterOperatorStatus
	// nodes and poolObjects are the Nodes and the MachineConfigPools by name. pools is made from them.
	nodes       map[string]*corev1.Node
	poolObjects map[string]*mcfgv1.MachineConfigPool
	pools       []nodes.Pool
	notes       []note
	// failing names the component that is to fail. stuck is the time when its gate was the last pending one.
	failing string
	stuck   time.Time
}

// step is a part of the preparation.
type step struct {
	name         string
	began, ended time.Time
}

// note is an event. Details are only for audiences without the live view.
type note struct {
	at     time.Time
	kind   noteKind
	detail bool
	text   string
}

type noteKind int

const (
	plainNote noteKind = iota
	commandNote
	goodNote
	badNote
)

// phase is a rollout.
type phase struct {
	from, to     string
	began, ended time.Time
	handedOver   time.Time
	// nodesEnded is when all nodes ran the configs of the release; zero while nodes update.
	nodesEnded  time.Time
	mode        release.Mode
	total, done int
	levels      []level
	problems    []report.Problem
	// verified reports that the history lists the release as verified.
	verified bool
	requests requests
}

// requests counts the operator's requests to the API server in a phase.
type requests struct{ writes, reads int }

type level struct {
	report.Runlevel
	began, ended time.Time
}

// observe updates the phase with the operator's progress. It ignores the progress of another rollout.
func (p *phase) observe(now time.Time, progress *report.Progress) {
	if progress == nil || progress.Release.Version != p.to || progress.Mode == release.Reconciling || !p.ended.IsZero() {
		return
	}
	p.mode, p.total, p.done, p.problems = progress.Mode, progress.Total, progress.Done, progress.Problems
	if progress.HandedOver && p.handedOver.IsZero() {
		p.handedOver = now
	}
	known := map[int]level{}
	for _, l := range p.levels {
		known[l.Runlevel.Runlevel] = l
	}
	p.levels = make([]level, len(progress.Runlevels))
	below := true // all lower runlevels are complete
	for i, r := range progress.Runlevels {
		l := known[r.Runlevel]
		l.Runlevel = r
		started := below
		if p.mode == release.Initializing {
			started = r.Done > 0 || p.waits(r.Runlevel)
		}
		if started && l.began.IsZero() {
			l.began = now
		}
		if below && r.Done == r.Total && l.ended.IsZero() {
			l.ended = now
		}
		below = below && r.Done == r.Total
		if p.mode == release.Initializing {
			below = true
		}
		p.levels[i] = l
	}
}

// waits reports whether a runlevel has a pending manifest.
func (p *phase) waits(runlevel int) bool {
	return slices.ContainsFunc(p.problems, func(problem report.Problem) bool { return problem.Runlevel == runlevel })
}

// complete ends the phase.
func (p *phase) complete(now time.Time) {
	p.ended, p.done, p.problems = now, p.total, nil
	for i := range p.levels {
		l := &p.levels[i]
		if l.began.IsZero() {
			l.began = now
		}
		if l.ended.IsZero() {
			l.ended = now
		}
		if p.handedOver.IsZero() && slices.Contains(componentNames(*l), api.MachineConfigOperator) {
			p.handedOver = now // the gate was met between two polls
		}
		l.Done = l.Total
		l.Components = slices.Clone(l.Components)
		for j := range l.Components {
			l.Components[j].Done = l.Components[j].Total
		}
	}
}

// current returns the current or last phase, nil before the first.
func (s *story) current() *phase {
	if len(s.phases) == 0 {
		return nil
	}
	return &s.phases[len(s.phases)-1]
}

// condition returns a condition of the ClusterVersion, or the zero value.
func (s *story) condition(kind configv1.ClusterStatusConditionType) configv1.ClusterOperatorStatusCondition {
	for _, c := range s.conditions {
		if c.Type == kind {
			return c
		}
	}
	return configv1.ClusterOperatorStatusCondition{Type: kind}
}

// isStuck reports whether only the failing operator blocks the update.
func (s *story) isStuck() bool {
	p := s.current()
	if s.failing == "" || p == nil || p.from == "" || len(p.problems) == 0 {
		return false
	}
	for _, problem := range p.problems {
		if !problem.IsClusterOperator() || problem.ID.Name != s.failing {
			return false
		}
	}
	return s.condition(api.Failing).Status == configv1.ConditionTrue
}

// clone copies the parts that update functions change in place.
func (s *story) clone() story {
	c := *s
	c.steps, c.notes, c.phases = slices.Clone(s.steps), slices.Clip(s.notes), slices.Clone(s.phases)
	for i := range c.phases {
		c.phases[i].levels = slices.Clone(c.phases[i].levels)
	}
	c.operators, c.nodes, c.poolObjects = maps.Clone(s.operators), maps.Clone(s.nodes), maps.Clone(s.poolObjects)
	return c
}

// audience receives the story whenever it changes.
type audience interface{ show(story) }

// noAudience is an audience that ignores the story.
type noAudience struct{}

func (noAudience) show(story) {}

// storyteller holds the story, which several goroutines update.
type storyteller struct {
	audience audience
	now      func() time.Time

	mu    sync.Mutex
	story story
}

func newStoryteller(failing string) *storyteller {
	return &storyteller{audience: noAudience{}, now: time.Now, story: story{
		began: time.Now(), failing: failing, operators: map[string]configv1.ClusterOperatorStatus{},
		nodes: map[string]*corev1.Node{}, poolObjects: map[string]*mcfgv1.MachineConfigPool{},
	}}
}

// address changes the audience.
func (t *storyteller) address(a audience) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.audience = a
}

// update changes the story and shows it. The audience must return quickly.
func (t *storyteller) update(change func(s *story, now time.Time)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.story, t.now())
	t.audience.show(t.story.clone())
}

// note adds a note.
func (t *storyteller) note(n note) {
	t.update(func(s *story, now time.Time) {
		n.at = now
		s.notes = append(s.notes, n)
	})
}

// snapshot returns a copy of the story so far.
func (t *storyteller) snapshot() story {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.story.clone()
}
