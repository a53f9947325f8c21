package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/gate"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/release"
)

// The view is designed for these widths. Wider terminals leave the rest empty, and narrower ones truncate it.
const (
	minColumns = 60
	maxColumns = 140
)

// palette is the styles of the view. It uses the terminal's colors and therefore suits light and dark terminals.
type palette struct{ title, strong, dim, good, busy, bad, accent lipgloss.Style }

func newPalette() palette {
	colour := func(c string) lipgloss.Style { return lipgloss.NewStyle().Foreground(lipgloss.Color(c)) }
	return palette{
		title: colour("6").Bold(true), strong: lipgloss.NewStyle().Bold(true), dim: colour("8"),
		good: colour("2"), busy: colour("3"), bad: colour("1").Bold(true), accent: colour("5").Bold(true),
	}
}

// view draws one moment of a story. It is pure.
type view struct {
	palette
	story         story
	now           time.Time
	width, height int
}

// render returns the lines of a screen, at most height lines with at most width columns.
func render(s story, now time.Time, width, height int) string {
	v := view{palette: newPalette(), story: s, now: now, width: min(max(width, minColumns), maxColumns), height: max(height, 10)}
	out := v.head()
	if p := s.current(); p != nil {
		out = append(out, v.rollout(p, v.height-len(out))...)
	} else {
		out = append(out, v.preparation()...)
	}
	out = out[:min(len(out), height)]
	for i := range out {
		out[i] = ansi.Truncate(out[i], width, "")
	}
	return strings.Join(out, "\n")
}

func (v *view) head() []string {
	heading := v.strong
	if !v.story.stuck.IsZero() {
		heading = v.bad
	}
	left := v.title.Render("cvo demo") + "  " + heading.Render(v.heading())
	right := v.dim.Render("Ctrl-C to quit  ") + clockText(v.now.Sub(v.story.began))
	return []string{v.spread(" "+left, right+" ")}
}

func clockText(d time.Duration) string {
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

func (v *view) heading() string {
	p := v.story.current()
	switch {
	case p == nil:
		return "preparing"
	case !v.story.stuck.IsZero():
		return fmt.Sprintf("the update to %s is stuck", p.to)
	case !p.ended.IsZero() && len(v.story.pools) > 0 && p.nodesEnded.IsZero():
		return "updating the nodes to " + p.to
	case !p.ended.IsZero() && p.from == "":
		return "installed " + p.to
	case !p.ended.IsZero():
		return "updated to " + p.to
	case p.from == "":
		return "installing " + p.to
	}
	return fmt.Sprintf("updating %s → %s", p.from, p.to)
}

// spread aligns one text to the left end of a line and another to the right end.
func (v *view) spread(left, right string) string {
	gap := v.width - lipgloss.Width(left) - lipgloss.Width(right)
	if gap < 1 {
		left, gap = ansi.Truncate(left, max(0, v.width-lipgloss.Width(right)-1), "…"), 1
		gap = max(gap, v.width-lipgloss.Width(left)-lipgloss.Width(right))
	}
	return left + strings.Repeat(" ", gap) + right
}

// preparation lists the steps of the preparation.
func (v *view) preparation() []string {
	out := []string{""}
	for _, s := range v.story.steps {
		mark, took := v.good.Render("✓"), v.dim.Render(seconds(s.ended.Sub(s.began)))
		if s.ended.IsZero() {
			mark, took = v.busy.Render(v.spinner()), seconds(v.now.Sub(s.began))
		}
		out = append(out, fmt.Sprintf(" %s %s %s", mark, pad(s.name, 24), took))
	}
	return out
}

// spinner turns with the time, ten frames per second.
func (v *view) spinner() string {
	frames := []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}
	return frames[int(v.now.Sub(v.story.began)/(100*time.Millisecond))%len(frames)]
}

