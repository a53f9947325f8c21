package api

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Excerpt returns a text of any length and content as valid UTF-8 of at most limit bytes. What is left of a longer one ends
// with "…"; its rest is not looked at.
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

// runeStart is where the character begins that a text has at an index.
func runeStart(text string, i int) int {
	for i > 0 && !utf8.RuneStart(text[i]) {
		i--
	}
	return i
}
