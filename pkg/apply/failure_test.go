package apply_test

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestErrorStatusesHaveReasons(t *testing.T) {
	const other = api.ReasonPayloadFailed
	for _, tt := range []struct {
		status metav1.StatusReason
		code   int
		want   string
	}{
		{metav1.StatusReasonUnknown, 418, other},
		{metav1.StatusReasonUnknown, 500, api.ReasonClusterError},
		{metav1.StatusReasonUnauthorized, 401, api.ReasonClusterUnauthorized},
		{metav1.StatusReasonForbidden, 403, api.ReasonResourceForbidden},
		{metav1.StatusReasonNotFound, 404, api.ReasonResourceNotFound},
		{metav1.StatusReasonAlreadyExists, 409, api.ReasonResourceNotFound},
		{metav1.StatusReasonConflict, 409, api.ReasonResourceConflict},
		{metav1.StatusReasonGone, 410, other},
		{metav1.StatusReasonInvalid, 422, api.ReasonResourceInvalid},
		{metav1.StatusReasonServerTimeout, 504, api.ReasonClusterOverloaded},
		{metav1.StatusReasonStoreReadError, 500, api.ReasonClusterError},
		{metav1.StatusReasonTimeout, 504, api.ReasonClusterDown},
		{metav1.StatusReasonTooManyRequests, 429, api.ReasonClusterOverloaded},
		{metav1.StatusReasonBadRequest, 400, api.ReasonResourceInvalid},
		{metav1.StatusReasonMethodNotAllowed, 405, other},
		{metav1.StatusReasonNotAcceptable, 406, other},
		{metav1.StatusReasonRequestEntityTooLarge, 413, other},
		{metav1.StatusReasonUnsupportedMediaType, 415, other},
		{metav1.StatusReasonInternalError, 500, api.ReasonClusterError},
		{metav1.StatusReasonExpired, 410, other},
		{metav1.StatusReasonServiceUnavailable, 503, api.ReasonClusterDown},
	} {
		t.Run(string(tt.status)+http.StatusText(tt.code), func(t *testing.T) {
			body, err := json.Marshal(metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
				Reason: tt.status, Code: int32(tt.code), Message: "because",
			})
			require.NoError(t, err)
			_, err = answering(t, tt.code, "application/json", string(body)).Apply(t.Context(), thing(t, ""), release.Updating)
			var failed *failure.Error
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, tt.want, failed.Reason)
			assert.Equal(t, tt.want == other, failed.Cause == "")
			require.ErrorContains(t, err, "Thing.example.com a (0000_50_x_y.yaml): ")
			assert.ErrorContains(t, err, "because")
		})
	}
}

