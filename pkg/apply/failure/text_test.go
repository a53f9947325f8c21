package failure

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMistypedNamesTheFieldsOfAnUnreadableObject(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"reads one line", `failed to create typed live object (a/b; example.com/v1, Kind=Thing): .spec.a: expected list, got &{x: expected map}`, []string{".spec.a"}},
		{
			"reads several lines", "failed to create manager for existing fields: failed to convert new object (a/b; example.com/v1, Kind=Thing) to smd typed: errors:\n" +
				"  .spec.a: expected list, got &{x}\n  .spec.b: field not declared in schema\n  .spec.c[1]: expected string, got 1", []string{".spec.a", ".spec.c[1]"},
		},
		{"ignores a body of another type", `failed to create typed patch object (a/b; example.com/v1, Kind=Thing): .spec.a: expected list, got &{x}`, nil},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, Mistyped(errors.New(tt.text)))
		})
	}
}
