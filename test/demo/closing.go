package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// closing is the table of what took how long, and what was achieved.
func closing(s story, width int) string {
	v := view{palette: newPalette(), story: s, width: width}
	var b strings.Builder
	b.WriteString("\n")
	v.table(&b)
	v.totals(&b)
	if !s.stuck.IsZero() {
		v.remedy(&b)
	}
	return b.String()
}

// Widths of the columns but the components and the bars, which share what is left.
const (
	levelColumn     = 9
	manifestsColumn = 10
	timeColumn      = 9
)

// table has a line for each runlevel. The bars at the right show when each was worked on in the last phase.
func (v *view) table(b *strings.Builder) {
	p := v.story.current()
	if p == nil {
		return
	}
	fixed := levelColumn + manifestsColumn + timeColumn*len(v.story.phases) + 2
	chart := (v.width - fixed) / 4
	names := max(12, v.width-fixed-chart-2)
	row := func(name, text, manifests string, value func(p *phase) string, chart string) {
		cells := []string{" ", pad(name, levelColumn), pad(text, names), alignRight(manifests, manifestsColumn)}
		for i := range v.story.phases {
			cells = append(cells, alignRight(value(&v.story.phases[i]), timeColumn))
		}
		fmt.Fprintln(b, strings.TrimRight(strings.Join(cells, "")+"  "+chart, " "))
	}
	row(v.strong.Render("runlevel"), v.strong.Render("components"), v.strong.Render("manifests"),
		func(p *phase) string { return v.strong.Render(p.name()) }, "")
	for _, l := range p.levels {
		row(runlevelName(l), fit(componentNames(l), names-1), fmt.Sprint(l.Total),
			func(p *phase) string { return p.took(l.Runlevel.Runlevel) }, v.span(p, l, chart))
	}
	row("total", "", fmt.Sprint(p.total), func(p *phase) string { return v.strong.Render(p.whole()) }, "")
	row("writes", "by the operator", "", func(p *phase) string { return fmt.Sprint(p.requests.writes) }, "")
	row("reads", "by the operator", "", func(p *phase) string { return fmt.Sprint(p.requests.reads) }, "")
	fmt.Fprintln(b)
}

// whole is how long a phase took.
func (p *phase) whole() string {
	if p.ended.IsZero() {
		return "stuck"
	}
	return seconds(p.ended.Sub(p.began))
}

// fit lists the names that fit, and counts the others.
func fit(names []string, width int) string {
	for n := len(names); n > 0; n-- {
		text := strings.Join(names[:n], ", ")
		if more := len(names) - n; more > 0 {
			text += fmt.Sprintf(" +%d", more)
		}
		if lipgloss.Width(text) <= width {
			return text
		}
	}
	return ansi.Truncate(names[0], width, "…")
}

func (p *phase) name() string {
	if p.from == "" {
		return "install"
	}
	return "update"
}

// took is how long a runlevel took, from when its first manifest could be applied until its last gate was met.
func (p *phase) took(runlevel int) string {
	for _, l := range p.levels {
		switch {
		case l.Runlevel.Runlevel != runlevel || l.began.IsZero():
		case l.ended.IsZero():
			return "stuck"
		default:
			return seconds(l.ended.Sub(l.began))
		}
	}
	return "-"
}

// span draws when a runlevel was worked on within its phase.
func (v *view) span(p *phase, l level, width int) string {
	end, stopped := p.ended, l.ended
	if end.IsZero() {
		end = v.story.stuck
	}
	if stopped.IsZero() {
		stopped = end
	}
	if l.began.IsZero() || !end.After(p.began) {
		return ""
	}
	cell := func(t time.Time) int {
		return min(width-1, int(int64(t.Sub(p.began))*int64(width)/int64(end.Sub(p.began))))
	}
	style := v.good
	if l.ended.IsZero() {
		style = v.bad
	}
	from, to := cell(l.began), cell(stopped)
	return strings.Repeat(" ", from) + style.Render(strings.Repeat("█", to-from+1))
}

func (v *view) totals(b *strings.Builder) {
	for i := range v.story.phases {
		p := &v.story.phases[i]
		mark, what := v.good.Render("✓"), "installed "+p.to
		if p.from != "" {
			what = fmt.Sprintf("updated %s to %s", p.from, p.to)
		}
		if p.ended.IsZero() {
			mark, what = v.bad.Render("✗"), fmt.Sprintf("not updated to %s", p.to)
		}
		fmt.Fprintf(b, " %s %s: %d of %d manifests", mark, what, p.done, p.total)
		if p.verified {
			fmt.Fprint(b, ", signature verified")
		}
		fmt.Fprintln(b)
		if !p.handedOver.IsZero() {
			fmt.Fprintf(b, "   %s after %s\n", handOver(p), seconds(p.handedOver.Sub(p.began)))
		}
	}
}

// remedy says what an administrator would do about an update that is stuck.
func (v *view) remedy(b *strings.Builder) {
	p := v.story.current()
	name := v.story.failing
	fmt.Fprintf(b, "\n %s\n", v.bad.Render("Failing: "+oneLine(v.story.failingMessage())))
	for _, l := range p.levels {
		if l.ended.IsZero() {
			fmt.Fprintf(b, " The update stops at runlevel %s: what comes after it stays at %s and goes on working.\n", runlevelName(l), p.from)
			break
		}
	}
	fmt.Fprintf(b, `
 What one would do now:
   ask the operator what it lacks   kubectl get clusteroperator %s -o yaml
   look at what it runs             kubectl -n %s get deployments,pods
   repair it                        the update goes on by itself from here

`, name, name)
}

// alignRight puts a text to the right end of a column.
func alignRight(s string, width int) string {
	return strings.Repeat(" ", max(0, width-lipgloss.Width(s))) + s
}

// whatToTry is what a user may do with everything that is left running.
func (d *demo) whatToTry() string {
	p := newPalette()
	image := d.tag(toVersion)
	cvo := d.options.cvo
	if wd, err := os.Getwd(); err == nil {
		if relative, err := filepath.Rel(wd, cvo); err == nil && len(relative) < len(cvo) {
			cvo = relative
		}
	}
	return fmt.Sprintf(`
 %[1]s Ctrl-C ends it, and removes %[2]s.

   export KUBECONFIG=%[3]s
   kubectl get clusterversion,clusteroperators
   kubectl describe clusterversion version
   kubectl get events -n openshift-cluster-version
   %[4]s upgrade
   %[4]s upgrade status
   %[4]s upgrade history
   %[4]s upgrade diff %[7]s --trust %[8]s

   %[4]s status --watch --server https://%[5]s
   tail -f %[6]s

   %[4]s release graph %[7]s
   %[4]s release extract %[7]s --layout image --to /tmp/platform
`, p.strong.Render("Everything is left running."), d.dir, d.control.Kubeconfig, cvo, d.address, d.log(), image, filepath.Join(d.dir, "keys", "trust.yaml"))
}
