package failure

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestDetailQuotesTheCauses(t *testing.T) {
	for _, tt := range []struct{ name, message, want string }{
		{"omits an object", `Invalid value: {"a":{"b":": field"}}: field is immutable`, "field is immutable"},
		{"omits a text", `Invalid value: "field is immutable: x": must be short`, "must be short"},
		{"omits a list", `Invalid value: ["None"]: may not change once set`, "may not change once set"},
		{"omits a number", `Invalid value: 3: field is immutable`, "field is immutable"},
		{"omits null", `Invalid value: null: some rules were not checked`, "some rules were not checked"},
		{"accepts messages without the value", `Invalid value: whim must stay`, "whim must stay"},
		{"accepts values that are not JSON", `Invalid value: core.X{A:1}: field is immutable`, "core.X{A:1}: field is immutable"},
		{"omits the class", "Forbidden: may not be changed in an update.", "may not be changed in an update"},
		{"omits a diff", "Forbidden: spec is immutable after creation\n@@ -1 +1 @@\n-a\n+b", "spec is immutable after creation"},
		{"accepts a class without a text", "Required value", "Required value"},
		{"keeps unknown texts", "a: b: c", "a: b: c"},
		{"accepts an empty text", "", ""},
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

func TestSummaryJoinsTheCauses(t *testing.T) {
	assert.Equal(t, "x", Summary(errors.New("x")))
	assert.Equal(t, "a: b, c", Summary(invalid(
		metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "<nil>", Message: "Invalid value: c"},
		metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "a", Message: "Invalid value: b"},
	)))
}

func TestDeniedByNamesTheWebhookOrPolicy(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"names a webhook", `admission webhook "a.example.com" denied the request: no`, `admission webhook "a.example.com"`},
		{"names a policy", `deployments.apps "web" is forbidden: ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no`, "ValidatingAdmissionPolicy 'a'"},
		{"ignores a webhook that does not respond", `Internal error occurred: failed calling webhook "a.example.com": no`, ""},
		{"ignores missing permissions", `deployments.apps "web" is forbidden: User "a" cannot patch resource`, ""},
	} {
		t.Run("it "+tt.name, func(t *testing.T) { assert.Equal(t, tt.want, DeniedBy(errors.New(tt.text))) })
	}
}

func TestDeniedRequestsAreRecognized(t *testing.T) {
	byWebhook := apierrors.NewBadRequest(`admission webhook "a.example.com" denied the request: no`) // a webhook chooses its code
	for _, err := range []error{byWebhook, invalid(), apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("no"))} {
		assert.True(t, IsDenied(err), "%v", err)
	}
	for _, err := range []error{apierrors.NewBadRequest("no"), apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("no")), errors.New("reset")} {
		assert.False(t, IsDenied(err), "%v", err)
	}
}

func TestOnlyAnInvalidManifestIsBlamed(t *testing.T) {
	remedy := func(err error) string {
		failed, ok := errors.AsType[*Error](Wrap(nil, err))
		assert.True(t, ok)
		return failed.Remedy
	}
	assert.Contains(t, remedy(invalid()), "correct the release's manifest, which the API server rejects")
	denied := apierrors.NewInvalid(schema.GroupKind{Kind: "Widget"}, "a", nil)
	denied.ErrStatus.Message = `ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no`
	assert.Empty(t, remedy(denied), "a policy of the cluster rejects it")
	assert.Empty(t, remedy(apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("no"))))
}
