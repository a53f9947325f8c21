package apply

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestDetail(t *testing.T) {
	for _, tt := range []struct{ name, message, want string }{
		{"leaves out an object", `Invalid value: {"a":{"b":": field"}}: field is immutable`, "field is immutable"},
		{"leaves out a text", `Invalid value: "field is immutable: x": must be short`, "must be short"},
		{"leaves out a list", `Invalid value: ["None"]: may not change once set`, "may not change once set"},
		{"leaves out a number", `Invalid value: 3: field is immutable`, "field is immutable"},
		{"leaves out null", `Invalid value: null: some rules were not checked`, "some rules were not checked"},
		{"knows messages without the value", `Invalid value: whim must stay`, "whim must stay"},
		{"knows values that are no JSON", `Invalid value: core.X{A:1}: field is immutable`, "core.X{A:1}: field is immutable"},
		{"leaves out the class", "Forbidden: may not be changed in an update.", "may not be changed in an update"},
		{"leaves out a difference", "Forbidden: spec is immutable after creation\n@@ -1 +1 @@\n-a\n+b", "spec is immutable after creation"},
		{"knows a class without a text", "Required value", "Required value"},
		{"takes what it does not know as it is", "a: b: c", "a: b: c"},
		{"takes nothing", "", ""},
	} {
		t.Run("it "+tt.name, func(t *testing.T) { assert.Equal(t, tt.want, detail(tt.message)) })
	}
}

func invalid(list ...metav1.StatusCause) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: 422, Message: "it is invalid",
		Details: &metav1.StatusDetails{Causes: list},
	}}
}

func TestImmutable(t *testing.T) {
	cause := func(kind metav1.CauseType, field, message string) metav1.StatusCause {
		return metav1.StatusCause{Type: kind, Field: field, Message: message}
	}
	const bad, forbidden = metav1.CauseTypeFieldValueInvalid, metav1.CauseTypeForbidden
	for _, tt := range []struct {
		name string
		err  error
		want []string
	}{
		{"names each field once, sorted", invalid(
			cause(bad, "spec.z", `Invalid value: 1: field is immutable`), cause(forbidden, "spec.a", "Forbidden: field is immutable"),
			cause(bad, "spec.z", `Invalid value: 2: field is immutable`)), []string{"spec.a", "spec.z"}},
		{"leaves out other causes", invalid(cause(bad, "spec.a", `Invalid value: 1: field is immutable`),
			cause(bad, "spec.b", `Invalid value: 1: must be even`)), []string{"spec.a"}},
		{"does not look into values", invalid(cause(bad, "spec.a", `Invalid value: "immutable, cannot be changed": must be short`)), nil},
		{"does not take what is missing", invalid(cause(metav1.CauseTypeFieldValueRequired, "immutable", "Required value: the immutable one")), nil},
		{"does not take what is too long", invalid(cause(metav1.CauseTypeTooLong, "a", "Too long: may not be changed to this")), nil},
		{"does not take a strategy", invalid(cause(forbidden, "spec.strategy.rollingUpdate", "Forbidden: may not be specified when strategy `type` is 'Recreate'")), nil},
		{"does not take other errors", errors.New("field is immutable"), nil},
		{"does not take an error without causes", invalid(), nil},
		{"does not take conflicts", apierrors.NewConflict(metav1.SchemeGroupVersion.WithResource("x").GroupResource(), "a", errors.New("field is immutable")), nil},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			fields, says := immutable(causes(tt.err))
			assert.Equal(t, tt.want, fields)
			assert.Equal(t, tt.want != nil, says != "")
		})
	}
	assert.Equal(t, "x", summary(errors.New("x")))
	assert.Equal(t, "a: b, c", summary(invalid(cause(bad, "<nil>", "Invalid value: c"), cause(bad, "a", "Invalid value: b"))))
}

