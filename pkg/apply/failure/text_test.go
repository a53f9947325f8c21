package failure

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		{"reads a key with a colon", `failed to create typed live object (a/b; example.com/v1, Kind=Thing): .spec.a[name="b: c"].d: expected list, got &{x}`, []string{`.spec.a[name="b: c"].d`}},
		{"reads the key of a list entry", `failed to create typed live object (a/b; example.com/v1, Kind=Thing): .spec.a[name="b c"].d: expected list, got &{x}`, []string{`.spec.a[name="b c"].d`}},
		{"ignores a body of another type", `failed to create typed patch object (a/b; example.com/v1, Kind=Thing): .spec.a: expected list, got &{x}`, nil},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, Mistyped(errors.New(tt.text)))
		})
	}
}

func TestConversionErrorsAreRecognized(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		code       int32
		want       bool
	}{
		{"recognizes a field that another version lacks", `.spec.a: field not declared in schema`, 500, true},
		{"recognizes a key with a colon", `.spec.a[name="b: c"].d: field not declared in schema`, 500, true},
		{"recognizes a field of another type", `.spec.a[name="b c"].d: expected list, got &{x}`, 500, true},
		{"recognizes several lines", "errors:\n  .spec.a: field not declared in schema\n  .spec.b: expected string, got 1", 500, true},
		{"recognizes a removed version", `request to convert CR to an invalid group/version: example.com/v1beta1`, 500, true},
		{"does not interpret an error about the body", `failed to create typed patch object (a/b; example.com/v1, Kind=Thing): .spec.a: expected list, got &{x}`, 500, false},
		{"does not interpret a webhook's text", `failed calling webhook "a": expected webhook response of admission.k8s.io/v1, got /, Kind=`, 500, false},
		{"does not interpret another status", `.spec.a: field not declared in schema`, 403, false},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			err := &apierrors.StatusError{ErrStatus: metav1.Status{Code: tt.code, Message: tt.text}}
			assert.Equal(t, tt.want, IsConversion(err))
		})
	}
}
