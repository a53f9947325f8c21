package progress

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/cluster-version/cvo/internal/terminal"
)

// picture draws the progress on a terminal.
type picture struct {
	view terminal.Style
	size func() (width, height int)
	// lines is the number of lines that the picture occupies on the screen; the cursor is below them.
	lines int
}

func newPicture(w io.Writer) *picture {
	return &picture{
		view: terminal.Style{Color: os.Getenv("NO_COLOR") == "", Unicode: terminal.SupportsUTF8(os.Getenv)},
		size: func() (int, int) {
			if file, ok := w.(*os.File); ok {
				if width, height, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
					return width, height
				}
			}
			return 80, 24
		},
	}
}

// wipe erases the picture from the screen.
func (p *Display) wipe() {
	if p.picture != nil && p.picture.lines > 0 {
		_, _ = io.WriteString(p.out, p.picture.eraseSequence())
		p.picture.lines = 0
	}
}

func (v *picture) eraseSequence() string {
	if v.lines == 0 {
		return ""
	}
	return "\r" + ansi.CursorUp(v.lines) + ansi.EraseScreenBelow
}

// draw replaces the picture in one write, so that a slow terminal does not flicker.
func (p *Display) draw(now time.Time) {
	width, height := p.picture.size()
	lines := p.render(now, width, height)
	var out bytes.Buffer
	out.WriteString(p.picture.eraseSequence())
	for _, line := range lines {
		out.WriteString(ansi.Truncate(line, max(1, width-1), "") + "\n")
	}
	p.picture.lines = len(lines)
	_, _ = p.out.Write(out.Bytes())
}

// render returns one line for the total and one for each unfinished item, as many as fit.
func (p *Display) render(now time.Time, width, height int) []string {
	colors := terminal.NewPalette(p.picture.view)
	barWidth := min(24, max(6, width/4))
	head := colors.Strong(p.what)
	total := p.announced
	if total > 0 {
		head += fmt.Sprintf("  %s %3d%%", bar(p.picture.view, colors, barWidth, p.moved, total), percent64(p.moved, total))
	}
	lines := []string{head + "  " + strings.Join(p.figures(now), "  ")}
	rows := min(maxRows, max(1, height/2))
	nameWidth := 0
	shown := p.running[:min(rows, len(p.running))]
	for _, item := range shown {
		nameWidth = max(nameWidth, ansi.StringWidth(item.name))
	}
	nameWidth = min(nameWidth, max(10, width/3))
	for _, item := range shown {
		name := ansi.Truncate(terminal.OneLine(item.name), nameWidth, "…")
		line := "  " + name + strings.Repeat(" ", nameWidth-ansi.StringWidth(name))
		if item.total > 0 {
			line += fmt.Sprintf("  %s %3d%%  %s", bar(p.picture.view, colors, barWidth, item.done, item.total),
				percent64(item.done, item.total), colors.Dim(byteProgress(item.done, item.total)))
		}
		lines = append(lines, line)
	}
	if rest := len(p.running) - len(shown); rest > 0 {
		lines = append(lines, colors.Dim(fmt.Sprintf("  and %d more", rest)))
	}
	return lines
}

// figures returns the numbers that the first line of the picture and the lines of a log share.
func (p *Display) figures(now time.Time) []string {
	var out []string
	if p.expectedItems > 0 {
		out = append(out, fmt.Sprintf("%d/%d", p.endedItems, p.expectedItems))
	}
	if total := p.announced; total > 0 {
		out = append(out, byteProgress(p.moved, total))
		if rate := p.rate(now); rate >= 1 {
			out = append(out, terminal.Bytes(int64(rate))+"/s")
		}
		if left, ok := p.remaining(now); ok {
			out = append(out, duration.HumanDuration(left)+" left")
		}
	}
	return out
}

// stateLine returns the line that a log prints at each interval.
func (p *Display) stateLine(now time.Time) string {
	line := "info: " + p.what + ": " + strings.Join(p.figures(now), ", ")
	var names []string
	for _, item := range p.running[:min(maxNames, len(p.running))] {
		name := terminal.OneLine(item.name)
		if item.total > 0 {
			name += fmt.Sprintf(" %d%%", percent64(item.done, item.total))
		}
		names = append(names, name)
	}
	if rest := len(p.running) - len(names); rest > 0 {
		names = append(names, fmt.Sprintf("%d more", rest))
	}
	if len(names) > 0 {
		line += "; now " + strings.Join(names, ", ")
	}
	return line + "\n"
}

// endLine returns the line for a finished item.
func endLine(item *tracked, note string, took time.Duration) string {
	line := "info: " + terminal.OneLine(item.name) + ": "
	if note != "" {
		line += terminal.OneLine(note)
	} else {
		line += "done"
	}
	if item.done > 0 {
		line += fmt.Sprintf(", %s in %s", terminal.Bytes(item.done), seconds(took))
	}
	return line + "\n"
}

// summaryLine returns the line that summarizes all finished items.
func (p *Display) summaryLine(now time.Time) string {
	line := fmt.Sprintf("info: %s: %d done", p.what, p.endedItems)
	if n := len(p.running); n > 0 {
		line += fmt.Sprintf(", %d unfinished", n)
	}
	took := now.Sub(p.began)
	if p.moved > 0 {
		line += ", " + terminal.Bytes(p.moved)
	}
	line += " in " + seconds(took)
	if took >= time.Second && p.moved > 0 {
		line += fmt.Sprintf(", %s/s", terminal.Bytes(int64(float64(p.moved)/took.Seconds())))
	}
	return line + "\n"
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

// bar draws the finished share of a total.
func bar(view terminal.Style, colors terminal.Palette, width int, done, total int64) string {
	filled := min(width, int(float64(width)*float64(done)/float64(max(1, total))))
	full, empty, left, right := "#", "-", "[", "]"
	if view.Unicode {
		full, empty, left, right = "█", "░", "", ""
	}
	return left + colors.Good(strings.Repeat(full, filled)) + colors.Dim(strings.Repeat(empty, width-filled)) + right
}

func percent64(done, total int64) int64 { return min(100, 100*done/max(1, total)) }

func byteProgress(done, total int64) string {
	return terminal.Bytes(done) + "/" + terminal.Bytes(total)
}
