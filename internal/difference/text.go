package difference

import (
	"fmt"
	"unicode/utf8"

	"github.com/cluster-version/cvo/internal/printable"
)

// Lengths of values in text, in characters.
const (
	// longValue is the length from which values are truncated.
	longValue = 100
	// shownValue is the length of a truncated value.
	shownValue = 80
	// contextValue is the length of the text before the first difference of two long values.
	contextValue = 20
)

// Line formats a difference for people: "+", "-" or "~", the path and the values. It truncates long values unless full is set.
func (f Field) Line(full bool) string {
	path := printable.Text(f.Path)
	value := func(v any) string { return shortened(Text(v), 0, full) }
	switch {
	case f.Hidden && f.Op == Added:
		return fmt.Sprintf("+ %s: (hidden)", path)
	case f.Hidden && f.Op == Removed:
		return fmt.Sprintf("- %s: (hidden)", path)
	case f.Hidden:
		return fmt.Sprintf("~ %s: (changed)", path)
	case f.Op == Added:
		return fmt.Sprintf("+ %s: %s", path, value(f.New))
	case f.Op == Removed:
		return fmt.Sprintf("- %s: %s", path, value(f.Old))
	case f.Op == Reordered:
		return fmt.Sprintf("~ %s: order %s → %s", path, value(f.Old), value(f.New))
	}
	before, after := Text(f.Old), Text(f.New)
	from := commonPrefix(before, after)
	return fmt.Sprintf("~ %s: %s → %s", path, shortened(before, from, full), shortened(after, from, full))
}

// shortened truncates a long text to a part that contains the character at from, and adds the original length.
func shortened(s string, from int, full bool) string {
	length := utf8.RuneCountInString(s)
	if full || length <= longValue {
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

// commonPrefix returns the length of the common prefix of two texts, in characters.
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
