package apply_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/apply/request"
	"github.com/cluster-version/cvo/pkg/release"
)

func TestConnectRejectsABrokenConfig(t *testing.T) {
	_, err := request.Connect(&rest.Config{Host: "http://[::"}, http.DefaultClient)
	require.Error(t, err)
}

// TestResponsesContainOnlyMetadata applies a CRD of several hundred kilobytes. No response may contain it.
func TestResponsesContainOnlyMetadata(t *testing.T) {
	a, record := connect(t, owner)
	m := fromAPI(t, "config/v1/zz_generated.crd-manifests/0000_10_config-operator_01_infrastructures-Default.crd.yaml")
	must(t, a, m)
	must(t, a, m)
	gone := m.Object.DeepCopy()
	gone.SetAnnotations(map[string]string{api.DeleteAnnotation: "true"})
	dead := *m
	dead.Object = gone
	must(t, a, &dead)
	for _, r := range record.drain() {
		t.Logf("%s %s: sent %d, received %d of %s", r.method, r.path, r.sent, r.received, r.answerType)
		assert.True(t, strings.HasPrefix(r.accept, "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;"), r.accept)
		assert.Contains(t, r.answerType, "protobuf")
		assert.Less(t, r.received, int64(20_000))
		assert.Contains(t, r.query, "timeout=30s")
		if r.method == http.MethodPatch {
			assert.Greater(t, r.sent, int64(50_000))
			assert.Contains(t, r.query, "fieldManager="+api.FieldManager)
			assert.Contains(t, r.query, "force=true")
		}
	}
}

// fixed maps every kind to one resource, for tests without discovery.
type fixed kinds.Mapping

func (f fixed) Mapping(ctx context.Context, _ schema.GroupVersionKind) (kinds.Mapping, error) {
	return kinds.Mapping(f), ctx.Err()
}

func (f fixed) AnyVersion(ctx context.Context, gvk schema.GroupVersionKind) (kinds.Mapping, error) {
	return f.Mapping(ctx, gvk)
}

func (f fixed) Refresh(ctx context.Context) error { return ctx.Err() }

// answering returns an Applier whose server answers every request with the same response.
func answering(t *testing.T, code int, contentType, body string) *apply.Applier {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return to(t, server.URL, server.Client())
}

func to(t *testing.T, url string, client *http.Client) *apply.Applier {
	t.Helper()
	connection, err := request.Connect(&rest.Config{Host: url}, client)
	require.NoError(t, err)
	things := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
	return apply.New(connection, fixed{Resource: things}, owner)
}

// TestWholeObjectsInResponsesAreRead uses whole objects, which some aggregated API servers return because they support no other
// representation.
func TestWholeObjectsInResponsesAreRead(t *testing.T) {
	a := answering(t, 200, "application/json",
		`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a","uid":"u","generation":3,"resourceVersion":"9"},"spec":{"x":1}}`)
	assert.Equal(t, apply.Change{Action: apply.Applied, UID: "u", Generation: 3, ResourceVersion: "9"}, must(t, a, thing(t, "")))
}

func TestUnreadableResponsesAreErrors(t *testing.T) {
	for _, tt := range []struct{ name, contentType, body string }{
		{"rejects text that is not JSON", "application/json", "{"},
		{"rejects a field of the wrong type", "application/json", `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":5}}`},
		{"rejects an object without a name", "application/json", `{"apiVersion":"example.com/v1","kind":"Thing"}`},
		{"rejects another media type", "text/html", `<html>`},
	} {
		t.Run("it "+tt.name, func(t *testing.T) {
			_, err := answering(t, 200, tt.contentType, tt.body).Apply(t.Context(), thing(t, ""), release.Updating)
			var failed *failure.Error
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, api.ReasonPayloadFailed, failed.Reason)
			assert.ErrorContains(t, err, "reading the server's response")
		})
	}
}

// TestRequestsTimeOutWithoutAResponse uses a server that never responds.
func TestRequestsTimeOutWithoutAResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}
		began := time.Now()
		_, err := to(t, "http://silent.example", silent).Apply(t.Context(), thing(t, ""), release.Updating)
		var failed *failure.Error
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, api.ReasonClusterDown, failed.Reason)
		assert.Equal(t, request.Timeout, time.Since(began))
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