func TestErrorsWithoutAStatusHaveReasons(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	m := thing(t, "")
	for _, tt := range []struct {
		name string
		do   func() (apply.Change, error)
		want string
	}{
		{"reports a refused connection as ClusterDown", func() (apply.Change, error) {
			return to(t, closed.URL, closed.Client()).Apply(t.Context(), m, release.Updating)
		}, api.ReasonClusterDown},
		{"does not blame the cluster for a canceled request", func() (apply.Change, error) {
			ctx, cancel := withCancel(t)
			client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				cancel()
				<-r.Context().Done()
				return nil, r.Context().Err()
			})}
			return to(t, closed.URL, client).Apply(ctx, m, release.Updating)
		}, api.ReasonPayloadFailed},
		{"does not blame the cluster for an unsent request", func() (apply.Change, error) {
			return to(t, closed.URL, closed.Client()).Apply(canceled(t), m, release.Updating)
		}, api.ReasonPayloadFailed},
		{"treats a proxy's response like the server's", func() (apply.Change, error) {
			return answering(t, 503, "text/plain", "no backend").Apply(t.Context(), m, release.Updating)
		}, api.ReasonClusterDown},
		{"recognizes a type error", func() (apply.Change, error) {
			return answering(t, 500, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,
				"message":"failed to create typed patch object (/a; example.com/v1, Kind=Thing): .spec.x: expected numeric, got string"}`).
				Apply(t.Context(), m, release.Updating)
		}, api.ReasonResourceInvalid},
		{"does not blame the control plane for a field that another version lacks", func() (apply.Change, error) {
			return answering(t, 500, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,
				"message":".spec.x: field not declared in schema"}`).Apply(t.Context(), m, release.Updating)
		}, api.ReasonResourceInvalid},
		{"does not interpret a webhook's text", func() (apply.Change, error) {
			return answering(t, 403, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden",
				"message":"admission webhook \"a\" denied the request: .spec.x: field not declared in schema"}`).Apply(t.Context(), m, release.Updating)
		}, api.ReasonResourceForbidden},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			_, err := tt.do()
			var failed *failure.Error
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, tt.want, failed.Reason, "%v", err)
		})
	}
}

// TestEveryRequestReportsItsFailure uses a server that rejects the first request for each kind of manifest.
func TestEveryRequestReportsItsFailure(t *testing.T) {
	a := answering(t, 403, "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
	for _, annotations := range []string{
		"", `release.openshift.io/create-only: "true"`, `release.openshift.io/delete: "true"`,
	} {
		_, err := a.Apply(t.Context(), thing(t, annotations), release.Updating)
		var failed *failure.Error
		require.ErrorAs(t, err, &failed, annotations)
		assert.Equal(t, api.ReasonResourceForbidden, failed.Reason)
		assert.False(t, kinds.IsNoMatch(err))
	}
	_, err := a.Precreate(t.Context(), thing(t, ""))
	require.Error(t, err)
}

func TestRealTypeErrorsAreInvalid(t *testing.T) {
	a, _ := connect(t, owner)
	m := deployment(t, namespace(t), "a", 1)
	m.Object.Object["spec"].(map[string]any)["replicas"] = "many"
	_, err := a.Apply(t.Context(), m, release.Updating)
	var failed *failure.Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, api.ReasonResourceInvalid, failed.Reason, "%v", err)
	assert.Contains(t, failed.Remedy, "correct the release's manifest, which the API server rejects")
}

// TestUnsendableManifestsAreErrors uses manifests that cannot come from a file, but could result from a bug in this operator.
func TestUnsendableManifestsAreErrors(t *testing.T) {
	a := answering(t, 201, "application/json", `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"}}`)
	unnamed := thing(t, "")
	unnamed.Object.SetName("")
	once, always := thing(t, `release.openshift.io/create-only: "true"`), thing(t, "")
	once.Object.Object["spec"], always.Object.Object["spec"] = math.NaN(), math.NaN()
	operator := parse(t, "apiVersion: config.openshift.io/v1\nkind: ClusterOperator\nmetadata: {name: a}\nstatus: {relatedObjects: [{name: a}]}")
	related, _, _ := unstructured.NestedFieldNoCopy(operator.Object.Object, "status", "relatedObjects")
	related.([]any)[0].(map[string]any)["name"] = math.NaN()
	for _, m := range []*manifest.Manifest{unnamed, once, always, operator} {
		_, err := a.Apply(t.Context(), m, release.Updating)
		var failed *failure.Error
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, api.ReasonResourceInvalid, failed.Reason)
		assert.ErrorContains(t, err, "the manifest cannot be sent")
	}
}

func TestManifestErrorsAreRecognized(t *testing.T) {
	ns := namespace(t)
	a, _ := connect(t, owner)
	for text, want := range map[string]bool{
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: NS}\ndata: [a]":   true,
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: NS}\ndata: {a: '%'}": true,
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}":                             true,
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: NS-missing}":      false,
	} {
		_, err := a.Predict(t.Context(), parse(t, strings.ReplaceAll(text, "NS", ns)), release.Updating)
		require.Error(t, err)
		assert.Equal(t, want, failure.IsManifestError(err), err)
		_, err = a.Apply(t.Context(), parse(t, strings.ReplaceAll(text, "NS", ns)), release.Updating)
		failed, ok := errors.AsType[*failure.Error](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, want, failed.Reason == api.ReasonResourceInvalid, "the update and the preview agree: %v", err)
		assert.Equal(t, want, strings.Contains(failed.Remedy, "correct the release's manifest"), "%v", err)
	}
	assert.False(t, failure.IsManifestError(nil))
}
