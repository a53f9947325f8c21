package api_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/api"
)

func TestExcerpt(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"keeps what fits", "ten bytes.", "ten bytes."},
		{"cuts what does not", "more than ten bytes", "more th…"},
		{"cuts between characters", "a€€€€€€", "a€€…"},
		{"leaves no space before the mark", "a word  and more", "a word…"},
		{"replaces what is no text", "a\xff\xfeb", "a�b"},
		{"replaces it in a long one too", "a\xff\xffbcdefghijkl", "a�bcd…"},
		{"cuts what replaced text has outgrown", "\xffa\xffb\xffc", "�a�…"},
		{"is not led astray by a long end of a character", "ab" + strings.Repeat("\x80", 20), "a…"},
	} {
		t.Run("it "+test.name, func(t *testing.T) {
			assert.Equal(t, test.want, api.Excerpt(test.text, 10))
		})
	}
}

func FuzzExcerpt(f *testing.F) {
	f.Add("more than ten bytes", 10)
	f.Add("\xe2\x80\xa6\xe2\x80", 4)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = max(limit%1000, 3)
		got := api.Excerpt(text, limit)
		assert.LessOrEqual(t, len(got), limit)
		assert.True(t, utf8.ValidString(got))
		if utf8.ValidString(text) && len(text) <= limit {
			assert.Equal(t, text, got)
		}
	})
}
