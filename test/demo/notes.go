package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/release"
)

// noteProgress adds notes about changes in a phase.
func (s *story) noteProgress(before phase, p *phase, now time.Time) {
	say := func(n note) {
		n.at = now
		s.notes = append(s.notes, n)
	}
	ended := map[int]bool{}
	for _, l := range before.levels {
		ended[l.Runlevel.Runlevel] = !l.ended.IsZero()
	}
	for _, l := range p.levels {
		if !l.ended.IsZero() && !ended[l.Runlevel.Runlevel] {
			say(note{detail: true, kind: goodNote, text: fmt.Sprintf("runlevel %s complete after %s: %s of %s",
				runlevelName(l), seconds(l.ended.Sub(l.began)), manifests(l.Total), strings.Join(componentNames(l), ", "))})
		}
	}
	if before.handedOver.IsZero() && !p.handedOver.IsZero() {
		say(note{kind: goodNote, text: handOver(p)})
	}
	if was, is := waitedFor(before.problems), waitedFor(p.problems); len(is) > 0 && !slices.Equal(was, is) {
		say(note{detail: true, text: "waiting for " + strings.Join(is, ", ")})
	}
}

// manifests returns a number of manifests as text.
func manifests(n int) string {
	if n == 1 {
		return "1 manifest"
	}
	return fmt.Sprintf("%d manifests", n)
}

func handOver(p *phase) string {
	return fmt.Sprintf("control plane at %s, nodes handed over to %s", p.to, api.MachineConfigOperator)
}

func componentNames(l level) []string {
	names := make([]string, len(l.Components))
	for i, c := range l.Components {
		names[i] = c.Name
	}
	return names
}

// waitedFor names the objects that a rollout waits for.
func waitedFor(problems []report.Problem) []string {
	names := make([]string, 0, len(problems))
	for _, problem := range problems {
		names = append(names, objectName(problem))
	}
	return names
}

// objectName returns a short name. ClusterOperators, the most frequent objects, get the shortest.
func objectName(p report.Problem) string {
	switch {
	case p.IsClusterOperator():
		return p.ID.Name
	case p.ID.Namespace != "":
		return p.ID.Kind + " " + p.ID.Namespace + "/" + p.ID.Name
	}
	return p.ID.Kind + " " + p.ID.Name
}

// shortName returns the name for the view. The component column already shows the namespace.
func shortName(p report.Problem) string {
	switch {
	case p.IsClusterOperator():
		return p.ID.Name
	case p.ID.Kind == "CustomResourceDefinition":
		return "CRD " + p.ID.Name
	}
	return p.ID.Kind + " " + p.ID.Name
}

// shownConditions returns the types of the shown conditions in order.
func shownConditions() []configv1.ClusterStatusConditionType {
	return []configv1.ClusterStatusConditionType{
		api.ReleaseAccepted, configv1.OperatorAvailable, configv1.OperatorProgressing, api.Failing,
	}
}

// noteConditions adds notes about conditions that changed in more than a count.
func (s *story) noteConditions(before []configv1.ClusterOperatorStatusCondition, now time.Time) {
	old := story{conditions: before}
	for _, kind := range shownConditions() {
		was, is := old.condition(kind), s.condition(kind)
		if was.Status == is.Status && was.Reason == is.Reason && (kind == configv1.OperatorProgressing || was.Message == is.Message) {
			continue
		}
		n := note{at: now, detail: true, text: fmt.Sprintf("%s=%s", kind, is.Status)}
		if is.Message != "" {
			n.text += ": " + oneLine(is.Message)
		}
		if kind == api.Failing && is.Status == configv1.ConditionTrue && !s.installing() {
			n.kind, n.detail = badNote, s.failing == ""
		}
		s.notes = append(s.notes, n)
	}
}

// installing reports whether the platform is being installed, so that missing parts are normal.
func (s *story) installing() bool {
	p := s.current()
	return p == nil || p.mode == release.Initializing || p.from == ""
}

// noteCompleted adds a note about the end of a phase.
func (s *story) noteCompleted(p *phase, now time.Time) {
	what := "installed " + p.to
	if p.from != "" {
		what = fmt.Sprintf("updated %s to %s", p.from, p.to)
	}
	text := fmt.Sprintf("%s in %s: %d manifests", what, seconds(p.ended.Sub(p.began)), p.total)
	if p.verified {
		text += ", signature verified"
	}
	s.notes = append(s.notes, note{at: now, kind: goodNote, text: text})
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// seconds returns a duration for people, with tenths below a minute.
func seconds(d time.Duration) string {
	switch {
	case d < 0:
		d = 0
	case d >= time.Minute:
		return fmt.Sprintf("%d:%02d min", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func runlevelName(l level) string { return fmt.Sprintf("%02d", l.Runlevel.Runlevel) }
