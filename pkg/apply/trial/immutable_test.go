package trial

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestCoversAllowsAdditionalFields(t *testing.T) {
	for _, tt := range []struct {
		name, have, want string
		yes              bool
	}{
		{"allows additional fields", `{"a":{"b":1,"c":2}}`, `{"a":{"b":1}}`, true},
		{"notices a different value", `{"a":{"b":1}}`, `{"a":{"b":2}}`, false},
		{"notices a missing field", `{"a":{}}`, `{"a":{"b":2}}`, false},
		{"compares the entries of lists", `{"a":[{"b":1,"c":2},"x"]}`, `{"a":[{"b":1},"x"]}`, true},
		{"notices a list of different length", `{"a":[1,2]}`, `{"a":[1]}`, false},
		{"notices a different kind of value", `{"a":[1]}`, `{"a":{"b":1}}`, false},
		{"treats null as any value", `{}`, `{"a":null}`, true},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			assert.Equal(t, tt.yes, covers(decodeJSON(t, tt.have), decodeJSON(t, tt.want)))
		})
	}
}

func decodeJSON(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &object))
	return object
}

func TestImmutableNamesTheChangedFieldsOfASpec(t *testing.T) {
	sets := schema.GroupKind{Group: "apps", Kind: "StatefulSet"}
	body := map[string]any{"spec": map[string]any{"replicas": int64(2), "serviceName": "b", "podManagementPolicy": "Parallel", "selector": "same"}}
	live := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(1), "serviceName": "a", "selector": "same"}}}
	rejected := func(fields ...string) error {
		var list field.ErrorList
		for _, name := range fields {
			list = append(list, field.Forbidden(field.NewPath(name), "it is immutable"))
		}
		return apierrors.NewInvalid(sets, "a", list)
	}
	for _, tt := range []struct {
		name string
		err  error
		want []string
	}{
		{"lists the fields that differ, except mutable ones", rejected("spec"), []string{"spec.podManagementPolicy", "spec.serviceName"}},
		{"lists the rejected fields once", rejected("spec.b", "spec.a", "spec.b"), []string{"spec.a", "spec.b"}},
		{"lists the fields that differ if a rule of the object rejects them", rejectedAs("a", "<nil>"), []string{"spec.podManagementPolicy", "spec.serviceName"}},
		{"lists nothing for a policy, which names no field", rejectedAs("a", ""), nil},
		{"lists nothing for a webhook", rejectedAs(`admission webhook "a" denied the request: a`, "spec.a"), nil},
		{"lists nothing for other errors", errors.New("timeout"), nil},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			fields, detail := immutable(tt.err, sets, body, live)
			assert.Equal(t, tt.want, fields)
			assert.Equal(t, tt.want != nil, detail == "it is immutable")
		})
	}
}

// rejectedAs returns a rejection with a message for a field.
func rejectedAs(message, field string) error {
	err := apierrors.NewInvalid(schema.GroupKind{}, "a", nil)
	err.ErrStatus.Message = message
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Field: field, Message: "Forbidden: it is immutable"}}
	return err
}

func TestPersistingReasonsAreRecognized(t *testing.T) {
	refused := apierrors.NewInvalid(schema.GroupKind{}, "a", field.ErrorList{
		field.Forbidden(field.NewPath("spec").Index(1), "it is immutable"), field.TooMany(field.NewPath("spec"), 3, 2),
	})
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"ignores the position of an item", apierrors.NewInvalid(schema.GroupKind{}, "a", field.ErrorList{field.Forbidden(field.NewPath("spec").Index(0), "it is immutable")}), true},
		{"notices another reason", apierrors.NewInvalid(schema.GroupKind{}, "a", field.ErrorList{field.Forbidden(field.NewPath("spec").Index(1), "it must stay")}), false},
		{"notices an accepted update", nil, false},
		{"notices another error", errors.New("timeout"), false},
	} {
		t.Run("it "+tt.name, func(t *testing.T) { assert.Equal(t, tt.want, persists(refused, tt.err)) })
	}
}
