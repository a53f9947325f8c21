// Package tree draws a rollout from a snapshot of the operator: a head, the problems, and a tree of runlevels, components and manifests.
// The tree is expanded only where something has not settled. Changes lists the differences between two snapshots. OfClusterVersion
// describes a rollout without the operator's snapshot.
package tree

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/report"
)

// View is the drawing style. The zero value draws plain ASCII.
type View struct {
	// All shows every manifest, including settled and excluded manifests.
	All bool
	// Component, if set, shows only that component, in full.
	Component string
	// Unicode allows box drawing characters and marks; Color allows escape sequences.
	Unicode, Color bool
}

const (
	// recently is how long a changed manifest is still shown after it has settled.
	recently = 5 * time.Minute
	// fewLines is the maximum length of a list without --all.
	fewLines = 10
	// fewNames is the maximum number of names in the head.
	fewNames = 4
)

// picture draws one snapshot.
type picture struct {
	View
	terminal.Palette

	snapshot *report.Snapshot
	lines    []string
}

// Lines draws a snapshot of a rollout: a head of three lines, the problems, and the tree of runlevels, components and
// manifests. The tree is expanded only where something has not settled. It has no side effects; all times are relative
// to the time of the snapshot.
func (v View) Lines(s *report.Snapshot) []string {
	p := &picture{View: v, Palette: terminal.NewPalette(terminal.Style{Unicode: v.Unicode, Color: v.Color}), snapshot: s}
	p.head()
	objects := p.chosen()
	p.problems(objects)
	p.tree(objects)
	p.deleting(objects)
	p.repairs(objects)
	listed := p.withFields(objects)
	p.fields("Pod security loosened by other clients", listed, func(o report.Object) []string { return o.Loosened })
	p.fields("Fields that the cluster does not know", listed, func(o report.Object) []string { return o.Dropped })
	p.fields("Controlled by another object", listed, func(o report.Object) []string {
		if o.Controller == "" {
			return nil
		}
		return []string{o.Controller}
	})
	p.fields("Scaled to 0", listed, func(o report.Object) []string {
		if !o.ScaledToZero {
			return nil
		}
		return []string{"no pod runs; the manifest leaves spec.replicas out"}
	})
	p.skips(objects)
	return p.lines
}

