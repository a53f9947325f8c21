package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/cluster-version/cvo/pkg/gate"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// statusView says how an account of a rollout is drawn. The zero value draws plain ASCII.
type statusView struct {
	// All shows every manifest, also those that settled and those left out.
	All bool
	// Component, if set, is the only one shown, in full.
	Component string
	// Unicode allows box drawing characters and marks; Colour allows escape sequences.
	Unicode, Colour bool
}

const (
	// recently is how long a manifest that changed the cluster is shown after it has settled.
	recently = 5 * time.Minute
	// fewLines bounds a list that is not asked for in full.
	fewLines = 10
	// fewNames bounds the names in the head.
	fewNames = 4
)

// statusPicture draws one account; see render.
type statusPicture struct {
	statusView
	statusPalette

	snapshot *rollout.Snapshot
	lines    []string
}

// statusPalette are the marks and styles of a picture.
type statusPalette struct {
	branch, last, bar, gap               string
	settled, waiting, failed, pending    string
	skipped                              string
	strong, dim, good, busy, bad, accent func(string) string
}

func newStatusPalette(v statusView) statusPalette {
	p := statusPalette{
		branch: "|- ", last: "`- ", bar: "|  ", gap: "   ",
		settled: "+", waiting: "*", failed: "x", pending: ".", skipped: "-",
	}
	if v.Unicode {
		p.branch, p.last, p.bar = "├─ ", "└─ ", "│  "
		p.settled, p.waiting, p.failed, p.pending, p.skipped = "✓", "●", "✗", "·", "–"
	}
	style := func(s lipgloss.Style) func(string) string {
		if !v.Colour {
			return func(text string) string { return text }
		}
		return func(text string) string { return s.Render(text) }
	}
	colour := func(c string) lipgloss.Style { return lipgloss.NewStyle().Foreground(lipgloss.Color(c)) }
	p.strong, p.dim, p.good = style(lipgloss.NewStyle().Bold(true)), style(colour("8")), style(colour("2"))
	p.busy, p.bad, p.accent = style(colour("3")), style(colour("1").Bold(true)), style(colour("6").Bold(true))
	return p
}

// render draws an account of a rollout: a head of three lines, what needs attention, and the tree of runlevels,
// components and manifests, in which only what has not settled is drawn out. It is pure; all times are relative to that
// of the account.
func (v statusView) render(s *rollout.Snapshot) []string {
	p := &statusPicture{statusView: v, statusPalette: newStatusPalette(v), snapshot: s}
	p.head()
	objects := p.chosen()
	p.problems(objects)
	p.tree(objects)
	p.deleting(objects)
	p.repairs(objects)
	p.loosened(objects)
	p.dropped(objects)
	p.skips(objects)
	return p.lines
}

