// Package terminal detects terminals, selects the characters and colors that they can show, and turns text from other sources into one
// harmless line. Use OneLine for a message in running text or a table: it joins lines and removes extra white space. Where each character
// counts, as in names and values, use printable.Text. For text with several lines, use printable.Lines.
package terminal

import (
	"io"
	"os"
	"strings"

	"charm.land/lipgloss/v2"
	"golang.org/x/term"

	"github.com/cluster-version/cvo/internal/printable"
)

// Drawable reports whether a writer is a terminal that can move its cursor.
func Drawable(w io.Writer) bool { return IsTerminal(w) && os.Getenv("TERM") != "dumb" }

// Style describes what a terminal can show. The zero value is plain ASCII.
type Style struct {
	// Unicode allows box drawing characters and marks; Color allows escape sequences.
	Unicode, Color bool
}

// Palette holds marks, lines and colors.
type Palette struct {
	Branch, Last, Bar, Gap               string
	Settled, Waiting, Failed, Pending    string
	Skipped                              string
	Strong, Dim, Good, Busy, Bad, Accent func(string) string
}

// NewPalette returns the marks, lines and colors of a style.
func NewPalette(v Style) Palette {
	p := Palette{
		Branch: "|- ", Last: "`- ", Bar: "|  ", Gap: "   ",
		Settled: "+", Waiting: "*", Failed: "x", Pending: ".", Skipped: "-",
	}
	if v.Unicode {
		p.Branch, p.Last, p.Bar = "├─ ", "└─ ", "│  "
		p.Settled, p.Waiting, p.Failed, p.Pending, p.Skipped = "✓", "●", "✗", "·", "–"
	}
	style := func(s lipgloss.Style) func(string) string {
		if !v.Color {
			return func(text string) string { return text }
		}
		return func(text string) string { return s.Render(text) }
	}
	color := func(c string) lipgloss.Style { return lipgloss.NewStyle().Foreground(lipgloss.Color(c)) }
	p.Strong, p.Dim, p.Good = style(lipgloss.NewStyle().Bold(true)), style(color("8")), style(color("2"))
	p.Busy, p.Bad, p.Accent = style(color("3")), style(color("1").Bold(true)), style(color("6").Bold(true))
	return p
}

// IsTerminal reports whether a writer is a terminal.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// SupportsUTF8 reports whether the locale uses UTF-8. The first variable that is set counts (POSIX, XBD 8.2).
func SupportsUTF8(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := strings.ToUpper(getenv(name)); value != "" {
			return strings.Contains(value, "UTF-8") || strings.Contains(value, "UTF8")
		}
	}
	return false
}

// OneLine turns text from another source into one line without characters that control a terminal.
func OneLine(text string) string {
	return printable.Text(strings.Join(strings.Fields(text), " "))
}
