package cli

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
)

// progressPicture is what a terminal shows.
type progressPicture struct {
	view statusView
	size func() (width, height int)
	// lines are how many of the picture are on the screen, the cursor being below them.
	lines int
}

// drawable reports whether a writer is a terminal that can move its cursor.
func drawable(w io.Writer) bool { return isTerminal(w) && os.Getenv("TERM") != "dumb" }

func newProgressPicture(w io.Writer) *progressPicture {
	return &progressPicture{
		view: statusView{Colour: os.Getenv("NO_COLOR") == "", Unicode: speaksUTF8(os.Getenv)},
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

// wipe takes the picture off the screen.
func (p *progress) wipe() {
	if p.picture != nil && p.picture.lines > 0 {
		_, _ = io.WriteString(p.out, p.picture.wiping())
		p.picture.lines = 0
	}
}

func (v *progressPicture) wiping() string {
	if v.lines == 0 {
		return ""
	}
	return "\r" + ansi.CursorUp(v.lines) + ansi.EraseScreenBelow
}

// draw replaces the picture in one write, so that a slow terminal does not flicker.
func (p *progress) draw(now time.Time) {
	width, height := p.picture.size()
	lines := p.render(now, width, height)
	var out bytes.Buffer
	out.WriteString(p.picture.wiping())
	for _, line := range lines {
		out.WriteString(ansi.Truncate(line, max(1, width-1), "") + "\n")
	}
	p.picture.lines = len(lines)
	_, _ = p.out.Write(out.Bytes())
}

// render draws a line for all and one for each item at work, as many as there is room for.
func (p *progress) render(now time.Time, width, height int) []string {
	style := newStatusPalette(p.picture.view)
	barWidth := min(24, max(6, width/4))
	head := style.strong(p.what)
	total := p.bytes()
	if total > 0 {
		head += fmt.Sprintf("  %s %3d%%", bar(p.picture.view, style, barWidth, p.moved, total), percent64(p.moved, total))
	}
	lines := []string{head + "  " + strings.Join(p.figures(now), "  ")}
	rows := min(progressRows, max(1, height/2))
	nameWidth := 0
	shown := p.running[:min(rows, len(p.running))]
	for _, item := range shown {
		nameWidth = max(nameWidth, ansi.StringWidth(item.name))
	}
	nameWidth = min(nameWidth, max(10, width/3))
	for _, item := range shown {
		name := ansi.Truncate(oneLine(item.name), nameWidth, "…")
		line := "  " + name + strings.Repeat(" ", nameWidth-ansi.StringWidth(name))
		if item.total > 0 {
			line += fmt.Sprintf("  %s %3d%%  %s", bar(p.picture.view, style, barWidth, item.done, item.total),
				percent64(item.done, item.total), style.dim(ofBytes(item.done, item.total)))
		}
		lines = append(lines, line)
	}
	if rest := len(p.running) - len(shown); rest > 0 {
		lines = append(lines, style.dim(fmt.Sprintf("  and %d more", rest)))
	}
	return lines
}

// figures are what the head and the lines have in common.
func (p *progress) figures(now time.Time) []string {
	var out []string
	if p.expectedItems > 0 {
		out = append(out, fmt.Sprintf("%d/%d", p.endedItems, p.expectedItems))
	}
	if total := p.bytes(); total > 0 {
		out = append(out, ofBytes(p.moved, total))
		if rate := p.rate(now); rate >= 1 {
			out = append(out, bytesText(int64(rate))+"/s")
		}
		if left, ok := p.left(now); ok {
			out = append(out, duration.HumanDuration(left)+" left")
		}
	}
	return out
}

// stateLine is what a log gets now and then.
func (p *progress) stateLine(now time.Time) string {
	line := "info: " + p.what + ": " + strings.Join(p.figures(now), ", ")
	var names []string
	for _, item := range p.running[:min(fewNames, len(p.running))] {
		name := oneLine(item.name)
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

// endLine says that an item is done.
func endLine(item *progressItem, note string, took time.Duration) string {
	line := "info: " + oneLine(item.name) + ": "
	if note != "" {
		line += oneLine(note)
	} else {
		line += "done"
	}
	if item.done > 0 {
		line += fmt.Sprintf(", %s in %s", bytesText(item.done), seconds(took))
	}
	return line + "\n"
}

// sumLine says what was done in all.
func (p *progress) sumLine(now time.Time) string {
	line := fmt.Sprintf("info: %s: %d done", p.what, p.endedItems)
	if n := len(p.running); n > 0 {
		line += fmt.Sprintf(", %d not", n)
	}
	took := now.Sub(p.began)
	if p.moved > 0 {
		line += ", " + bytesText(p.moved)
	}
	line += " in " + seconds(took)
	if took >= time.Second && p.moved > 0 {
		line += fmt.Sprintf(", %s/s", bytesText(int64(float64(p.moved)/took.Seconds())))
	}
	return line + "\n"
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

// bar draws how much of a total is done.
func bar(view statusView, style statusPalette, width int, done, total int64) string {
	filled := min(width, int(float64(width)*float64(done)/float64(max(1, total))))
	full, empty, left, right := "#", "-", "[", "]"
	if view.Unicode {
		full, empty, left, right = "█", "░", "", ""
	}
	return left + style.good(strings.Repeat(full, filled)) + style.dim(strings.Repeat(empty, width-filled)) + right
}

func percent64(done, total int64) int64 { return min(100, 100*done/max(1, total)) }

func ofBytes(done, total int64) string { return bytesText(done) + "/" + bytesText(total) }

// bytesText writes a number of bytes with the unit that fits.
func bytesText(n int64) string {
	const units = "KMGT"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/(1<<10), 0
	for value >= 1000 && unit < len(units)-1 {
		value, unit = value/(1<<10), unit+1
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}
