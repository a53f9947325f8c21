package preview

import (
	"fmt"
	"io"
	"strings"

	"github.com/cluster-version/cvo/internal/printable"
)

// WriteText writes a report as text. It shortens long values unless full is set.
func WriteText(w io.Writer, r *Report, full bool) error {
	t := &textWriter{full: full}
	fmt.Fprintf(&t.out, "What an update to %s would do\n\n", title(r))
	for _, o := range r.Objects {
		t.object(o)
	}
	t.images("Images that nodes cannot pull", r.MissingImages)
	t.images("Images that could not be looked up", r.UnknownImages)
	t.orphans(r.Orphans)
	t.notAllowed(r.NotAllowed)
	t.excluded(r.Excluded)
	for _, note := range r.Notes {
		fmt.Fprintf(&t.out, "note: %s\n", printable.Text(note))
	}
	if len(r.Notes) > 0 {
		t.out.WriteByte('\n')
	}
	fmt.Fprintln(&t.out, r.Totals)
	_, err := io.WriteString(w, t.out.String())
	return err
}

// maxRefusals is the number of rejected objects in the text of Refusals.
const maxRefusals = 5

// Refusals returns the first objects that the API server would reject as WriteText writes them, or "" if there are none.
func Refusals(r *Report) string {
	t, listed := &textWriter{}, 0
	for _, o := range r.Objects {
		if o.Verdict != Refuse {
			continue
		}
		if listed++; listed <= maxRefusals {
			t.object(o)
		}
	}
	if more := listed - maxRefusals; more > 0 {
		fmt.Fprintf(&t.out, "… and %d more\n", more)
	}
	return strings.TrimSpace(t.out.String())
}

func title(r *Report) string {
	if r.Image == "" {
		return printable.Text(r.Version)
	}
	return printable.Text(r.Version) + " (" + printable.Text(r.Image) + ")"
}

type textWriter struct {
	out  strings.Builder
	full bool
}

func (t *textWriter) line(format string, args ...any) { fmt.Fprintf(&t.out, "  "+format+"\n", args...) }

func (t *textWriter) object(o Object) {
	file := printable.Text(o.File)
	if o.Document > 1 {
		file = fmt.Sprintf("%s[%d]", file, o.Document)
	}
	fmt.Fprintf(&t.out, "%s  %s\n", printable.Text(o.ID.String()), file)
	switch o.Verdict {
	case Modify, Nothing:
		if o.Message != "" {
			t.line("%s", t.message(o.Message))
		}
	case Unknown, NotAsked, Refuse, Create, Recreate, Delete:
		t.line("%s%s", o.Verdict.label(), t.reason(o))
	}
	for _, f := range o.Fields {
		t.line("%s", f.Line(t.full))
	}
	for _, path := range o.Dropped {
		t.line("omitted, because the server does not accept it: %s", printable.Text(path))
	}
	for _, path := range o.Later {
		t.line("not checked, because it needs the release's version of the CRD: %s", printable.Text(path))
	}
	for _, manager := range o.TakenOver {
		t.line("taken over from %s: fields that only this client set, and that the release lacks, are removed", printable.Text(manager))
	}
	if o.Remedy != "" {
		t.line("remedy: %s", printable.Text(o.Remedy))
	}
	t.out.WriteByte('\n')
}

// reason returns the text after the verdict. A condition or side effect follows a comma, an explanation follows a colon.
func (t *textWriter) reason(o Object) string {
	switch {
	case o.Message == "":
		return ""
	case o.Verdict == Create, o.Verdict == Delete:
		return ", " + t.message(o.Message)
	}
	return ": " + t.message(o.Message)
}

// message returns the text on one line.
func (t *textWriter) message(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	return printable.Text(s)
}

// maxListed is the number of excluded objects, or of images, in a text that is not full.
const maxListed = 10

func (t *textWriter) images(title string, list []Image) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(&t.out, "%s:\n", title)
	for i, image := range list {
		if i == maxListed && !t.full {
			t.line("… and %d more", len(list)-i)
			break
		}
		t.line("%s", t.message(image.String()))
	}
	t.out.WriteByte('\n')
}

func (t *textWriter) excluded(list []Exclusion) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(&t.out, "Excluded from this cluster:\n")
	for i, e := range list {
		if i == maxListed && !t.full {
			t.line("… and %d more", len(list)-i)
			break
		}
		t.line("%s: %s", printable.Text(e.ID.String()), printable.Text(e.Reason))
	}
	t.out.WriteByte('\n')
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
		t.line("%s  from %s, %s", printable.Text(o.ID.String()), printable.Text(o.Release), printable.Text(becomes))
	}
	t.out.WriteByte('\n')
}

func (t *textWriter) notAllowed(list []NotAllowed) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(&t.out, "Not checked because permissions are missing:\n")
	for _, n := range list {
		t.line("%s: %d: %s", printable.Text(n.Resource), n.Objects, t.message(n.Message))
	}
	t.line("remedy: use the kubeconfig of a user with permission to get, list, create, patch and delete these, such as an administrator")
	t.out.WriteByte('\n')
}