func (p *statusPicture) say(format string, args ...any) {
	p.lines = append(p.lines, strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

// section begins a part of the picture that has a title.
func (p *statusPicture) section(format string, args ...any) {
	p.say("")
	p.say("%s", p.strong(fmt.Sprintf(format, args...)))
}

func (p *statusPicture) head() {
	progress := p.snapshot.Progress
	p.say("%s  %s", p.strong(string(progress.Mode)), p.accent(oneLine(progress.Release.Version)+"  ")+p.dim(oneLine(progress.Release.Image)))
	done := fmt.Sprintf("%d of %d manifests done (%d%%)", progress.Done, progress.Total, percent(progress.Done, progress.Total))
	if progress.HandedOver && !progress.Complete {
		done += ", nodes handed over"
	}
	p.say("%s  %s", done, p.dim("as of "+p.snapshot.At.UTC().Format(time.RFC3339)))
	p.say("%s", waitingOn(progress))
}

func percent(done, total int) int {
	if total == 0 {
		return 0
	}
	return done * 100 / total
}

// waitingOn names what holds the rollout back, ClusterOperators by their name alone as ClusterVersion does.
func waitingOn(progress rollout.Progress) string {
	if progress.Complete {
		return "waiting on nothing: every manifest is applied and every gate is met"
	}
	var names []string
	for _, problem := range progress.Problems {
		if problem.Patience == gate.Report {
			continue
		}
		name := oneLine(problem.ID.String())
		if problem.IsClusterOperator() {
			name = oneLine(problem.ID.Name)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	switch more := len(names) - fewNames; {
	case len(names) == 0:
		return "waiting on nothing: manifests are being applied"
	case more > 0:
		return fmt.Sprintf("waiting on %s and %d more", strings.Join(names[:fewNames], ", "), more)
	}
	return "waiting on " + strings.Join(names, ", ")
}

// chosen are the manifests to draw.
func (p *statusPicture) chosen() []rollout.Object { return objectsOf(p.snapshot, p.Component) }

// objectsOf are the manifests of a component, of all for an empty name. Where an account has none, as before the first
// pass has ended, those that hold the rollout back stand for all.
func objectsOf(s *rollout.Snapshot, component string) []rollout.Object {
	objects := s.Objects
	if len(objects) == 0 {
		objects = problemObjects(s.Progress)
	}
	if component == "" {
		return objects
	}
	return filterObjects(objects, func(o rollout.Object) bool { return o.Component == component })
}

func problemObjects(progress rollout.Progress) []rollout.Object {
	var objects []rollout.Object
	for _, problem := range progress.Problems {
		state := map[gate.State]rollout.State{gate.Failed: rollout.StateFailed, gate.Waiting: rollout.StateWaiting, gate.Settled: rollout.StateSettled}[problem.State]
		objects = append(objects, rollout.Object{
			ID: problem.ID, File: problem.File, Runlevel: problem.Runlevel, Component: problem.Component, State: state,
			Since: problem.Since, Reason: problem.Reason, Message: problem.Message,
		})
	}
	return objects
}

func (p *statusPicture) problems(objects []rollout.Object) {
	var failed []rollout.Object
	for _, o := range objects {
		if o.State == rollout.StateFailed {
			failed = append(failed, o)
		}
	}
	if len(failed) == 0 {
		return
	}
	p.section("Problems")
	p.list(failed, func(o rollout.Object) string {
		return fmt.Sprintf("%s %s  %s%s", p.bad(p.failed), oneLine(o.ID.String()), p.dim(place(o.Runlevel, o.Component)), p.why(o))
	})
}

// list draws objects, only some unless all are asked for.
func (p *statusPicture) list(objects []rollout.Object, line func(rollout.Object) string) {
	shown := len(objects)
	if !p.All && shown > fewLines {
		shown = fewLines
	}
	for _, o := range objects[:shown] {
		p.say("  %s", line(o))
	}
	if more := len(objects) - shown; more > 0 {
		p.say("  %s", p.dim(fmt.Sprintf("and %d more (--all)", more)))
	}
}

func place(runlevel int, component string) string {
	return fmt.Sprintf("%02d %s", runlevel, oneLine(component))
}

// why tells since when an object is as it is, and the reason.
func (p *statusPicture) why(o rollout.Object) string {
	text := ""
	if !o.Since.IsZero() {
		text += "  " + p.ago(o.Since)
	}
	switch reason, message := oneLine(o.Reason), oneLine(o.Message); {
	case reason != "" && message != "":
		text += "  " + reason + ": " + message
	case reason+message != "":
		text += "  " + reason + message
	}
	return text
}

// ago is how long before the account a moment was.
func (p *statusPicture) ago(t time.Time) string {
	return duration.HumanDuration(max(0, p.snapshot.At.Sub(t)))
}

// branchOf is a runlevel or a component: what lies in it, and how far it is.
type branchOf struct {
	name       string
	runlevel   int
	total      int
	done       int
	objects    []rollout.Object
	components []*branchOf
}

func (b *branchOf) settled() bool {
	return b.done == b.total && !b.has(rollout.StateFailed, rollout.StateWaiting)
}

// pending: nothing of it has begun.
func (b *branchOf) pending() bool {
	return b.done == 0 && !b.has(rollout.StateFailed, rollout.StateWaiting, rollout.StateSettled)
}

func (b *branchOf) has(states ...rollout.State) bool {
	return slices.ContainsFunc(b.objects, func(o rollout.Object) bool { return slices.Contains(states, o.State) })
}

// runlevels makes the tree: runlevels by number, components as the graph has them.
func (p *statusPicture) runlevels(objects []rollout.Object) []*branchOf {
	levels := map[int]*branchOf{}
	at := func(runlevel int) *branchOf {
		if levels[runlevel] == nil {
			levels[runlevel] = &branchOf{runlevel: runlevel, name: fmt.Sprintf("%02d", runlevel)}
		}
		return levels[runlevel]
	}
	if len(p.snapshot.Objects) == 0 {
		p.outline(at)
	}
	for _, o := range objects {
		if o.State == rollout.StateSkipped {
			continue
		}
		level := at(o.Runlevel)
		for _, b := range []*branchOf{level, level.component(o.Component)} {
			b.objects = append(b.objects, o)
			if len(p.snapshot.Objects) > 0 {
				b.total++
				if o.State == rollout.StateSettled {
					b.done++
				}
			}
		}
	}
	sorted := make([]*branchOf, 0, len(levels))
	for _, level := range levels {
		sorted = append(sorted, level)
	}
	slices.SortFunc(sorted, func(a, b *branchOf) int { return cmp.Compare(a.runlevel, b.runlevel) })
	return sorted
}

// outline takes numbers from the progress, for an account without objects.
func (p *statusPicture) outline(at func(int) *branchOf) {
	for _, l := range p.snapshot.Progress.Runlevels {
		for _, c := range l.Components {
			if p.Component != "" && c.Name != p.Component {
				continue
			}
			level := at(l.Runlevel)
			for _, b := range []*branchOf{level, level.component(c.Name)} {
				b.total += c.Total
				b.done += c.Done
			}
		}
	}
}

func (b *branchOf) component(name string) *branchOf {
	for _, c := range b.components {
		if c.name == name {
			return c
		}
	}
	c := &branchOf{name: name}
	b.components = append(b.components, c)
	return c
}

func (p *statusPicture) tree(objects []rollout.Object) {
	levels := p.runlevels(objects)
	if len(levels) == 0 {
		if p.Component != "" {
			p.section("No component %q in this release", p.Component)
		}
		return
	}
	p.section("Rollout")
	for i, level := range levels {
		last := i == len(levels)-1
		p.say("%s%s %s", p.edge(last), p.mark(level), p.levelLine(level))
		if !p.draws(level) {
			continue
		}
		for j, c := range level.components {
			p.component(c, p.rail(last), j == len(level.components)-1)
		}
	}
}

func (p *statusPicture) component(c *branchOf, rail string, last bool) {
	p.say("%s%s%s %s", p.dim(rail), p.edge(last), p.mark(c), p.componentLine(c))
	if !p.draws(c) {
		return
	}
	shown := slices.DeleteFunc(slices.Clone(c.objects), func(o rollout.Object) bool { return !p.shows(o) })
	for k, o := range shown {
		p.say("%s%s%s", p.dim(rail+p.rail(last)), p.edge(k == len(shown)-1), p.leaf(o))
	}
}

// draws reports whether what lies below a branch is drawn.
func (p *statusPicture) draws(b *branchOf) bool {
	return p.All || p.Component != "" || !b.settled() && !b.pending()
}

// shows reports whether a manifest is drawn in a component that is.
func (p *statusPicture) shows(o rollout.Object) bool {
	switch {
	case p.All, p.Component != "", o.State == rollout.StateWaiting, o.State == rollout.StateFailed:
		return true
	case o.At.IsZero() || p.snapshot.At.Sub(o.At) > recently:
		return false
	}
	return !slices.Contains([]rollout.Result{"", rollout.Unchanged, rollout.Kept, rollout.Skipped}, o.Result)
}

func (p *statusPicture) edge(last bool) string {
	if last {
		return p.dim(p.last)
	}
	return p.dim(p.branch)
}

func (p *statusPicture) rail(last bool) string {
	if last {
		return p.gap
	}
	return p.bar
}

func (p *statusPicture) mark(b *branchOf) string {
	switch {
	case b.has(rollout.StateFailed):
		return p.bad(p.failed)
	case b.settled():
		return p.good(p.settled)
	case b.pending():
		return p.dim(p.pending)
	}
	return p.busy(p.waiting)
}

func (p *statusPicture) levelLine(b *branchOf) string {
	return p.strong(b.name) + fmt.Sprintf("  %s  ", count(len(b.components), "component")) + p.far(b)
}

func (p *statusPicture) componentLine(b *branchOf) string {
	name := oneLine(b.name)
	if name == "" {
		name = "(no component)"
	}
	return name + "  " + p.far(b)
}

// far says how far a branch is.
func (p *statusPicture) far(b *branchOf) string {
	switch {
	case b.settled():
		return count(b.total, "manifest") + "  " + p.good("settled")
	case b.pending():
		return count(b.total, "manifest") + "  " + p.dim("pending")
	}
	return fmt.Sprintf("%d of %s settled", b.done, count(b.total, "manifest"))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func (p *statusPicture) leaf(o rollout.Object) string {
	mark := map[rollout.State]string{
		rollout.StateFailed: p.bad(p.failed), rollout.StateWaiting: p.busy(p.waiting),
		rollout.StateSettled: p.good(p.settled), rollout.StatePending: p.dim(p.pending),
	}[o.State]
	text := mark + " " + oneLine(o.ID.String())
	if o.Result != "" {
		said := string(o.Result)
		if o.Result == rollout.Refused {
			said = "tried" // that it failed is its state, with the reason
		}
		text += "  " + said
		if !o.At.IsZero() {
			text += " " + p.ago(o.At) + " ago"
		}
	}
	if o.State == rollout.StateSettled {
		return text
	}
	return text + "  " + string(o.State) + p.why(o)
}

// deleting shows deletions that have been asked for and are not done, of manifests and of what no manifest names.
func (p *statusPicture) deleting(objects []rollout.Object) {
	list := filterObjects(objects, func(o rollout.Object) bool { return o.Result == rollout.Deleting })
	for _, d := range p.snapshot.Progress.Deletions {
		at := slices.IndexFunc(list, func(o rollout.Object) bool { return o.ID == d.ID })
		switch {
		case at >= 0:
			list[at].At, list[at].Message = d.Since, cmp.Or(d.Message, list[at].Message)
		case p.Component == "":
			list = append(list, rollout.Object{ID: d.ID, At: d.Since, Message: d.Message})
		}
	}
	if len(list) == 0 {
		return
	}
	p.section("On their way out")
	p.list(list, func(o rollout.Object) string {
		text := oneLine(o.ID.String())
		if !o.At.IsZero() {
			text += "  for " + p.ago(o.At)
		}
		if message := oneLine(o.Message); message != "" {
			text += "  " + message
		}
		return text
	})
}

func (p *statusPicture) repairs(objects []rollout.Object) {
	list := filterObjects(objects, func(o rollout.Object) bool { return o.Repairs > 0 })
	if len(list) == 0 {
		return
	}
	slices.SortStableFunc(list, func(a, b rollout.Object) int { return b.LastRepair.At.Compare(a.LastRepair.At) })
	p.section("Repaired since the operator started")
	p.list(list, func(o rollout.Object) string {
		text := fmt.Sprintf("%s  %s, last %s ago: %s", oneLine(o.ID.String()), count(o.Repairs, "time"), p.ago(o.LastRepair.At), oneLine(string(o.LastRepair.Reason)))
		if manager := oneLine(o.LastRepair.Manager); manager != "" {
			text += " by " + manager
		}
		return text
	})
}

func (p *statusPicture) loosened(objects []rollout.Object) {
	list := filterObjects(objects, func(o rollout.Object) bool { return len(o.Loosened) > 0 })
	if len(p.snapshot.Objects) == 0 && p.Component == "" {
		for _, l := range p.snapshot.Progress.Loosened {
			list = append(list, rollout.Object{ID: l.ID, Loosened: l.Fields})
		}
	}
	if len(list) == 0 {
		return
	}
	p.section("Pod security loosened by others")
	p.list(list, func(o rollout.Object) string {
		return oneLine(o.ID.String()) + "  " + oneLine(strings.Join(o.Loosened, ", "))
	})
}

func (p *statusPicture) dropped(objects []rollout.Object) {
	list := filterObjects(objects, func(o rollout.Object) bool { return len(o.Dropped) > 0 })
	if len(p.snapshot.Objects) == 0 && p.Component == "" {
		for _, d := range p.snapshot.Progress.Dropped {
			list = append(list, rollout.Object{ID: d.ID, Dropped: d.Fields})
		}
	}
	if len(list) == 0 {
		return
	}
	p.section("Fields that the cluster does not know")
	p.list(list, func(o rollout.Object) string {
		return oneLine(o.ID.String()) + "  " + oneLine(strings.Join(o.Dropped, ", "))
	})
}

// skips counts what this cluster does not get, by reason, or lists it.
func (p *statusPicture) skips(objects []rollout.Object) {
	list := filterObjects(objects, func(o rollout.Object) bool { return o.State == rollout.StateSkipped })
	if len(list) == 0 {
		return
	}
	byReason := map[string][]rollout.Object{}
	var reasons []string
	for _, o := range list {
		if byReason[o.Reason] == nil {
			reasons = append(reasons, o.Reason)
		}
		byReason[o.Reason] = append(byReason[o.Reason], o)
	}
	slices.SortFunc(reasons, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(byReason[b]), len(byReason[a])), cmp.Compare(a, b))
	})
	hint := ""
	if !p.All {
		hint = "  " + p.dim("(--all lists them)")
	}
	p.section("Left out: %s%s", count(len(list), "manifest"), hint)
	for _, reason := range reasons {
		p.say("  %s %d  %s", p.dim(p.skipped), len(byReason[reason]), cmp.Or(oneLine(reason), "no reason given"))
		if !p.All {
			continue
		}
		for _, o := range byReason[reason] {
			text := "    " + oneLine(o.ID.String()) + "  " + p.dim(place(o.Runlevel, o.Component))
			if message := oneLine(o.Message); message != "" {
				text += "  " + message
			}
			p.say("%s", text)
		}
	}
}

func filterObjects(objects []rollout.Object, keep func(rollout.Object) bool) []rollout.Object {
	var kept []rollout.Object
	for _, o := range objects {
		if keep(o) {
			kept = append(kept, o)
		}
	}
	return kept
}

// oneLine makes one line of a text that somebody else wrote, without anything that a terminal would obey.
func oneLine(text string) string { return printable(strings.Join(strings.Fields(text), " ")) }
