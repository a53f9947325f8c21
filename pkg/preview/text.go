package preview

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Lengths of values in the text, in characters.
const (
	// longValue is how long a value may be before it is shortened.
	longValue = 100
	// shownValue is what is left of it.
	shownValue = 80
	// context is how much is shown before the place where two long values differ.
	contextValue = 20
)

// WriteText writes a report for people. Long values are shortened unless full.
func WriteText(w io.Writer, r *Report, full bool) error {
	t := &textWriter{full: full}
	fmt.Fprintf(&t.out, "What an update to %s would do\n\n", title(r))
	for _, o := range r.Objects {
		t.object(o)
	}
	t.orphans(r.Orphans)
	t.notAllowed(r.NotAllowed)
	for _, note := range r.Notes {
		fmt.Fprintf(&t.out, "note: %s\n", printable(note))
	}
	if len(r.Notes) > 0 {
		t.out.WriteByte('\n')
	}
	fmt.Fprintln(&t.out, r.Totals)
	_, err := io.WriteString(w, t.out.String())
	return err
}

func title(r *Report) string {
	if r.Image == "" {
		return printable(r.Version)
	}
	return printable(r.Version) + " (" + printable(r.Image) + ")"
}

type textWriter struct {
	out  strings.Builder
	full bool
}

func (t *textWriter) line(format string, args ...any) { fmt.Fprintf(&t.out, "  "+format+"\n", args...) }

func (t *textWriter) object(o Object) {
	file := printable(o.File)
	if o.Document > 1 {
		file = fmt.Sprintf("%s[%d]", file, o.Document)
	}
	fmt.Fprintf(&t.out, "%s  %s\n", printable(o.ID.String()), file)
	switch o.Verdict {
	case Modify, Nothing:
		if o.Message != "" {
			t.line("%s", t.message(o.Message))
		}
	case Unknown, NotAsked, Refuse, Create, Recreate, Delete:
		t.line("%s%s", o.Verdict.words(), t.reason(o))
	}
	for _, f := range o.Fields {
		t.field(f)
	}
	for _, path := range o.Dropped {
		t.line("left out, the server does not take it: %s", printable(path))
	}
	for _, path := range o.Later {
		t.line("left out for now, it needs the release's version of the CRD: %s", printable(path))
	}
	for _, manager := range o.TakenOver {
		t.line("taken over from %s: what only it had set, and the release does not, is removed besides", printable(manager))
	}
	if o.Remedy != "" {
		t.line("remedy: %s", printable(o.Remedy))
	}
	t.out.WriteByte('\n')
}

// reason follows the words for a verdict: a condition or what happens besides after a comma, an explanation after a
// colon.
func (t *textWriter) reason(o Object) string {
	switch {
	case o.Message == "":
		return ""
	case o.Verdict == Create, o.Verdict == Delete:
		return ", " + t.message(o.Message)
	}
	return ": " + t.message(o.Message)
}

// message is one line.
func (t *textWriter) message(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	return printable(s)
}

func (t *textWriter) field(f Field) {
	path := printable(f.Path)
	switch {
	case f.Hidden && f.Op == Added:
		t.line("+ %s: (hidden)", path)
	case f.Hidden && f.Op == Removed:
		t.line("- %s: (hidden)", path)
	case f.Hidden:
		t.line("~ %s: (changed)", path)
	case f.Op == Added:
		t.line("+ %s: %s", path, t.value(text(f.New), 0))
	case f.Op == Removed:
		t.line("- %s: %s", path, t.value(text(f.Old), 0))
	case f.Op == Reordered:
		t.line("~ %s: order %s → %s", path, t.value(text(f.Old), 0), t.value(text(f.New), 0))
	case f.Op == Modified:
		before, after := text(f.Old), text(f.New)
		from := commonPrefix(before, after)
		t.line("~ %s: %s → %s", path, t.value(before, from), t.value(after, from))
	}
}

// value shortens what is long to a part that holds the character at from, and says how long it was.
func (t *textWriter) value(s string, from int) string {
	length := utf8.RuneCountInString(s)
	if t.full || length <= longValue {
		return s
	}
	runes := []rune(s)
	start := max(0, min(from-contextValue, length-shownValue))
	end := min(length, start+shownValue)
	short := string(runes[start:end])
	if start > 0 {
		short = "…" + short
	}
	if end < length {
		short += "…"
	}
	return fmt.Sprintf("%s (%d characters, --full shows all)", short, length)
}

// commonPrefix is how many characters two texts begin with that are the same.
func commonPrefix(a, b string) int {
	n := 0
	for a != "" && b != "" {
		r, size := utf8.DecodeRuneInString(a)
		if s, _ := utf8.DecodeRuneInString(b); s != r {
			break
		}
		a, b = a[size:], b[min(size, len(b)):]
		n++
	}
	return n
}

func (t *textWriter) orphans(orphans []Orphan) {
	if len(orphans) == 0 {
		return
	}
	fmt.Fprintf(&t.out, "No longer part of the release:\n")
	for _, o := range orphans {
		becomes := "stays"
		switch {
		case o.Pruned:
			becomes = "deleted once the update is complete"
		case o.Stays != "":
			becomes = "stays: " + o.Stays
		}
		t.line("%s  from %s, %s", printable(o.ID.String()), printable(o.Release), printable(becomes))
	}
	t.out.WriteByte('\n')
}

func (t *textWriter) notAllowed(list []NotAllowed) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(&t.out, "Not looked at, for want of rights:\n")
	for _, n := range list {
		t.line("%s: %d: %s", printable(n.Resource), n.Objects, t.message(n.Message))
	}
	t.line("remedy: use the kubeconfig of a user who may get, list, create, patch and delete these, such as an administrator")
	t.out.WriteByte('\n')
}

// printable replaces what a terminal would take for a command.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return '?'
	}, s)
}