func (p *picture) line(format string, args ...any) {
	p.lines = append(p.lines, strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

// section starts a titled part of the picture.
func (p *picture) section(format string, args ...any) {
	p.line("")
	p.line("%s", p.Strong(fmt.Sprintf(format, args...)))
}

func (p *picture) head() {
	progress := p.snapshot.Progress
	p.line("%s  %s", p.Strong(string(progress.Mode)), p.Accent(terminal.OneLine(progress.Release.Version)+"  ")+p.Dim(terminal.OneLine(progress.Release.Image)))
	done := fmt.Sprintf("%d of %d manifests done (%d%%)", progress.Done, progress.Total, percent(progress.Done, progress.Total))
	if progress.HandedOver && !progress.Complete {
		done += ", nodes handed over"
	}
	p.line("%s  %s", done, p.Dim("as of "+p.snapshot.At.UTC().Format(time.RFC3339)))
	p.line("%s", waitingOn(progress))
	if rejected := p.snapshot.Rejected; rejected != "" {
		p.line("%s %s", p.Bad("Requested release rejected:"), terminal.OneLine(rejected))
	}
	if nothing := p.snapshot.NothingIncluded; nothing != "" {
		p.line("%s %s", p.Bad("The cluster gets no component:"), terminal.OneLine(nothing))
	}
	if reason := p.snapshot.InventoryError; reason != "" {
		p.line("%s %s", p.Bad("Inventory not saved:"), terminal.OneLine(reason))
	}
	if unmatched := p.snapshot.UnmatchedOverrides; unmatched != "" {
		p.line("%s %s", p.Bad("Unmatched overrides:"), terminal.OneLine(unmatched))
	}
	if insecure := p.snapshot.InsecureRegistries; len(insecure) > 0 {
		p.line("%s %s", p.Bad("Registries without TLS, or with unchecked certificates:"), terminal.OneLine(strings.Join(insecure, ", ")))
	}
}

func percent(done, total int) int {
	if total == 0 {
		return 0
	}
	return done * 100 / total
}

// waitingOn names the pause, the objects that block the rollout, and those that another client is deleting. It names ClusterOperators
// without their kind, as ClusterVersion does.
func waitingOn(progress report.Progress) string {
	var names []string
	for _, problem := range progress.Problems {
		name := terminal.OneLine(problem.ID.String())
		switch {
		case problem.Reason == api.ReasonDeleting:
			name = "the deletion of " + name
		case problem.Patience == gate.Report, problem.Patience == gate.Notice:
			continue
		case problem.IsClusterOperator():
			name = terminal.OneLine(problem.ID.Name)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	pause := ""
	if paused := progress.Paused; paused != nil {
		pause = fmt.Sprintf("pausing before runlevel %02d, ", paused.Before)
		if paused.Reached {
			pause = fmt.Sprintf("paused before runlevel %02d, ", paused.Before)
		}
	}
	switch {
	case len(names) == 0 && progress.Complete:
		return "waiting on nothing: every manifest is applied and every gate is met"
	case len(names) == 0 && pause != "":
		return pause + "continue with 'cvo upgrade resume'"
	case len(names) == 0:
		return "waiting on nothing: manifests are being applied"
	}
	return pause + "waiting on " + printable.List(names, fewNames)
}

// chosen returns the manifests to draw.
func (p *picture) chosen() []report.Object { return objectsOf(p.snapshot, p.Component) }

// objectsOf returns the manifests of a component, or all manifests if component is empty. A snapshot from before the end of the first pass
// has no manifests; then objectsOf returns the objects that block the rollout.
func objectsOf(s *report.Snapshot, component string) []report.Object {
	objects := s.Objects
	if len(objects) == 0 {
		objects = problemObjects(s.Progress)
	}
	if component == "" {
		return objects
	}
	return FilterObjects(objects, func(o report.Object) bool { return o.Component == component })
}

// Components returns the sorted names of the components in a snapshot, without duplicates.
func Components(snapshot *report.Snapshot) []string {
	names := map[string]bool{}
	for _, object := range snapshot.Objects {
		names[object.Component] = true
	}
	for _, level := range snapshot.Progress.Runlevels {
		for _, component := range level.Components {
			names[component.Name] = true
		}
	}
	delete(names, "") // an object of an earlier release
	return slices.Sorted(maps.Keys(names))
}

func problemObjects(progress report.Progress) []report.Object {
	var objects []report.Object
	for _, problem := range progress.Problems {
		state := map[gate.State]report.State{gate.Failed: report.StateFailed, gate.Waiting: report.StateWaiting, gate.Settled: report.StateSettled}[problem.State]
		objects = append(objects, report.Object{
			ID: problem.ID, File: problem.File, Runlevel: problem.Runlevel, Component: problem.Component, State: state,
			Since: problem.Since, Reason: problem.Reason, Message: problem.Message,
		})
	}
	return objects
}

func (p *picture) problems(objects []report.Object) {
	var failed []report.Object
	for _, o := range objects {
		if o.State == report.StateFailed || o.Reason == api.ReasonFight {
			failed = append(failed, o)
		}
	}
	if len(failed) == 0 {
		return
	}
	p.section("Problems")
	p.list(failed, func(o report.Object) string {
		mark := p.Bad(p.Failed)
		if o.State != report.StateFailed {
			mark = p.Busy(p.Waiting)
		}
		return fmt.Sprintf("%s %s  %s%s", mark, terminal.OneLine(o.ID.String()), p.Dim(place(o.Runlevel, o.Component)), p.reason(o))
	})
}

// list draws objects, at most fewLines of them without --all.
func (p *picture) list(objects []report.Object, line func(report.Object) string) {
	shown := len(objects)
	if !p.All && shown > fewLines {
		shown = fewLines
	}
	for _, o := range objects[:shown] {
		p.line("  %s", line(o))
	}
	if more := len(objects) - shown; more > 0 {
		p.line("  %s", p.Dim(fmt.Sprintf("and %d more (--all)", more)))
	}
}

func place(runlevel int, component string) string {
	return fmt.Sprintf("%02d %s", runlevel, terminal.OneLine(component))
}

// reason returns how long an object has been in its state, and the reason.
func (p *picture) reason(o report.Object) string {
	text := ""
	if !o.Since.IsZero() {
		text += "  " + p.ago(o.Since)
	}
	switch reason, message := terminal.OneLine(o.Reason), terminal.OneLine(o.Message); {
	case reason != "" && message != "":
		text += "  " + reason + ": " + message
	case reason+message != "":
		text += "  " + reason + message
	}
	return text
}

// ago returns how long before the snapshot a time was.
func (p *picture) ago(t time.Time) string {
	return duration.HumanDuration(max(0, p.snapshot.At.Sub(t)))
}

// branch is a runlevel or a component with its contents and progress.
type branch struct {
	name       string
	runlevel   int
	total      int
	done       int
	objects    []report.Object
	components []*branch
}

func (b *branch) settled() bool {
	return b.done == b.total && !b.has(report.StateFailed, report.StateWaiting)
}

// pending reports whether nothing in the branch has started.
func (b *branch) pending() bool {
	return b.done == 0 && !b.has(report.StateFailed, report.StateWaiting, report.StateSettled)
}

func (b *branch) has(states ...report.State) bool {
	return slices.ContainsFunc(b.objects, func(o report.Object) bool { return slices.Contains(states, o.State) })
}

// runlevels returns the tree: runlevels by number, components in the order of the graph.
func (p *picture) runlevels(objects []report.Object) []*branch {
	levels := map[int]*branch{}
	at := func(runlevel int) *branch {
		if levels[runlevel] == nil {
			levels[runlevel] = &branch{runlevel: runlevel, name: fmt.Sprintf("%02d", runlevel)}
		}
		return levels[runlevel]
	}
	if len(p.snapshot.Objects) == 0 {
		p.outline(at)
	}
	for _, o := range objects {
		if o.State == report.StateSkipped {
			continue
		}
		level := at(o.Runlevel)
		for _, b := range []*branch{level, level.component(o.Component)} {
			b.objects = append(b.objects, o)
			if len(p.snapshot.Objects) > 0 {
				b.total++
				if o.State == report.StateSettled {
					b.done++
				}
			}
		}
	}
	sorted := make([]*branch, 0, len(levels))
	for _, level := range levels {
		sorted = append(sorted, level)
	}
	slices.SortFunc(sorted, func(a, b *branch) int { return cmp.Compare(a.runlevel, b.runlevel) })
	return sorted
}

// outline fills in the numbers from the progress, for a snapshot without objects.
func (p *picture) outline(at func(int) *branch) {
	for _, l := range p.snapshot.Progress.Runlevels {
		for _, c := range l.Components {
			if p.Component != "" && c.Name != p.Component {
				continue
			}
			level := at(l.Runlevel)
			for _, b := range []*branch{level, level.component(c.Name)} {
				b.total += c.Total
				b.done += c.Done
			}
		}
	}
}

func (b *branch) component(name string) *branch {
	for _, c := range b.components {
		if c.name == name {
			return c
		}
	}
	c := &branch{name: name}
	b.components = append(b.components, c)
	return c
}

func (p *picture) tree(objects []report.Object) {
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
		p.line("%s%s %s", p.edge(last), p.mark(level), p.levelLine(level))
		if !p.draws(level) {
			continue
		}
		for j, c := range level.components {
			p.component(c, p.rail(last), j == len(level.components)-1)
		}
	}
}

func (p *picture) component(c *branch, rail string, last bool) {
	p.line("%s%s%s %s", p.Dim(rail), p.edge(last), p.mark(c), p.componentLine(c))
	if !p.draws(c) {
		return
	}
	shown := slices.DeleteFunc(slices.Clone(c.objects), func(o report.Object) bool { return !p.shows(o) })
	for k, o := range shown {
		p.line("%s%s%s", p.Dim(rail+p.rail(last)), p.edge(k == len(shown)-1), p.leaf(o))
	}
}

// draws reports whether a branch is expanded.
func (p *picture) draws(b *branch) bool {
	return p.All || p.Component != "" || !b.settled() && !b.pending()
}

// shows reports whether a manifest in an expanded component is drawn.
func (p *picture) shows(o report.Object) bool {
	switch {
	case p.All, p.Component != "", o.State == report.StateWaiting, o.State == report.StateFailed:
		return true
	case o.At.IsZero() || p.snapshot.At.Sub(o.At) > recently:
		return false
	}
	return !slices.Contains([]report.Result{"", report.Unchanged, report.Kept, report.Skipped}, o.Result)
}

func (p *picture) edge(last bool) string {
	if last {
		return p.Dim(p.Last)
	}
	return p.Dim(p.Branch)
}

func (p *picture) rail(last bool) string {
	if last {
		return p.Gap
	}
	return p.Bar
}

func (p *picture) mark(b *branch) string {
	switch {
	case b.has(report.StateFailed):
		return p.Bad(p.Failed)
	case b.settled():
		return p.Good(p.Settled)
	case b.pending():
		return p.Dim(p.Pending)
	}
	return p.Busy(p.Waiting)
}

func (p *picture) levelLine(b *branch) string {
	return p.Strong(b.name) + fmt.Sprintf("  %s  ", printable.Count(len(b.components), "component")) + p.progressText(b)
}

func (p *picture) componentLine(b *branch) string {
	name := terminal.OneLine(b.name)
	if name == "" {
		name = "(no component)"
	}
	return name + "  " + p.progressText(b)
}

// progressText returns the progress of a branch.
func (p *picture) progressText(b *branch) string {
	switch {
	case b.settled():
		return printable.Count(b.total, "manifest") + "  " + p.Good("settled")
	case b.pending():
		return printable.Count(b.total, "manifest") + "  " + p.Dim("pending")
	}
	return fmt.Sprintf("%d of %s settled", b.done, printable.Count(b.total, "manifest"))
}

func (p *picture) leaf(o report.Object) string {
	mark := map[report.State]string{
		report.StateFailed: p.Bad(p.Failed), report.StateWaiting: p.Busy(p.Waiting),
		report.StateSettled: p.Good(p.Settled), report.StatePending: p.Dim(p.Pending),
	}[o.State]
	text := mark + " " + terminal.OneLine(o.ID.String())
	if o.Result != "" {
		said := string(o.Result)
		if o.Result == report.Refused {
			said = "tried" // the state already shows the failure and its reason
		}
		text += "  " + said
		if !o.At.IsZero() {
			text += " " + p.ago(o.At) + " ago"
		}
	}
	if o.State == report.StateSettled {
		return text
	}
	return text + "  " + string(o.State) + p.reason(o)
}

// deleting lists unfinished deletions of manifests, and of objects that no manifest names.
func (p *picture) deleting(objects []report.Object) {
	list := FilterObjects(objects, func(o report.Object) bool {
		return o.Result == report.Deleting || o.State == report.StateSettled && o.Reason == api.ReasonDeleting
	})
	for i := range list {
		if list[i].Result != report.Deleting {
			list[i].At = time.Time{} // it is the time of the last apply
		}
	}
	for _, d := range p.snapshot.Progress.Deletions {
		at := slices.IndexFunc(list, func(o report.Object) bool { return o.ID == d.ID })
		switch {
		case at >= 0:
			list[at].At, list[at].Message = d.Since, cmp.Or(d.Message, list[at].Message)
		case p.Component == "":
			list = append(list, report.Object{ID: d.ID, At: d.Since, Message: d.Message})
		}
	}
	if len(list) == 0 {
		return
	}
	p.section("Being deleted")
	p.list(list, func(o report.Object) string {
		text := terminal.OneLine(o.ID.String())
		if !o.At.IsZero() {
			text += "  for " + p.ago(o.At)
		}
		if message := terminal.OneLine(o.Message); message != "" {
			text += "  " + message
		}
		return text
	})
}

func (p *picture) repairs(objects []report.Object) {
	list := FilterObjects(objects, func(o report.Object) bool { return o.Repairs > 0 })
	if len(list) == 0 {
		return
	}
	sorted.By(list, func(a, b report.Object) int { return b.LastRepair.At.Compare(a.LastRepair.At) })
	p.section("Repaired since the operator started")
	p.list(list, func(o report.Object) string {
		text := fmt.Sprintf("%s  %s, last %s ago: %s", terminal.OneLine(o.ID.String()), printable.Count(o.Repairs, "time"), p.ago(o.LastRepair.At), terminal.OneLine(string(o.LastRepair.Reason)))
		if manager := terminal.OneLine(o.LastRepair.Manager); manager != "" {
			text += " by " + manager
		} else {
			text += o.LastRepair.By() + o.LastRepair.Advice()
		}
		return text
	})
}

// withFields returns the objects. For a snapshot without objects, it returns those whose fields the progress lists.
func (p *picture) withFields(objects []report.Object) []report.Object {
	if len(p.snapshot.Objects) > 0 || p.Component != "" {
		return objects
	}
	var listed []report.Object
	for _, l := range p.snapshot.Progress.Loosened {
		listed = append(listed, report.Object{ID: l.ID, Loosened: l.Fields})
	}
	for _, c := range p.snapshot.Progress.Controlled {
		listed = append(listed, report.Object{ID: c.ID, Controller: c.Controller})
	}
	for _, id := range p.snapshot.Progress.ScaledToZero {
		listed = append(listed, report.Object{ID: id, ScaledToZero: true})
	}
	for _, d := range p.snapshot.Progress.Dropped {
		listed = append(listed, report.Object{ID: d.ID, Dropped: d.Fields})
	}
	return listed
}

// fields adds a section with the given fields of each object.
func (p *picture) fields(title string, objects []report.Object, of func(report.Object) []string) {
	list := FilterObjects(objects, func(o report.Object) bool { return len(of(o)) > 0 })
	if len(list) == 0 {
		return
	}
	p.section("%s", title)
	p.list(list, func(o report.Object) string {
		return terminal.OneLine(o.ID.String()) + "  " + terminal.OneLine(strings.Join(of(o), ", "))
	})
}

// skips counts the excluded manifests by reason; with --all it lists them.
func (p *picture) skips(objects []report.Object) {
	list := FilterObjects(objects, func(o report.Object) bool { return o.State == report.StateSkipped })
	if len(list) == 0 {
		return
	}
	byReason := map[string][]report.Object{}
	var reasons []string
	for _, o := range list {
		// Reason is the same for all excluded manifests; Message says why.
		reason := cmp.Or(o.Message, o.Reason)
		if byReason[reason] == nil {
			reasons = append(reasons, reason)
		}
		byReason[reason] = append(byReason[reason], o)
	}
	slices.SortFunc(reasons, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(byReason[b]), len(byReason[a])), cmp.Compare(a, b))
	})
	hint := ""
	if !p.All {
		hint = "  " + p.Dim("(--all lists them)")
	}
	p.section("Excluded: %s%s", printable.Count(len(list), "manifest"), hint)
	for _, reason := range reasons {
		p.line("  %s %d  %s", p.Dim(p.Skipped), len(byReason[reason]), cmp.Or(terminal.OneLine(reason), "no reason given"))
		if !p.All {
			continue
		}
		for _, o := range byReason[reason] {
			p.line("    %s  %s", terminal.OneLine(o.ID.String()), p.Dim(place(o.Runlevel, o.Component)))
		}
	}
}

// FilterObjects returns the objects to keep.
func FilterObjects(objects []report.Object, keep func(report.Object) bool) []report.Object {
	var kept []report.Object
	for _, o := range objects {
		if keep(o) {
			kept = append(kept, o)
		}
	}
	return kept
}
