package printable

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Excerpt returns a text as valid UTF-8 of at most limit bytes. A truncated text ends with "…". Excerpt does not read the rest of a longer
// text.
func Excerpt(text string, limit int) string {
	const mark = "…"
	whole := len(text) <= limit
	if !whole {
		text = text[:runeStart(text, limit)]
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	if whole && len(text) <= limit {
		return text
	}
	if end := max(limit-len(mark), 0); end < len(text) {
		text = text[:runeStart(text, end)]
	}
	return strings.TrimRightFunc(text, unicode.IsSpace) + mark
}

// runeStart returns the start of the character that contains index i.
func runeStart(text string, i int) int {
	for i > 0 && !utf8.RuneStart(text[i]) {
		i--
	}
	return i
}
