package preview

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// TestFailed has the answers that the API server of these tests cannot be brought to give.
func TestFailed(t *testing.T) {
	things := schema.GroupResource{Group: "example.com", Resource: "things"}
	for _, tt := range []struct {
		name string
		err  error
		want Verdict
	}{
		{
			"it cannot be told what a webhook with side effects says",
			apierrors.NewBadRequest(`admission webhook "a.example.com" does not support dry run`), Unknown,
		},
		{"it is not told as refused when the server is overloaded", apierrors.NewTooManyRequests("later", 1), NotAsked},
		{"it is not told as refused when the server fails", apierrors.NewInternalError(errors.New("etcd is away")), NotAsked},
		{"it is not told as refused when there is no answer", errors.New("connection refused"), NotAsked},
		{"it is not told as refused when time is up", apierrors.NewTimeoutError("etcd", 1), NotAsked},
		{"it cannot be told when an extension API server is away", apply.ErrUnavailable, Unknown},
		{
			"it is not the release's fault that a user may not give rights",
			apierrors.NewForbidden(things, "a", errors.New(`user "u" is attempting to grant RBAC permissions not currently held`)), NotAsked,
		},
		{"it is refused for want of credentials no more than for want of rights", apierrors.NewUnauthorized("who are you"), NotAsked},
		{
			"it is refused by an admission plugin",
			apierrors.NewForbidden(things, "a", errors.New("exceeded quota: none")), Refuse,
		},
		{"it is refused when it is too large", apierrors.NewRequestEntityTooLargeError("3 MB"), Refuse},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := manifest.Parse("0000_10_a_b.yaml", []byte("apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}"), manifest.Limits{})
			require.NoError(t, err)
			r := &run{brought: broughtBy(nil)}
			var out result
			r.failed(&out, m[0], &apply.Error{Manifest: m[0], Err: tt.err})
			assert.Equal(t, tt.want, out.Verdict)
			assert.Equal(t, tt.want == Refuse, out.Remedy != "", out.Remedy)
			assert.Equal(t, metav1.StatusReasonForbidden == apierrors.ReasonForError(tt.err) && tt.want == NotAsked ||
				apierrors.IsUnauthorized(tt.err), out.resource != "")
		})
	}
}

func TestWithoutValues(t *testing.T) {
	m, err := manifest.Parse("0000_10_a_b.yaml", []byte("apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: b}\n"+
		"data: {encoded: aHVudGVyMg==, number: 47}\nstringData: {text: s3cret, longer: s3cret-and-more, empty: ''}"), manifest.Limits{})
	require.NoError(t, err)
	got := withoutValues(m[0], "s3cret-and-more, s3cret, aHVudGVyMg==, hunter2, 47, text")
	assert.Equal(t, "(hidden), (hidden), (hidden), (hidden), (hidden), text", got)
}
