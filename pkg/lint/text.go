package lint

import (
	"fmt"
	"io"
	"strings"
	"unicode"
)

// WriteText writes findings one a line, as compilers do: file:line: severity rule: message (remedy), and a summary.
// Those that are only worth knowing are counted, and printed if infos is set.
func WriteText(w io.Writer, r *Report, infos bool) error {
	var out strings.Builder
	for _, f := range r.Findings {
		if f.Severity == Info && !infos {
			continue
		}
		place := f.File
		if f.Line > 0 {
			place = fmt.Sprintf("%s:%d", f.File, f.Line)
		}
		fmt.Fprintf(&out, "%s: %s %s: %s (%s)\n", printable(place), f.Severity, f.Rule, printable(f.subject()+f.Message), printable(f.Remedy))
	}
	if out.Len() > 0 {
		out.WriteByte('\n')
	}
	fmt.Fprintf(&out, "%s in %s of %s", r.Totals, counted(r.Objects, "object"), counted(r.Files, "file"))
	if r.Totals.Infos > 0 && !infos {
		out.WriteString(" (--info shows what is only worth knowing)")
	}
	out.WriteByte('\n')
	_, err := io.WriteString(w, out.String())
	return err
}

// subject names the object where the message does not.
func (f Finding) subject() string {
	if f.Object == nil || strings.Contains(f.Message, f.Object.Name) {
		return ""
	}
	return f.Object.String() + ": "
}

// String reads like `1 error, 2 warnings, 34 infos`.
func (t Totals) String() string {
	return fmt.Sprintf("%s, %s, %s", counted(t.Errors, "error"), counted(t.Warnings, "warning"), counted(t.Infos, "info"))
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// printable is one line in which nothing can bend a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsGraphic(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return '?'
	}, s)
}
