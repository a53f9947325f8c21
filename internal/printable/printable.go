// Package printable makes text safe to print on a terminal. Names and messages from a release, a cluster or a registry may contain
// characters that a terminal would interpret. Text is for names and values: it shows a line break as a question mark. Lines is for text with
// several lines. For a message that must fit on one line, use terminal.OneLine, which joins lines with spaces. Excerpt limits the length of a
// text, List the number of names. Steady removes the part of an error text that differs each time.
package printable

import (
	"fmt"
	"strings"
	"unicode"
)

// Text replaces characters that a terminal could interpret, including line breaks, with question marks. It does not use U+FFFD, because
// some readers of DOT reject it.
func Text(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return '?'
	}, s)
}

// Lines is like Text, but keeps line breaks and tabs.
func Lines(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return '?'
	}, strings.ReplaceAll(s, "\r\n", "\n"))
}

// Few is the usual number of names that a message lists.
const Few = 5

// List joins the first names up to most, with the number of the others.
func List(names []string, most int) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// AndOthers returns a text about the first of n things, with the number of the others.
func AndOthers(first string, n int, noun string) string {
	if n <= 1 {
		return first
	}
	return fmt.Sprintf("%s (and %s)", first, Count(n-1, "other "+noun))
}

// Count returns a text such as `1 manifest` or `2 manifests`.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
