package printable_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/internal/printable"
)

func TestExcerptTruncatesLongTexts(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"keeps a short text", "ten bytes.", "ten bytes."},
		{"truncates a long text", "more than ten bytes", "more th…"},
		{"cuts between characters", "a€€€€€€", "a€€…"},
		{"leaves no space before the mark", "a word  and more", "a word…"},
		{"replaces invalid bytes", "a\xff\xfeb", "a�b"},
		{"replaces invalid bytes in a long text", "a\xff\xffbcdefghijkl", "a�bcd…"},
		{"truncates a text that grows by replacement", "\xffa\xffb\xffc", "�a�…"},
		{"handles many continuation bytes", "ab" + strings.Repeat("\x80", 20), "a…"},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			assert.Equal(t, test.want, printable.Excerpt(test.text, 10))
		})
	}
}

//threat:texts-others-status
func FuzzExcerpt(f *testing.F) {
	f.Add("more than ten bytes", 10)
	f.Add("\xe2\x80\xa6\xe2\x80", 4)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = max(limit%1000, 3)
		got := printable.Excerpt(text, limit)
		assert.LessOrEqual(t, len(got), limit)
		assert.True(t, utf8.ValidString(got))
		if utf8.ValidString(text) && len(text) <= limit {
			assert.Equal(t, text, got)
		}
	})
}
