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

// closing returns the table of durations and results. kept reports whether the cluster is still there for what it suggests.
func closing(s story, width int, kept bool) string {
	v := view{palette: newPalette(), story: s, width: width}
	var b strings.Builder
	b.WriteString("\n")
	v.table(&b)
	v.totals(&b)
	if !s.stuck.IsZero() {
		v.failure(&b)
		if kept {
			v.remedy(&b)
		} else {
			b.WriteString("\n To look at it, and to repair it, run the demo again with --keep.\n\n")
		}
	}
	return b.String()
}

// Widths of the fixed columns. The columns of components and bars share the rest.
const (
	levelColumn     = 9
	manifestsColumn = 10
	timeColumn      = 9
)

// table draws a line for each runlevel. The bars at the right show the runlevel's time in the last phase.
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

// whole returns the duration of a phase.
func (p *phase) whole() string {
	if p.ended.IsZero() {
		return "stuck"
	}
	return seconds(p.ended.Sub(p.began))
}

// fit lists the names that fit and counts the others.
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

// took returns the duration of a runlevel, from the time when its first manifest could be applied until its last gate was met.
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

// span draws the time of a runlevel within its phase.
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
		if !p.nodesEnded.IsZero() {
			fmt.Fprintf(b, "   %d nodes updated after %s\n", len(v.story.nodes), seconds(p.nodesEnded.Sub(p.began)))
		}
	}
}

// failure prints why an update is stuck, and where.
func (v *view) failure(b *strings.Builder) {
	p := v.story.current()
	fmt.Fprintf(b, "\n %s\n", v.bad.Render("Failing: "+oneLine(v.story.failingMessage())))
	for _, l := range p.levels {
		if l.ended.IsZero() {
			fmt.Fprintf(b, " The update stops at runlevel %s. All later components stay at %s and keep working.\n", runlevelName(l), p.from)
			break
		}
	}
}

// remedy prints what an administrator would do about a stuck update.
func (v *view) remedy(b *strings.Builder) {
	name := v.story.failing
	fmt.Fprintf(b, `
 Next steps:
   see what the operator reports    kubectl get clusteroperator %s -o yaml
   see what it runs                 kubectl -n %s get deployments,pods
   repair it                        the update then continues by itself

`, name, name)
}

// alignRight aligns a text to the right end of a column.
func alignRight(s string, width int) string {
	return strings.Repeat(" ", max(0, width-lipgloss.Width(s))) + s
}

// nextCommands suggests commands for the system that is left running.
func (d *demo) nextCommands() string {
	p := newPalette()
	image := d.tag(toVersion)
	cvo := d.options.cvo
	if wd, err := os.Getwd(); err == nil {
		if relative, err := filepath.Rel(wd, cvo); err == nil && len(relative) < len(cvo) {
			cvo = relative
		}
	}
	return fmt.Sprintf(`
 %[1]s Press Ctrl-C to end it and remove %[2]s.

   export KUBECONFIG=%[3]s
   kubectl get clusterversion,clusteroperators
   kubectl describe clusterversion version
   kubectl get events -n openshift-cluster-version
   kubectl get machineconfigpools,nodes
   %[4]s nodes status
   %[4]s upgrade
   %[4]s upgrade status
   %[4]s upgrade history
   %[4]s upgrade diff %[7]s --trust %[8]s

   %[4]s status --watch --server https://%[5]s
   tail -f %[6]s

   %[4]s release graph %[7]s
   %[4]s release extract %[7]s --layout image --to /tmp/platform
`, p.strong.Render("Everything keeps running."), d.dir, d.control.Kubeconfig, cvo, d.address, d.log(), image, filepath.Join(d.dir, "keys", "trust.yaml"))
}
