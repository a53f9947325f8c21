package request

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestUnknownFieldsAreReadFromWarnings(t *testing.T) {
	var w unknownFieldWarnings
	for _, tt := range []struct {
		code int
		text string
	}{
		{299, `unknown field "spec.a[0].b"`},
		{299, `unknown field "spec.\"q\""`},
		{299, `duplicate field "spec.c"`},
		{299, `policy/v1beta1 is deprecated`},
		{299, `unknown field "\z"`},
		{199, `unknown field "spec.d"`},
	} {
		w.HandleWarningHeaderWithContext(t.Context(), tt.code, "", tt.text)
	}
	assert.Equal(t, []string{".spec.a[0].b", `.spec."q"`}, w.paths)
}
