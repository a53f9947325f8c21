package failure

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
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
		{"reads a list whose items lack keys", `failed to create typed live object (a/b; example.com/v1, Kind=Thing): .spec.a: element 0: associative list with keys has an element that omits all key fields ["name"] (and doesn't have default values for any key fields)`, []string{".spec.a"}},
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
		{"recognizes an item without a key", `.spec.a: element 12: associative list with keys has an element that omits all key fields ["name"]`, 500, true},
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

func TestFailedConversionWebhookIsNamed(t *testing.T) {
	for _, text := range []string{
		`conversion webhook for example.com/v1, Kind=Thing failed: converter is broken`,
		`failed to convert pruned object to version example.com/v1: missing metadata in converted object`,
	} {
		failed, ok := errors.AsType[*Error](Wrap(&manifest.Manifest{Object: &unstructured.Unstructured{}}, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: text,
		}}))
		require.True(t, ok)
		assert.Equal(t, api.ReasonResourceInvalid, failed.Reason, "the control plane works")
		assert.Contains(t, failed.Remedy, "repair the conversion webhook")
	}
}
