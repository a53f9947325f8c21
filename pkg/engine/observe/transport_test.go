package observe_test

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/test/env"
)

// line is the connection between a Watcher and a real API server. It counts bytes. A test can cut it and redirect it to another server.
type line struct {
	// arrived is the number of bytes in responses.
	arrived atomic.Int64

	mu       sync.Mutex
	to       http.RoundTripper
	host     string
	requests []request
	open     map[*body]struct{}
	// meddle changes or answers a request.
	meddle func(*http.Request) *http.Response
}

type request struct {
	path, query string
	list        bool
	initial     bool // requests the initial state
	code        int
}

// connect returns a line to a control plane and a client configuration for it.
func connect(t testing.TB, e *env.Env) (*line, *rest.Config) {
	t.Helper()
	l := &line{open: map[*body]struct{}{}}
	l.lead(t, e)
	return l, &rest.Config{Host: "http://cluster.test", Transport: l, UserAgent: testName(t)}
}

// lead redirects the line to another control plane.
func (l *line) lead(t testing.TB, e *env.Env) {
	t.Helper()
	to, err := rest.TransportFor(e.Config(testName(t)))
	require.NoError(t, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to, l.host = to, strings.TrimPrefix(e.Config("").Host, "https://")
}

func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	l.mu.Lock()
	to, meddle := l.to, l.meddle
	r.URL.Scheme, r.URL.Host = "https", strings.TrimSuffix(strings.TrimPrefix(l.host, "http://"), "/")
	n := len(l.requests)
	l.requests = append(l.requests, request{
		path: r.URL.Path, query: r.URL.RawQuery,
		list: r.URL.Query().Get("watch") == "", initial: r.URL.Query().Get("sendInitialEvents") == "true",
	})
	l.mu.Unlock()
	if meddle != nil {
		if answer := meddle(r); answer != nil {
			l.answered(n, answer.StatusCode)
			return answer, nil
		}
	}
	answer, err := to.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	l.answered(n, answer.StatusCode)
	b := &body{ReadCloser: answer.Body, line: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[b] = struct{}{}
	answer.Body = b
	return answer, nil
}

func (l *line) answered(n, code int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests[n].code = code
}

// asked returns the requests so far that meant accepts.
func (l *line) asked(meant func(request) bool) []request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.requests), func(r request) bool { return !meant(r) })
}

// all accepts every request.
func all(request) bool { return true }

// to accepts the requests to a resource.
func to(resource string) func(request) bool {
	return func(r request) bool { return strings.HasSuffix(r.path, "/"+resource) }
}

// watches returns the number of responses that are being read.
func (l *line) watches() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

// meddleWith sets the function that changes requests.
func (l *line) meddleWith(meddle func(*http.Request) *http.Response) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.meddle = meddle
}

// cut ends all responses that are being read, with the given error. io.EOF looks as if the server ended them.
func (l *line) cut(err error) {
	l.mu.Lock()
	open := make([]*body, 0, len(l.open))
	for b := range l.open {
		open = append(open, b)
	}
	l.mu.Unlock()
	for _, b := range open {
		b.cut.Store(&err)
		_ = b.ReadCloser.Close()
	}
}

type body struct {
	io.ReadCloser
	line *line
	cut  atomic.Pointer[error]
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.line.arrived.Add(int64(n))
	if cut := b.cut.Load(); cut != nil && err != nil {
		err = *cut
	}
	return n, err
}

func (b *body) Close() error {
	b.line.mu.Lock()
	delete(b.line.open, b)
	b.line.mu.Unlock()
	return b.ReadCloser.Close()
}

var errReset = errors.New("read tcp 127.0.0.1: connection reset by peer")
