package difference_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/internal/difference"
)

func TestLineShowsTheDifferenceOfTwoValues(t *testing.T) {
	long := string(bytes.Repeat([]byte("abcdefghij"), 20))
	for _, tt := range []struct {
		name  string
		field difference.Field
		full  bool
		want  string
	}{
		{name: "it quotes texts", field: difference.Field{Op: difference.Modified, Path: "a", Old: "x\x1b[2J", New: 1.0}, want: `~ a: "x\x1b[2J" → 1`},
		{name: "it replaces control characters in maps", field: difference.Field{Op: difference.Added, Path: "a", New: map[string]any{"b": "\u009b"}}, want: `+ a: {"b":"?"}`},
		{
			name: "it shortens long values", field: difference.Field{Op: difference.Removed, Path: "a", Old: long},
			want: `- a: "` + long[:79] + `… (202 characters, --full shows all)`,
		},
		{name: "it shows complete long values on request", full: true, field: difference.Field{Op: difference.Removed, Path: "a", Old: long}, want: `- a: "` + long + `"`},
		{
			name: "it shows where long values differ", field: difference.Field{Op: difference.Modified, Path: "a", Old: long + "1" + long, New: long + "2" + long},
			want: `~ a: …` + long[180:] + "1" + long[:59] + `… (403 characters, --full shows all) → …` + long[180:] + "2" + long[:59] + `… (403 characters, --full shows all)`,
		},
		{
			name: "it shows a changed order", field: difference.Field{Op: difference.Reordered, Path: "a", Old: []string{"[=1]", "[=2]"}, New: []string{"[=2]", "[=1]"}},
			want: `~ a: order ["[=1]","[=2]"] → ["[=2]","[=1]"]`,
		},
		{name: "it hides an added value", field: difference.Field{Op: difference.Added, Path: "data.a", Hidden: true}, want: "+ data.a: (hidden)"},
		{name: "it hides a removed value", field: difference.Field{Op: difference.Removed, Path: "data.a", Hidden: true}, want: "- data.a: (hidden)"},
		{name: "it hides a changed value", field: difference.Field{Op: difference.Modified, Path: "data.a", Hidden: true}, want: "~ data.a: (changed)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, tt.field.Line(tt.full))
		})
	}
}
