package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cluster-version/cvo/test/e2e/registry/control"
)

const content = "some bytes of a blob"

func TestFaultsChangeTheAnswers(t *testing.T) {
	tests := []struct {
		name   string
		fault  control.Fault
		path   string
		status int
		body   string
		broken bool
	}{
		{name: "responds without a fault", fault: control.Fault{Kind: control.Down, Path: "^/other$"}, status: 200, body: content},
		{name: "breaks the connection", fault: control.Fault{Kind: control.Down}, broken: true},
		{name: "responds with a status", fault: control.Fault{Kind: control.Status, Status: 429, RetryAfter: "3"}, status: 429},
		{name: "truncates the body", fault: control.Fault{Kind: control.Truncated}, status: 200, body: content[:len(content)/2], broken: true},
		{name: "sends content that does not match the digest", fault: control.Fault{Kind: control.WrongDigest}, status: 200, body: "some bytes of a bloc"},
		{name: "responds slowly", fault: control.Fault{Kind: control.Slow, BytesPerSecond: 1000}, status: 200, body: content},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server, steering := serve(t, time.Now)
			inject(t, steering, test.fault)
			status, body, err := get(t, server)
			assert.Equal(t, test.broken, err != nil, "%v", err)
			assert.Equal(t, test.status, status)
			assert.Equal(t, test.body, body)
		})
	}
}

func TestSlowAnswersNeedTime(t *testing.T) {
	server, steering := serve(t, time.Now)
	inject(t, steering, control.Fault{Kind: control.Slow, BytesPerSecond: 100})
	began := time.Now()
	_, body, err := get(t, server)
	require.NoError(t, err)
	assert.Equal(t, content, body)
	assert.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
}

func TestFaultsEndAfterTimeOrCount(t *testing.T) {
	var now atomic.Int64
	server, steering := serve(t, func() time.Time { return time.Unix(now.Load(), 0) })
	status := func() int {
		code, _, err := get(t, server)
		require.NoError(t, err)
		return code
	}
	inject(t, steering, control.Fault{Kind: control.Status, Status: 503, For: 10 * time.Second})
	inject(t, steering, control.Fault{Kind: control.Status, Status: 500, Times: 1})
	assert.Equal(t, 500, status())
	assert.Equal(t, 503, status())
	now.Store(11)
	assert.Equal(t, 200, status())

	inject(t, steering, control.Fault{Kind: control.Status, Status: 500})
	assert.Equal(t, 500, status())
	request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, steering.URL+"/faults", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, 200, status())
}

func TestInvalidFaultsAreRejected(t *testing.T) {
	_, steering := serve(t, time.Now)
	for _, body := range []string{`{`, `{"kind":"unheard of"}`, `{"kind":"slow"}`, `{"kind":"status"}`, `{"kind":"down","path":"("}`} {
		response, err := http.Post(steering.URL+"/faults", "application/json", bytes.NewBufferString(body))
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, http.StatusBadRequest, response.StatusCode, body)
	}
}

func TestPasswordGuardsPlatformAndPushes(t *testing.T) {
	tests := []struct {
		name, method, path, password string
		want                         int
	}{
		{name: "requests credentials", method: "GET", path: "/v2/", want: 401},
		{name: "admits clients with the password", method: "GET", path: "/v2/", password: "secret", want: 200},
		{name: "requests credentials for platform", method: "GET", path: "/v2/platform/a/manifests/1", want: 401},
		{name: "rejects a wrong password", method: "GET", path: "/v2/platform/a/manifests/1", password: "wrong", want: 401},
		{name: "serves components without a password", method: "HEAD", path: "/v2/components/a/manifests/1", want: 200},
		{name: "rejects pushes of components without a password", method: "PUT", path: "/v2/components/a/manifests/1", want: 401},
		{name: "admits pushes with the password", method: "PUT", path: "/v2/components/a/manifests/1", password: "secret", want: 200},
	}
	handler := guarded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "user", "secret")
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			request := httptest.NewRequest(test.method, test.path, nil)
			if test.password != "" {
				request.SetBasicAuth("user", test.password)
			}
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, request)
			assert.Equal(t, test.want, answer.Code)
		})
	}
}

// serve serves content and the control of its faults.
func serve(t *testing.T, now func() time.Time) (server, steering *httptest.Server) {
	t.Helper()
	faults := &faulty{now: now, next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, content) })}
	server, steering = httptest.NewServer(faults), httptest.NewServer(faults.control())
	t.Cleanup(server.Close)
	t.Cleanup(steering.Close)
	return server, steering
}

func inject(t *testing.T, steering *httptest.Server, fault control.Fault) {
	t.Helper()
	body, err := json.Marshal(fault)
	require.NoError(t, err)
	response, err := http.Post(steering.URL+"/faults", "application/json", bytes.NewReader(body))
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
}

// get never reuses a connection, because a client may retry by itself if an old one breaks.
func get(t *testing.T, server *httptest.Server) (status int, body string, err error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(server.URL + "/v2/platform/a/blobs/sha256:1")
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	read, err := io.ReadAll(response.Body)
	return response.StatusCode, string(read), err
}
