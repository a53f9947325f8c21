package graph_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/pkg/oci/registry"
	updategraph "github.com/cluster-version/cvo/pkg/update/graph"
	"github.com/cluster-version/cvo/test/fixture"
)

func newService(t *testing.T) (*fixture.UpdateService, *updategraph.Client, updategraph.Query) {
	t.Helper()
	service := fixture.StartUpdateService(t, fixture.UpdateGraph(
		configv1.Release{Version: "4.1.0", Image: "r@0"}, configv1.Release{Version: "4.1.1", Image: "r@1", URL: "https://example.com"},
	))
	client := &updategraph.Client{HTTP: registry.New(registry.Options{Backoff: 1}).RetryingWebClient(), UserAgent: "ClusterVersionOperator/test"}
	return service, client, updategraph.Query{
		Service: service.URL() + "/graph?tenant=a&channel=none", Architecture: "amd64", Channel: "stable", ClusterID: "an-id", Version: "4.1.0",
	}
}

func TestAskSendsTheQueryAndParsesTheGraph(t *testing.T) {
	service, client, query := newService(t)
	answer, err := client.Ask(t.Context(), query, updategraph.Answer{})
	require.NoError(t, err)
	assert.Equal(t, []string{"4.1.1 r@1"}, available(answer.Updates))
	require.Len(t, service.Questions(), 1)
	question := service.Questions()[0]
	assert.Equal(t, "arch=amd64&channel=stable&id=an-id&tenant=a&version=4.1.0", question.Query.Encode())
	assert.Equal(t, "application/json", question.Header.Get("Accept"))
	assert.Equal(t, "ClusterVersionOperator/test", question.Header.Get("User-Agent"))
	assert.Empty(t, question.Header.Get("If-None-Match"))

	again, err := client.Ask(t.Context(), query, answer)
	require.NoError(t, err)
	assert.Equal(t, answer, again)
	assert.True(t, service.Questions()[1].Known, "a known response is not sent again")

	service.Set(t, fixture.UpdateGraph(configv1.Release{Version: "4.1.0", Image: "r@0"}))
	answer, err = client.Ask(t.Context(), query, again)
	require.NoError(t, err)
	assert.Empty(t, answer.Available)

	query.ClusterID = ""
	_, err = client.Ask(t.Context(), query, answer)
	require.NoError(t, err)
	question = service.Questions()[3]
	assert.False(t, question.Query.Has("id"))
	assert.Empty(t, question.Header.Get("If-None-Match"), "a different query has a different response")
}

func TestAskRetriesTransientFailures(t *testing.T) {
	service, client, query := newService(t)
	service.AddFault(fixture.Fault{Times: 2, Status: http.StatusServiceUnavailable, RetryAfter: "0"})
	answer, err := client.Ask(t.Context(), query, updategraph.Answer{})
	require.NoError(t, err)
	assert.Len(t, answer.Available, 1)
}

//threat:does-answer-fails
//threat:request-leaks
func TestAskReportsFailuresByReason(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for _, tt := range []struct {
		name         string
		fault        fixture.Fault
		text         string
		service      string
		reason, want string
	}{
		{name: "a rejection", fault: fixture.Fault{Status: 404}, reason: "ResponseFailed", want: "unexpected HTTP status: 404 Not Found"},
		{name: "a permanent failure", fault: fixture.Fault{Status: 500}, reason: "ResponseFailed", want: "unexpected HTTP status: 500 Internal Server Error"},
		{name: "a service that requests a long wait", fault: fixture.Fault{Status: 429, RetryAfter: "3600"}, reason: "ResponseFailed", want: "unexpected HTTP status: 429 Too Many Requests"},
		{name: "an unrequested 304", fault: fixture.Fault{Status: 304}, reason: "ResponseFailed", want: "unexpected HTTP status: 304 Not Modified"},
		{name: "an incomplete response", fault: fixture.Fault{Truncate: 10}, reason: "ResponseFailed", want: "unexpected EOF"},
		{name: "a response that is not a graph", text: "<html>", reason: "ResponseInvalid", want: "invalid character '<'"},
		{name: "no server", service: closed.URL, reason: "RemoteFailed", want: `Get "` + closed.URL + `": dial tcp ` + strings.TrimPrefix(closed.URL, "http://") + ": connect: connection refused"},
		{name: "a URL with another scheme", service: "ftp://example.com", reason: "InvalidRequest", want: `parse "ftp://example.com": the scheme must be http or https`},
		{name: "a URL without a host", service: "https:///graph", reason: "InvalidRequest", want: `parse "https:///graph": the host is missing`},
	} {
		t.Run("it reports "+tt.name, func(t *testing.T) {
			service, client, query := newService(t)
			if tt.fault.Status != 0 || tt.fault.Truncate != 0 {
				service.AddFault(tt.fault)
			}
			if tt.text != "" {
				service.SetText([]byte(tt.text))
			}
			if tt.service != "" {
				query.Service = tt.service
			}
			_, err := client.Ask(t.Context(), query, updategraph.Answer{})
			refused := &updategraph.Error{}
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, tt.reason, refused.Reason)
			require.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "tenant", "messages omit the query")
		})
	}
}

//threat:does-answer-fails
func TestAskTimesOutWithoutAResponse(t *testing.T) {
	service, client, query := newService(t)
	service.AddFault(fixture.Fault{Delay: time.Hour})
	client.Timeout = 50 * time.Millisecond
	_, err := client.Ask(t.Context(), query, updategraph.Answer{})
	refused := &updategraph.Error{}
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, "RemoteFailed", refused.Reason)
	require.EqualError(t, err, `Get "`+service.URL()+`/graph": no answer within 50ms`)

	client.Timeout = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = client.Ask(ctx, query, updategraph.Answer{})
	require.ErrorIs(t, err, context.Canceled)
}

//threat:request-leaks
func TestAskRejectsRedirectsFromHTTPSToHTTP(t *testing.T) {
	plain, client, query := newService(t)
	secure := httptest.NewTLSServer(http.RedirectHandler(plain.URL(), http.StatusFound))
	defer secure.Close()
	client.HTTP, query.Service = secure.Client(), secure.URL
	_, err := client.Ask(t.Context(), query, updategraph.Answer{})
	require.ErrorContains(t, err, "refusing a redirect from https to http")
	assert.Empty(t, plain.Questions())
}
