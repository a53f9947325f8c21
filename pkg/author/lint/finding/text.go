package finding

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/cluster-version/cvo/internal/printable"
)

// WriteText writes one finding per line, in the format of compilers: file:line: severity rule: message (remedy). A summary follows. If
// infos is not set, findings with severity Info are only counted.
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
		fmt.Fprintf(&out, "%s: %s %s: %s (%s)\n", oneLine(place), f.Severity, f.Rule, oneLine(f.subject()+f.Message), oneLine(f.Remedy))
	}
	if out.Len() > 0 {
		out.WriteByte('\n')
	}
	fmt.Fprintf(&out, "%s in %s with %s", r.Totals, printable.Count(r.Files, "file"), printable.Count(r.Objects, "object"))
	if r.Totals.Infos > 0 && !infos {
		out.WriteString(" (show infos with --info)")
	}
	out.WriteByte('\n')
	_, err := io.WriteString(w, out.String())
	return err
}

// subject names the object if the message does not name it.
func (f Finding) subject() string {
	if f.Object == nil || strings.Contains(f.Message, f.Object.Name) {
		return ""
	}
	return f.Object.String() + ": "
}

// String returns text such as `1 error, 2 warnings, 34 infos`.
func (t Totals) String() string {
	return fmt.Sprintf("%s, %s, %s", printable.Count(t.Errors, "error"), printable.Count(t.Warnings, "warning"), printable.Count(t.Infos, "info"))
}

// oneLine returns the text on one line without control characters.
func oneLine(s string) string {
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