func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		name, have, want string
		yes              bool
	}{
		{"lets more be there", `{"a":{"b":1,"c":2}}`, `{"a":{"b":1}}`, true},
		{"sees another value", `{"a":{"b":1}}`, `{"a":{"b":2}}`, false},
		{"sees what is missing", `{"a":{}}`, `{"a":{"b":2}}`, false},
		{"looks into lists", `{"a":[{"b":1,"c":2},"x"]}`, `{"a":[{"b":1},"x"]}`, true},
		{"sees a list of another length", `{"a":[1,2]}`, `{"a":[1]}`, false},
		{"sees another kind of value", `{"a":[1]}`, `{"a":{"b":1}}`, false},
		{"wants nothing by null", `{}`, `{"a":null}`, true},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			assert.Equal(t, tt.yes, covers(decodeJSON(t, tt.have), decodeJSON(t, tt.want)))
		})
	}
}

func TestDropRepeated(t *testing.T) {
	const about = `failed to create typed patch object (/a; v1, Kind=X): `
	for _, tt := range []struct{ name, object, line, want string }{
		{"keeps the last", `{"l":[{"n":"a","v":1},{"n":"b"},{"n":"a","v":2}]}`, `.l: duplicate entries for key [n="a"]`, `{"l":[{"n":"b"},{"n":"a","v":2}]}`},
		{"keeps the last member", `{"l":["a","b","a"]}`, `.l: duplicate entries for key [="a"]`, `{"l":["b","a"]}`},
		{"keeps the last number", `{"l":[1,2,1]}`, `.l: duplicate entries for key [=1]`, `{"l":[2,1]}`},
		{"finds a list in a list", `{"m":[{"n":"x","l":["a","a"]},{"n":"y","l":["a","a"]}]}`, `.m[n="y"].l: duplicate entries for key [="a"]`, `{"m":[{"n":"x","l":["a","a"]},{"n":"y","l":["a"]}]}`},
		{"finds a name with dots", `{"a.b":{"c":["a","a"]}}`, `.a.b.c: duplicate entries for key [="a"]`, `{"a.b":{"c":["a"]}}`},
		{"leaves one alone", `{"l":["a"]}`, `.l: duplicate entries for key [="a"]`, ""},
		{"leaves what is no list", `{"l":{"a":1}}`, `.l: duplicate entries for key [="a"]`, ""},
		{"does not read a broken key", `{"l":["a","a"]}`, `.l: duplicate entries for key [`, ""},
		{"does not read a position", `{"l":["a","a"]}`, `.l: duplicate entries for key [0]`, ""},
		{"does not read other texts", `{"l":["a","a"]}`, `.l: expected string`, ""},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			object := decodeJSON(t, tt.object)
			got, removed := withoutRefused(object, errors.New(about+tt.line))
			assert.Equal(t, decodeJSON(t, tt.object), object)
			if tt.want == "" {
				assert.Empty(t, removed)
				assert.Equal(t, object, got)
				return
			}
			assert.Len(t, removed, 1)
			assert.Equal(t, decodeJSON(t, tt.want), got)
		})
	}
}

// FuzzRefusals gives any object and any words of a server: nothing may panic, and the object must stay as it is.
func FuzzRefusals(f *testing.F) {
	f.Add(`{"l":[{"n":"a"},{"n":"a"}]}`, `.l: duplicate entries for key [n="a"]`)
	f.Add(`{"spec":{"volumes":[{"name":"a","x":1}]}}`, `spec.volumes[0].x: may not specify more than 1 volume type`)
	f.Add(`{"":["a"]}`, `Invalid value: {"a":1}: field is immutable`)
	f.Fuzz(func(t *testing.T, text, words string) {
		var object map[string]any
		if json.Unmarshal([]byte(text), &object) != nil || object == nil {
			t.Skip()
		}
		before := runtime.DeepCopyJSON(object)
		without, removed := withoutRefused(object, errors.New(typeError+"/a; v1, Kind=X): "+words))
		require.Equal(t, before, object)
		if len(removed) == 0 {
			require.Equal(t, before, without)
		}
		err := invalid(metav1.StatusCause{Type: metav1.CauseTypeForbidden, Field: words, Message: words})
		immutable(causes(err))
		lay(object, &unstructured.Unstructured{Object: before}).inTheWay(append(causes(err), cause{words, metav1.CauseTypeForbidden, "more than 1"}))
		require.Equal(t, before, object)
	})
}
