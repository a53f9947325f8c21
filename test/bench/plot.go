package main

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"slices"
	"strings"
)

// Sizes in the picture, in pixels.
const (
	plotWidth  = 960
	panelTop   = 64
	panelSize  = 200 // height of the drawing area
	panelGap   = 76  // between two panels, for the title of the lower one
	plotLeft   = 92
	plotRight  = 190 // space for the names
	axisHeight = 64
)

// panel is one diagram: some figures over the entries of the history.
type panel struct {
	title, format string
	// goal is a dashed line; 0 for none.
	goal  float64
	lines []line
}

type line struct{ label, figure, color string }

// Colors that everyone can distinguish (Okabe and Ito).
const (
	blue   = "#0072b2"
	orange = "#e69f00"
	green  = "#009e73"
	red    = "#d55e00"
	purple = "#cc79a7"
)

func panels() []panel {
	figure := func(phase, figure string) string { return figureName("", "cvo", phase, figure) }
	return []panel{
		{title: "Time, as a multiple of the plain loader's", format: "%.2f", goal: 1.4, lines: []line{
			{"install", figure(phaseInstall, "ratio"), blue}, {"update", figure(phaseUpdate, "ratio"), orange},
		}},
		{title: "Requests", format: "%.0f", lines: []line{
			{"install", figure(phaseInstall, "requests"), blue},
			{"update", figure(phaseUpdate, "requests"), orange},
			{"restart", figure(phaseRestart, "requests"), green},
			{"drift", figure(phaseDrift, "requests"), purple},
		}},
		{title: "Peak of resident memory, MiB", format: "%.0f", goal: 120, lines: []line{
			{"install", figure(phaseInstall, "peakMiB"), blue},
			{"update", figure(phaseUpdate, "peakMiB"), orange},
			{"restart", figure(phaseRestart, "peakMiB"), green},
			{"idle", figure(phaseIdle, "peakMiB"), red},
		}},
		{title: "Repair of drift, p99 in ms", format: "%.0f", goal: 1000, lines: []line{
			{"p99", figure(phaseDrift, "p99Seconds"), purple},
		}},
	}
}

// plot draws a history into a file.
func plot(history, file string) error {
	entries, err := readHistory(history)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return fmt.Errorf("the history %s is empty", history)
	}
	var b strings.Builder
	drawHistory(&b, entries)
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

// drawHistory writes an SVG with the panels from top to bottom and the entries from left to right.
func drawHistory(w io.Writer, entries []Entry) {
	all := panels()
	height := panelTop + len(all)*(panelSize+panelGap) - panelGap + axisHeight + 16
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="system-ui, sans-serif" font-size="12" fill="#333">`+"\n", plotWidth, height)
	fmt.Fprintf(w, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", plotWidth, height)
	for i, p := range all {
		drawPanel(w, p, entries, panelTop+i*(panelSize+panelGap))
	}
	bottom := height - axisHeight - 16
	step := max(1, int(math.Ceil(float64(len(entries))/24)))
	for i, e := range entries {
		if i%step == 0 || i == len(entries)-1 {
			label := e.Time.Format("2006-01-02") + " " + e.Revision
			fmt.Fprintf(w, `<text transform="translate(%.1f %d) rotate(-35)" text-anchor="end" font-size="10">%s</text>`+"\n",
				across(i, len(entries))+4, bottom+16, html.EscapeString(label))
		}
	}
	fmt.Fprintln(w, `</svg>`)
}

// across returns the horizontal position of an entry.
func across(i, n int) float64 {
	const room = plotWidth - plotLeft - plotRight
	if n == 1 {
		return plotLeft + room/2
	}
	return plotLeft + float64(i)*room/float64(n-1)
}

func drawPanel(w io.Writer, p panel, entries []Entry, top int) {
	limit := p.goal
	for _, l := range p.lines {
		for _, e := range entries {
			limit = max(limit, l.of(e))
		}
	}
	limit = ceiling(limit)
	up := func(value float64) float64 { return float64(top+panelSize) - value/limit*panelSize }
	right := plotWidth - plotRight
	fmt.Fprintf(w, `<text x="%d" y="%d" font-size="14" font-weight="600">%s</text>`+"\n", plotLeft, top-14, html.EscapeString(p.title))
	for i := range 5 {
		value := limit * float64(i) / 4
		fmt.Fprintf(w, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1[2]f" stroke="#e5e5e5"/>`+"\n", plotLeft, up(value), right)
		fmt.Fprintf(w, `<text x="%d" y="%.1f" text-anchor="end" fill="#777">%s</text>`+"\n", plotLeft-8, up(value)+4, fmt.Sprintf(p.format, value))
	}
	if p.goal > 0 {
		fmt.Fprintf(w, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1[2]f" stroke="#999" stroke-dasharray="5 4"/>`+"\n", plotLeft, up(p.goal), right)
	}
	var names []name
	for _, l := range p.lines {
		if last := drawLine(w, p, l, entries, up); last > 0 {
			names = append(names, name{up(last), l.label + " " + fmt.Sprintf(p.format, last), l.color})
		}
	}
	drawNames(w, names)
}

// name is the label at the end of a line.
type name struct {
	y           float64
	text, color string
}

// drawNames draws the names from top to bottom and moves a name down if it would overlap the previous one.
func drawNames(w io.Writer, names []name) {
	slices.SortStableFunc(names, func(a, b name) int { return cmp.Compare(a.y, b.y) })
	free := math.Inf(-1)
	for _, n := range names {
		y := max(n.y, free)
		fmt.Fprintf(w, `<text x="%d" y="%.1f" fill="%s">%s</text>`+"\n", plotWidth-plotRight+12, y+4, n.color, html.EscapeString(n.text))
		free = y + 14.5
	}
}

// of returns the line's figure in an entry, 0 if there is none.
func (l line) of(e Entry) float64 {
	value := e.Figures[l.figure]
	if strings.HasSuffix(l.figure, "p99Seconds") {
		value *= 1000
	}
	return value
}

// drawLine draws a line through the entries that have its figure. It returns the last figure, 0 if there is none.
func drawLine(w io.Writer, p panel, l line, entries []Entry, up func(float64) float64) (last float64) {
	var points strings.Builder
	for i, e := range entries {
		value := l.of(e)
		if value == 0 {
			continue
		}
		x, y := across(i, len(entries)), up(value)
		fmt.Fprintf(&points, "%.1f,%.1f ", x, y)
		fmt.Fprintf(w, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s</title></circle>`+"\n", x, y, l.color,
			html.EscapeString(fmt.Sprintf("%s %s: %s", e.Revision, l.label, fmt.Sprintf(p.format, value))))
		last = value
	}
	if last > 0 {
		fmt.Fprintf(w, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.TrimSpace(points.String()), l.color)
	}
	return last
}

// ceiling returns the next number whose quarters have few digits.
func ceiling(value float64) float64 {
	if value <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(value)))
	for _, n := range []float64{1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10} {
		if value <= n*power {
			return n * power
		}
	}
	return 10 * power
}