// rollout draws a phase in at most height lines. The height of every block depends only on the screen size and the number of runlevels, so
// that nothing jumps.
func (v *view) rollout(p *phase, height int) []string {
	out := append([]string{v.overall(p), ""}, v.levels(p, max(3, height-13))...)
	const conditions, fixed = 5, 4 // blank, gates' title, blank, at least one note
	free := height - len(out) - conditions - fixed
	gates := min(max(free, 1), min(max(3, free/2), 8))
	out = append(out, "")
	out = append(out, v.gates(p, gates)...)
	out = append(out, "")
	out = append(out, v.conditions(conditions)...)
	return append(out, v.notes(max(0, height-len(out)))...)
}

func (v *view) overall(p *phase) string {
	end := v.now
	if !p.ended.IsZero() {
		end = p.ended
	}
	percent := 0
	if p.total > 0 {
		percent = p.done * 100 / p.total
	}
	right := fmt.Sprintf("%d of %d manifests  %3d %%  %8s ", p.done, p.total, percent, seconds(end.Sub(p.began)))
	width := max(10, v.width-lipgloss.Width(right)-3)
	return " " + v.bar(p.done, p.total, width, v.overallStyle(p)) + "  " + right
}

func (v *view) overallStyle(p *phase) lipgloss.Style {
	switch {
	case !v.story.stuck.IsZero():
		return v.bad
	case !p.ended.IsZero():
		return v.good
	}
	return v.title
}

// bar is full only when everything is done.
func (v *view) bar(done, total, width int, style lipgloss.Style) string {
	full := 0
	if total > 0 {
		full = done * width / total
	}
	return style.Render(strings.Repeat("█", full)) + v.dim.Render(strings.Repeat("░", width-full))
}

// levels draws a line for each runlevel. If there are too many, it draws those around the first incomplete one.
func (v *view) levels(p *phase, height int) []string {
	levels := p.levels
	if len(levels) > height {
		at := max(0, slices.IndexFunc(levels, func(l level) bool { return l.ended.IsZero() }))
		from := min(max(0, at-height/2), len(levels)-height)
		levels = levels[from : from+height]
	}
	out := make([]string, 0, len(levels))
	for _, l := range levels {
		out = append(out, v.level(p, l))
	}
	if len(out) == 0 {
		out = append(out, " "+v.dim.Render("the release is being retrieved, verified and loaded"))
	}
	return out
}

func (v *view) level(p *phase, l level) string {
	bar := max(10, v.width/6)
	style, took := v.busy, ""
	switch {
	case !l.ended.IsZero():
		style, took = v.good, v.dim.Render(seconds(l.ended.Sub(l.began)))
	case v.broken(p, l.Runlevel.Runlevel, ""):
		style, took = v.bad, seconds(v.now.Sub(l.began))
	case !l.began.IsZero():
		took = seconds(v.now.Sub(l.began))
	}
	name := v.dim.Render(runlevelName(l))
	if !l.began.IsZero() {
		name = v.strong.Render(runlevelName(l))
	}
	left := fmt.Sprintf(" %s %s %s  ", name, v.bar(l.Done, l.Total, bar, style), pad(fmt.Sprintf("%d/%d", l.Done, l.Total), 5))
	room := v.width - lipgloss.Width(left) - lipgloss.Width(took) - 3
	return v.spread(left+v.components(p, l, room)+v.handOver(p, l), took+" ")
}

// handOver marks the runlevel after which the nodes are handed over.
func (v *view) handOver(p *phase, l level) string {
	if p.handedOver.IsZero() || !slices.Contains(componentNames(l), api.MachineConfigOperator) {
		return ""
	}
	return v.accent.Render("  → nodes handed over")
}

// components lists the components of a runlevel that fit, pending ones first.
func (v *view) components(p *phase, l level, room int) string {
	order := slices.Clone(l.Components)
	slices.SortStableFunc(order, func(a, b report.Component) int {
		return cmp.Compare(v.rank(p, l, a), v.rank(p, l, b))
	})
	out := ""
	for i, c := range order {
		item := v.mark(p, l, c) + " " + v.componentStyle(p, l, c).Render(c.Name)
		rest := fmt.Sprintf(" +%d", len(order)-i-1)
		if i == len(order)-1 {
			rest = ""
		}
		if i > 0 {
			item = "  " + item
		}
		if lipgloss.Width(out)+lipgloss.Width(item)+len(rest) > room {
			if i == 0 {
				return ansi.Truncate(item, room, "…")
			}
			return out + v.dim.Render(fmt.Sprintf(" +%d", len(order)-i))
		}
		out += item
	}
	return out
}

