package preview

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/engine/preview/content"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// TestFailuresAreClassified covers responses that the API server of these tests never sends.
func TestFailuresAreClassified(t *testing.T) {
	things := schema.GroupResource{Group: "example.com", Resource: "things"}
	for _, tt := range []struct {
		name string
		err  error
		want Verdict
	}{
		{
			"a webhook with side effects makes the verdict unknown",
			apierrors.NewBadRequest(`admission webhook "a.example.com" does not support dry run`), Unknown,
		},
		{"an overloaded server does not reject the object", apierrors.NewTooManyRequests("later", 1), NotAsked},
		{"a failing server does not reject the object", apierrors.NewInternalError(errors.New("etcd is away")), NotAsked},
		{"a missing response does not reject the object", errors.New("connection refused"), NotAsked},
		{"a timeout does not reject the object", apierrors.NewTimeoutError("etcd", 1), NotAsked},
		{"an extension API server that is down makes the verdict unknown", kinds.ErrUnavailable, Unknown},
		{
			"missing escalation rights do not reject the object",
			apierrors.NewForbidden(things, "a", errors.New(`user "u" is attempting to grant RBAC permissions not currently held`)), NotAsked,
		},
		{"missing credentials do not reject the object", apierrors.NewUnauthorized("who are you"), NotAsked},
		{
			"an admission plugin rejects the object",
			apierrors.NewForbidden(things, "a", errors.New("exceeded quota: none")), Refuse,
		},
		{
			"a conversion that fails rejects the object",
			&apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: ".spec.a: field not declared in schema"}}, Refuse,
		},
		{"the size limit rejects the object", apierrors.NewRequestEntityTooLargeError("3 MB"), Refuse},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := manifest.Parse("0000_10_a_b.yaml", []byte("apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}"), manifest.Limits{})
			require.NoError(t, err)
			r := &run{content: content.Of(nil)}
			var out result
			r.failed(&out, m[0], &failure.Error{Manifest: m[0], Err: tt.err})
			assert.Equal(t, tt.want, out.Verdict)
			assert.Equal(t, tt.want == Refuse, out.Remedy != "", out.Remedy)
			assert.Equal(t, metav1.StatusReasonForbidden == apierrors.ReasonForError(tt.err) && tt.want == NotAsked ||
				apierrors.IsUnauthorized(tt.err), out.resource != "")
		})
	}
}

//threat:secrets-appear-status
func TestValuesAreRemovedFromErrors(t *testing.T) {
	m, err := manifest.Parse("0000_10_a_b.yaml", []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: b}\n"+
		"data: {encoded: aHVudGVyMg==, number: 47}\nstringData: {text: s3cret, longer: s3cret-and-more, empty: ''}"), manifest.Limits{})
	require.NoError(t, err)
	got := withoutValues(m[0], "s3cret-and-more, s3cret, aHVudGVyMg==, hunter2, 47, text")
	assert.Equal(t, "(hidden), (hidden), (hidden), (hidden), (hidden), text", got)
}
