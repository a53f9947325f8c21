package main

import (
	"maps"
	"slices"
	"sync"
	"time"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// story is all that is known so far; views are made of it. It is a value: whoever has one may keep it.
type story struct {
	began time.Time
	steps []step
	// phases are the install and the update, as far as they have begun.
	phases []phase
	// conditions of the ClusterVersion, and the ClusterOperators by name.
	conditions []configv1.ClusterOperatorStatusCondition
	operators  map[string]configv1.ClusterOperatorStatus
	notes      []note
	// failing names the component that is to fail; stuck is when nothing but its gate was left to wait for.
	failing string
	stuck   time.Time
}

// step is one part of the preparation.
type step struct {
	name         string
	began, ended time.Time
}

// note is something that has happened. A detail is of interest only to those who do not see the live view.
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

// phase is one rollout.
type phase struct {
	from, to     string
	began, ended time.Time
	handedOver   time.Time
	mode         release.Mode
	total, done  int
	levels       []level
	problems     []rollout.Problem
	// verified: the history says that the release's signature was.
	verified bool
	requests requests
}

// requests are those that the operator sent to the API server in a phase.
type requests struct{ writes, reads int }

type level struct {
	rollout.Runlevel
	began, ended time.Time
}

// observe takes over the progress that the operator reports; what belongs to another rollout is passed over.
func (p *phase) observe(now time.Time, progress *rollout.Progress) {
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

// waits reports whether a runlevel has a manifest that is worked on.
func (p *phase) waits(runlevel int) bool {
	return slices.ContainsFunc(p.problems, func(problem rollout.Problem) bool { return problem.Runlevel == runlevel })
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
			p.handedOver = now // the gate was met between two looks
		}
		l.Done = l.Total
		l.Components = slices.Clone(l.Components)
		for j := range l.Components {
			l.Components[j].Done = l.Components[j].Total
		}
	}
}

// current is the phase under way, or the last one; nil before the first.
func (s *story) current() *phase {
	if len(s.phases) == 0 {
		return nil
	}
	return &s.phases[len(s.phases)-1]
}

// condition is one of the ClusterVersion's; the zero value if it is not there.
func (s *story) condition(kind configv1.ClusterStatusConditionType) configv1.ClusterOperatorStatusCondition {
	for _, c := range s.conditions {
		if c.Type == kind {
			return c
		}
	}
	return configv1.ClusterOperatorStatusCondition{Type: kind}
}

// isStuck reports whether the operator that is to fail is all that holds the update.
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

// clone copies what update functions change in place.
func (s *story) clone() story {
	c := *s
	c.steps, c.notes, c.phases = slices.Clone(s.steps), slices.Clip(s.notes), slices.Clone(s.phases)
	for i := range c.phases {
		c.phases[i].levels = slices.Clone(c.phases[i].levels)
	}
	c.operators = maps.Clone(s.operators)
	return c
}

// audience is shown the story whenever it goes on.
type audience interface{ show(story) }

// nobody is an audience that does not look.
type nobody struct{}

func (nobody) show(story) {}

// teller keeps the story, to which several goroutines add.
type teller struct {
	audience audience
	now      func() time.Time

	mu    sync.Mutex
	story story
}

func newTeller(failing string) *teller {
	return &teller{audience: nobody{}, now: time.Now, story: story{
		began: time.Now(), failing: failing, operators: map[string]configv1.ClusterOperatorStatus{},
	}}
}

// address has the story told to somebody else.
func (t *teller) address(a audience) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.audience = a
}

// update changes the story and shows it. The audience must not take long.
func (t *teller) update(change func(s *story, now time.Time)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.story, t.now())
	t.audience.show(t.story.clone())
}

// note adds a note.
func (t *teller) note(n note) {
	t.update(func(s *story, now time.Time) {
		n.at = now
		s.notes = append(s.notes, n)
	})
}

// tell returns the story so far.
func (t *teller) tell() story {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.story.clone()
}
