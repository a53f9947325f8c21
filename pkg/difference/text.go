package difference

import (
	"fmt"
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

// Line words a difference for people: "+", "-" or "~", the path and the values, which are shortened unless full.
func (f Field) Line(full bool) string {
	path := Printable(f.Path)
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

// shortened shortens what is long to a part that holds the character at from, and says how long it was.
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

// Printable replaces what a terminal would take for a command.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return '?'
	}, s)
}