// States of a component, in the order of their importance.
const (
	isBroken = iota
	isBusy
	isDone
	isPending
)

func (v *view) rank(p *phase, l level, c report.Component) int {
	switch {
	case c.Done == c.Total:
		return isDone
	case v.broken(p, l.Runlevel.Runlevel, c.Name):
		return isBroken
	case l.began.IsZero():
		return isPending
	}
	return isBusy
}

func (v *view) mark(p *phase, l level, c report.Component) string {
	switch v.rank(p, l, c) {
	case isDone:
		return v.good.Render("✓")
	case isBroken:
		return v.bad.Render("✗")
	case isBusy:
		return v.busy.Render("●")
	}
	return v.dim.Render("·")
}

func (v *view) componentStyle(p *phase, l level, c report.Component) lipgloss.Style {
	switch v.rank(p, l, c) {
	case isBroken:
		return v.bad
	case isBusy:
		return v.strong
	case isPending:
		return v.dim
	}
	return lipgloss.NewStyle()
}

// broken reports whether a gate of the runlevel, or of one of its components, has failed.
func (v *view) broken(p *phase, runlevel int, component string) bool {
	return slices.ContainsFunc(p.problems, func(problem report.Problem) bool {
		return problem.Runlevel == runlevel && (component == "" || problem.Component == component) && v.failed(p, problem)
	})
}

// failed distinguishes real failures from parts that are not ready yet, because the platform is being installed or a new operator reports
// progress.
func (v *view) failed(p *phase, problem report.Problem) bool {
	if problem.State != gate.Failed || p.mode == release.Initializing {
		return false
	}
	status := v.story.operators[problem.ID.Name]
	return !problem.IsClusterOperator() || is(status, configv1.OperatorDegraded) || !is(status, configv1.OperatorProgressing)
}

func is(status configv1.ClusterOperatorStatus, kind configv1.ClusterStatusConditionType) bool {
	return slices.ContainsFunc(status.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool {
		return c.Type == kind && c.Status == configv1.ConditionTrue
	})
}

// gates lists the pending gates in height lines, with a title, and then the pools if there is space.
func (v *view) gates(p *phase, height int) []string {
	title := "No pending gates"
	pools := v.poolLines()
	switch n := len(p.problems); {
	case n == 0 && len(pools) > 0:
		title = "Nodes"
	case n == 0:
	case n == 1:
		title = "Waiting for 1 gate"
	default:
		title = fmt.Sprintf("Waiting for %d gates", n)
	}
	out := []string{" " + v.strong.Render(title)}
	shown := p.problems[:min(len(p.problems), height)]
	nameWidth := 0
	for _, problem := range shown {
		nameWidth = max(nameWidth, lipgloss.Width(shortName(problem)))
	}
	nameWidth = min(nameWidth, v.width*9/20)
	for _, problem := range shown {
		out = append(out, v.gate(p, problem, nameWidth))
	}
	return fill(append(out, pools...), height+1)
}

func (v *view) gate(p *phase, problem report.Problem, nameWidth int) string {
	mark := v.busy.Render("●")
	if v.failed(p, problem) {
		mark = v.bad.Render("✗")
	}
	since := ""
	if !problem.Since.IsZero() {
		since = seconds(v.now.Sub(problem.Since))
	}
	name := pad(ansi.Truncate(shortName(problem), nameWidth, "…"), nameWidth)
	left := fmt.Sprintf("  %s %s  ", mark, name)
	room := v.width - lipgloss.Width(left) - lipgloss.Width(since) - 3
	return v.spread(left+ansi.Truncate(v.gateText(problem), max(room, 0), "…"), v.dim.Render(since)+" ")
}

// gateText returns the gate's message without the object's name, followed by the operator's own message.
func (v *view) gateText(problem report.Problem) string {
	text := oneLine(problem.Message)
	for _, subject := range []string{"Cluster operator " + problem.ID.Name + " ", objectName(problem) + " ", problem.ID.String() + " "} {
		text = strings.TrimPrefix(text, subject)
	}
	if !problem.IsClusterOperator() {
		return text
	}
	if own := operatorMessage(v.story.operators[problem.ID.Name]); own != "" {
		text += ": " + own
	}
	return text
}

// operatorMessage returns the message of the most important condition.
func operatorMessage(status configv1.ClusterOperatorStatus) string {
	for _, kind := range []configv1.ClusterStatusConditionType{configv1.OperatorDegraded, configv1.OperatorProgressing} {
		for _, c := range status.Conditions {
			if c.Type == kind && c.Status == configv1.ConditionTrue && c.Message != "" {
				return oneLine(c.Message)
			}
		}
	}
	return ""
}

// conditions shows the conditions of the ClusterVersion in height lines. The most important one may take two.
func (v *view) conditions(height int) []string {
	var out []string
	const typeWidth, statusWidth = 16, 8
	room := v.width - typeWidth - statusWidth - 2
	spare := height - len(shownConditions())
	for _, kind := range shownConditions() {
		c := v.story.condition(kind)
		text := []string{""}
		if c.Message != "" {
			text = wrap(c.Message, room)
		}
		lines := 1
		if kind == configv1.OperatorProgressing && spare > 0 {
			lines += spare
		}
		if len(text) > lines {
			text = append(text[:lines-1:lines-1], strings.Join(text[lines-1:], " "))
		}
		last := len(text) - 1
		text[last] = ansi.Truncate(text[last], room, "…")
		out = append(out, " "+pad(string(kind), typeWidth)+v.statusStyle(c).Render(pad(string(c.Status), statusWidth))+text[0])
		for _, more := range text[1:] {
			out = append(out, strings.Repeat(" ", 1+typeWidth+statusWidth)+more)
		}
	}
	return fill(out, height)
}

func (v *view) statusStyle(c configv1.ClusterOperatorStatusCondition) lipgloss.Style {
	switch {
	case c.Type == api.Failing && c.Status == configv1.ConditionTrue && !v.story.installing():
		return v.bad
	case c.Status == configv1.ConditionTrue && c.Type == configv1.OperatorProgressing:
		return v.busy
	case c.Status == configv1.ConditionTrue && c.Type != api.Failing:
		return v.good
	}
	return v.dim
}

// notes returns the last notes that fit, with a blank line before them if there is space.
func (v *view) notes(height int) []string {
	var notes []note
	for _, n := range v.story.notes {
		if !n.detail {
			notes = append(notes, n)
		}
	}
	var out []string
	if height > 1 {
		out, height = append(out, ""), height-1
	}
	for _, n := range notes[max(0, len(notes)-height):] {
		style := lipgloss.NewStyle()
		text := n.text
		switch n.kind {
		case goodNote:
			style = v.good
		case badNote:
			style = v.bad
		case commandNote:
			style, text = v.accent, "$ "+text
		case plainNote:
		}
		text = ansi.Truncate(text, v.width-8, "…")
		out = append(out, v.dim.Render(fmt.Sprintf(" %5s ", clockText(n.at.Sub(v.story.began))))+style.Render(text))
	}
	return out
}

// wrap breaks a text between words and keeps names with hyphens whole.
func wrap(text string, width int) []string {
	var out []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case lipgloss.Width(line)+1+lipgloss.Width(word) <= width:
			line += " " + word
		default:
			out, line = append(out, line), word
		}
	}
	return append(out, line)
}

func fill(lines []string, height int) []string {
	for len(lines) < height {
		lines = append(lines, "")
	}
	return lines[:height]
}

// pad fills a text up to a width in cells.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-lipgloss.Width(s)))
}
