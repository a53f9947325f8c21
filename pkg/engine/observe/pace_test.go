package observe_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/cluster-version/cvo/pkg/engine/observe"
)

// The tests in this file check times. Fake servers answer their requests, and they use the clock of a synctest bubble. The tests in the
// other files use real servers.

// answers is a server that answers watches of one resource with the test's function. All other watches stay open without events.
type answers struct {
	mu sync.Mutex
	// watch answers requests for the resource "things"; with nil, the watch stays open.
	watch func(*http.Request) answer
	// requests contains the times of the requests for things.
	requests []time.Time
	// open contains the watches of other resources, by path.
	open map[string]*io.PipeWriter
}

// answer is the response of a server.
type answer struct {
	// err is a transport error, without a response.
	err error
	// code (200 by default), header and body are the parts of the HTTP response.
	code   int
	header http.Header
	body   io.ReadCloser
}

var things = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/things") {
		a.mu.Lock()
		a.requests = append(a.requests, time.Now())
		watch := a.watch
		a.mu.Unlock()
		if watch != nil {
			return watch(r).respond(r)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	body, in := io.Pipe()
	if a.open == nil {
		a.open = map[string]*io.PipeWriter{}
	}
	a.open[r.URL.Path] = in
	go func() {
		_, _ = io.WriteString(in, initialEnd)
		<-r.Context().Done()
		_ = in.CloseWithError(r.Context().Err())
	}()
	return stream(body).respond(r)
}

func (a answer) respond(r *http.Request) (*http.Response, error) {
	if a.err != nil {
		return nil, a.err
	}
	return &http.Response{StatusCode: cmp.Or(a.code, http.StatusOK), Request: r, Header: a.header, Body: a.body}, nil
}

func (a *answers) answer(watch func(*http.Request) answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watch = watch
}

// since returns the requests for things after the given time.
func (a *answers) since(t time.Time) []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, at := range a.requests {
		if at.After(t) {
			return a.requests[i:]
		}
	}
	return nil
}

// send sends an event on the watch of another resource.
func (a *answers) send(t *testing.T, path, event string) {
	t.Helper()
	a.mu.Lock()
	in := a.open[path]
	a.mu.Unlock()
	require.NotNil(t, in, path)
	_, err := io.WriteString(in, event)
	require.NoError(t, err)
}

const (
	initialEnd = `{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}}`
	added      = `{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","uid":"u","generation":1,"resourceVersion":"4"}}}`
	expired    = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`
	broken     = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"InternalError","code":500}}`
	garbage    = `{"type":"ADDED","object":{"kind":"Prank"`
)

// text returns a response body.
func text(s string) io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }

// stream returns a response with a watch.
func stream(body io.ReadCloser) answer {
	return answer{header: http.Header{"Content-Type": {"application/json;stream=watch"}}, body: body}
}

// closing answers watches with some events and then ends them. It answers lists with an error.
func closing(events ...string) func(*http.Request) answer {
	return func(r *http.Request) answer {
		if r.URL.Query().Get("watch") != "" {
			return stream(text(strings.Join(events, "")))
		}
		return answer{
			header: http.Header{"Content-Type": {"application/json"}},
			body:   text(`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},"items":[]}`),
		}
	}
}

// or answers watches and lists with different functions.
func or(watch, list func(*http.Request) answer) func(*http.Request) answer {
	return func(r *http.Request) answer {
		if r.URL.Query().Get("watch") == "" {
			return list(r)
		}
		return watch(r)
	}
}

// byTurns alternates between two functions.
func byTurns(a, b func(*http.Request) answer) func(*http.Request) answer {
	return func(r *http.Request) answer {
		a, b = b, a
		return b(r)
	}
}

// refusing answers with an error status.
func refusing(code int, reason metav1.StatusReason) func(*http.Request) answer {
	return func(*http.Request) answer {
		return answer{
			code: code, header: http.Header{"Content-Type": {"application/json"}},
			body: text(fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)),
		}
	}
}

func unreachable(*http.Request) answer { return answer{err: errors.New("no route to host")} }

// noServer refuses the connection, as if no server is running.
func noServer(*http.Request) answer {
	return answer{err: &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}}
}

// bubble runs a test with a Watcher of the server a.
func bubble(t *testing.T, a *answers, log logr.Logger, test func(*testing.T, watching)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &rest.Config{Host: "http://cluster.test", Transport: a}, owned(t), log)
		test(t, w)
		w.stop()
	})
}

func TestFailingWatchesBackOff(t *testing.T) {
	// In ten minutes, the delays double from 200 ms to 30 s, and jitter makes each up to a fifth shorter.
	const most = 34
	tests := []struct {
		name  string
		watch func(*http.Request) answer
		// most is the maximum number of requests in ten minutes.
		most int
	}{
		{"backs off from a resource that is not served", refusing(404, "NotFound"), most},
		{"backs off from a forbidden resource", refusing(403, "Forbidden"), most},
		{"backs off from an API service that is down", refusing(503, "ServiceUnavailable"), most},
		{"backs off from internal errors", refusing(500, "InternalError"), most},
		{"backs off from a busy server", refusing(429, "TooManyRequests"), most},
		{"backs off from an unreachable server", unreachable, most},
		{"backs off if every version is too old", refusing(410, "Expired"), most},
		{"backs off from watches that end immediately", closing(), most},
		{"backs off from watches that end after an object", closing(added), most},
		{"backs off from watches that end after the initial state", closing(added, initialEnd), most},
		{"backs off from watches that end after an empty initial state", closing(initialEnd), most},
		{"backs off from watches that expire immediately", closing(expired), 2 * most},
		{"backs off from watches that expire after an object", closing(added, expired), 2 * most},
		{"backs off from watches that expire after the initial state", closing(added, initialEnd, expired), most},
		{"backs off from watches that fail", closing(broken), 2 * most},
		{"backs off from watches that fail after the initial state", closing(initialEnd, broken), most},
		{"backs off from watches that send garbage", closing(garbage), 2 * most},
		{"backs off from watches that end immediately if lists fail", or(closing(), refusing(500, "InternalError")), 2 * most},
		{"backs off if watches and lists fail", or(closing(broken), refusing(404, "NotFound")), 2 * most},
		{"backs off from servers with different errors", byTurns(refusing(500, "InternalError"), refusing(403, "Forbidden")), most},
		{"backs off from a server that is unreachable every other time", byTurns(unreachable, refusing(404, "NotFound")), most},
		{"backs off if one of two servers closes watches", byTurns(closing(), refusing(404, "NotFound")), 2 * most},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := &answers{watch: tt.watch}
			bubble(t, a, logr.Discard(), func(t *testing.T, w watching) {
				begin := time.Now()
				w.Look(observe.Scope{Resource: things}, "", "a")
				time.Sleep(10 * time.Minute)
				asked := a.since(begin.Add(-1))
				assert.LessOrEqual(t, len(asked), tt.most)
				assert.GreaterOrEqual(t, len(asked), 15, "the stream keeps retrying")

				a.answer(nil)
				time.Sleep(time.Minute)
				assert.True(t, w.Look(observe.Scope{Resource: things}, "", "a").Synced)
			})
		})
	}
}

// TestOnlyResourcesThatAreNotServedAreUnserved checks that neither a server nor an extension API server that is down makes a resource
// unserved.
func TestOnlyResourcesThatAreNotServedAreUnserved(t *testing.T) {
	a := &answers{}
	bubble(t, a, logr.Discard(), func(t *testing.T, w watching) {
		missing := refusing(404, "NotFound")
		look := func() observe.Look { return w.Look(observe.Scope{Resource: things}, "", "a") }
		for _, watch := range []func(*http.Request) answer{refusing(503, "ServiceUnavailable"), noServer, refusing(403, "Forbidden")} {
			a.answer(missing)
			look()
			changes := w.changes.Load()
			time.Sleep(time.Minute)
			assert.Equal(t, observe.Look{Unserved: true}, look())
			assert.Equal(t, changes+1, w.changes.Load())
			a.answer(watch)
			time.Sleep(time.Minute)
			assert.Equal(t, observe.Look{}, look())
		}
		a.answer(closing(added, initialEnd))
		time.Sleep(time.Minute)
		assert.True(t, there(look()))
		assert.False(t, look().Unserved)
		a.answer(missing)
		time.Sleep(time.Minute)
		assert.Equal(t, observe.Look{Unserved: true}, look())
	})
}

// TestBackOffEndsWithSuccess covers watches that work again. Earlier failures no longer count.
func TestBackOffEndsWithSuccess(t *testing.T) {
	for name, before := range map[string]func(*http.Request) answer{
		"resets the delay after failures":   refusing(500, "InternalError"),
		"resets the delay after early ends": closing(initialEnd),
	} {
		t.Run(name, func(t *testing.T) {
			a := &answers{watch: before}
			bubble(t, a, logr.Discard(), func(t *testing.T, w watching) {
				w.Look(observe.Scope{Resource: things}, "", "a")
				time.Sleep(5 * time.Minute)
				a.answer(func(r *http.Request) answer {
					body, in := io.Pipe()
					go func() {
						_, _ = io.WriteString(in, initialEnd)
						select {
						case <-time.After(time.Minute):
						case <-r.Context().Done():
						}
						_ = in.Close()
					}()
					return stream(body)
				})
				time.Sleep(50 * time.Second)
				require.True(t, w.Look(observe.Scope{Resource: things}, "", "a").Synced)

				begin := time.Now()
				time.Sleep(10 * time.Minute)
				assert.InDelta(t, 10, len(a.since(begin)), 1, "a long watch is reopened immediately")

				a.answer(before)
				begin = time.Now()
				time.Sleep(time.Minute + 2*time.Second)
				assert.GreaterOrEqual(t, len(a.since(begin)), 2, "the first delays are short")
			})
		})
	}
}

func TestRetryAfterIsFollowed(t *testing.T) {
	tests := []struct {
		name, contentType, body string
		code                    int
	}{
		{"it follows Retry-After of priority and fairness", "text/plain", "Too many requests, please try again later.", 429},
		{"it follows Retry-After of a busy server", "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,"details":{"retryAfterSeconds":7}}`, 429},
		{"it follows Retry-After of a stopping server", "text/plain", "going down", 503},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := &answers{watch: func(*http.Request) answer {
				return answer{
					code: tt.code, body: text(tt.body),
					header: http.Header{"Content-Type": {tt.contentType}, "Retry-After": {"7"}},
				}
			}}
			bubble(t, a, logr.Discard(), func(t *testing.T, w watching) {
				begin := time.Now()
				w.Look(observe.Scope{Resource: things}, "", "a")
				time.Sleep(15 * time.Minute)
				asked := a.since(begin.Add(-1))
				require.GreaterOrEqual(t, len(asked), 15)
				for i := range asked[1:] {
					assert.GreaterOrEqual(t, asked[i+1].Sub(asked[i]), 7*time.Second)
				}
			})
		})
	}
}

// TestLateServedResourceIsWatched covers a resource that becomes available late.
func TestLateServedResourceIsWatched(t *testing.T) {
	const definitions, services = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/apiregistration.k8s.io/v1/apiservices"
	tests := []struct {
		name, path, object string
		code               int
		soon               bool
	}{
		{"retries when its CRD changes", definitions, "things.example.com", 404, true},
		{"does not retry when another CRD changes", definitions, "others.example.com", 404, false},
		{"retries when its API service changes", services, "v1.example.com", 503, true},
		{"retries when its API service appears", services, "v1.example.com", 404, true},
		{"does not retry when another API service changes", services, "v2.example.com", 503, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := &answers{watch: refusing(tt.code, "")}
			bubble(t, a, logr.Discard(), func(t *testing.T, w watching) {
				scope := observe.Scope{Resource: things}
				w.Look(scope, "", "a")
				time.Sleep(5 * time.Minute)
				last := a.since(time.Now().Add(-time.Minute))
				time.Sleep(time.Until(last[len(last)-1].Add(time.Minute - 5*time.Second)))
				before := time.Now()
				a.answer(nil)
				a.send(t, tt.path, strings.ReplaceAll(added, `"a"`, `"`+tt.object+`"`))
				time.Sleep(time.Second)
				if tt.soon {
					assert.True(t, w.Look(scope, "", "a").Synced)
					assert.Len(t, a.since(before.Add(-1)), 1)
				}
				time.Sleep(40 * time.Second)
				assert.True(t, w.Look(scope, "", "a").Synced)
			})
		})
	}
}

// TestHeraldsRunOnlyIfNeeded checks that the watches for new resources run only while a scope waits.
func TestHeraldsRunOnlyIfNeeded(t *testing.T) {
	a := &answers{watch: refusing(404, "NotFound")}
	bubble(t, a, logr.Discard(), func(t *testing.T, w watching) {
		scope := observe.Scope{Resource: things}
		heralds := func() int {
			a.mu.Lock()
			defer a.mu.Unlock()
			n := 0
			for path, in := range a.open {
				if _, err := in.Write(nil); err == nil && !strings.HasSuffix(path, "/things") {
					n++
				}
			}
			return n
		}
		w.Look(scope, "", "a")
		time.Sleep(time.Minute)
		assert.Equal(t, 2, heralds())
		w.Retain(func(observe.Scope) bool { return false })
		time.Sleep(time.Minute)
		assert.Equal(t, 0, heralds(), "no scope waits")
		w.Look(scope, "", "a")
		time.Sleep(time.Minute)
		assert.Equal(t, 2, heralds())
		a.answer(nil)
		time.Sleep(time.Minute)
		require.True(t, w.Look(scope, "", "a").Synced)
		assert.Equal(t, 0, heralds(), "the resource is served")
	})
}

// TestHeraldsKeepRunning checks that the watches for new resources are not restarted while nothing changes.
func TestHeraldsKeepRunning(t *testing.T) {
	a := &answers{watch: refusing(404, "NotFound")}
	bubble(t, a, logr.Discard(), func(t *testing.T, w watching) {
		heralds := func() map[string]*io.PipeWriter {
			a.mu.Lock()
			defer a.mu.Unlock()
			return maps.Clone(a.open)
		}
		w.Look(observe.Scope{Resource: things}, "", "a")
		time.Sleep(time.Minute)
		before := heralds()
		require.Len(t, before, 2)
		time.Sleep(10 * time.Minute)
		for path, in := range heralds() {
			assert.Same(t, before[path], in, path)
		}
	})
}

// TestScopesResumeQuicklyAfterAnOutage covers many scopes after a long outage of the server. They must not all wait for their next attempt.
func TestScopesResumeQuicklyAfterAnOutage(t *testing.T) {
	a := &answers{watch: unreachable}
	bubble(t, a, logr.Discard(), func(t *testing.T, w watching) {
		scope := func(i int) observe.Scope { return observe.Scope{Resource: things, Name: fmt.Sprint("n", i)} }
		for i := range 50 {
			w.Look(scope(i), "", "")
		}
		time.Sleep(10 * time.Minute)
		back := time.Now()
		a.answer(nil)
		for len(a.since(back)) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		for i := range 50 {
			assert.True(t, w.Look(scope(i), "", "").Synced, i)
		}
		assert.Len(t, a.since(back), 50)
	})
}

// TestStatesBecomeStale covers known states while no new ones arrive.
func TestStatesBecomeStale(t *testing.T) {
	tests := []struct {
		name  string
		watch func(*http.Request) answer
	}{
		{"is stale after two minutes without a server", unreachable},
		{"is stale after two minutes of refused connections", noServer},
		{"is stale after two minutes of rejections", refusing(403, "Forbidden")},
		{"is stale after two minutes without a response", func(r *http.Request) answer {
			<-r.Context().Done()
			return answer{err: r.Context().Err()}
		}},
		{"is stale after two minutes if the server requests a longer wait", func(*http.Request) answer {
			return answer{code: 429, body: text("later"), header: http.Header{"Content-Type": {"text/plain"}, "Retry-After": {"86400"}}}
		}},
		{"is stale after two minutes of expired or short watches", func(r *http.Request) answer {
			if r.URL.Query().Get("watch") == "" {
				return refusing(500, "InternalError")(r)
			}
			if r.URL.Query().Get("sendInitialEvents") == "" {
				return refusing(410, "Expired")(r)
			}
			return closing(added)(r)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := &answers{}
			bubble(t, a, logr.Discard(), func(t *testing.T, w watching) {
				open := make(chan *io.PipeWriter, 1)
				a.answer(func(*http.Request) answer {
					body, in := io.Pipe()
					go func() { _, _ = io.WriteString(in, added+initialEnd) }()
					open <- in
					return stream(body)
				})
				scope := observe.Scope{Resource: things}
				w.Look(scope, "", "a")
				time.Sleep(10 * time.Minute)
				require.True(t, there(w.Look(scope, "", "a")))
				changes := w.changes.Load()

				a.answer(tt.watch)
				require.NoError(t, (<-open).Close())
				time.Sleep(time.Minute)
				assert.True(t, there(w.Look(scope, "", "a")), "the watch is resuming")
				assert.Equal(t, changes, w.changes.Load())
				time.Sleep(2 * time.Minute)
				assert.Equal(t, observe.Look{}, w.Look(scope, "", "a"), "its state is unknown")
				assert.Equal(t, changes+1, w.changes.Load())

				a.answer(nil)
				time.Sleep(3 * time.Minute) // an attempt that began before may take two
				assert.True(t, gone(w.Look(scope, "", "a")))
			})
		})
	}
}

// TestSilentServersAreRetried covers servers that accept a request but never respond.
func TestSilentServersAreRetried(t *testing.T) {
	silent := func(r *http.Request) answer {
		body, in := io.Pipe()
		go func() {
			<-r.Context().Done()
			_ = in.CloseWithError(r.Context().Err())
		}()
		return stream(body)
	}
	dead := func(r *http.Request) answer {
		<-r.Context().Done()
		return answer{err: r.Context().Err()}
	}
	tests := []struct {
		name  string
		watch func(*http.Request) answer
	}{
		{"retries when the initial state does not arrive", silent},
		{"retries when no response arrives", dead},
		{"retries when no list arrives", or(refusing(422, "Invalid"), dead)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := &answers{watch: tt.watch}
			bubble(t, a, logr.Discard(), func(t *testing.T, w watching) {
				scope := observe.Scope{Resource: things}
				w.Look(scope, "", "a")
				time.Sleep(time.Minute)
				a.answer(nil)
				time.Sleep(5 * time.Minute)
				assert.True(t, w.Look(scope, "", "a").Synced)
			})
		})
	}
}

// TestTroubleIsLoggedBriefly covers the log during ten minutes of trouble, including the lines of the libraries.
func TestTroubleIsLoggedBriefly(t *testing.T) {
	tests := []struct {
		name  string
		watch func(*http.Request) answer
		lines int
	}{
		{"logs once when a resource is not served and once when it is again", refusing(404, "NotFound"), 2},
		{"logs once when watching is forbidden and once when it is allowed again", refusing(403, "Forbidden"), 2},
		{"does not log an unreachable server", unreachable, 0},
		{"does not log a refused connection", noServer, 0},
		{"does not log a busy server", refusing(429, "TooManyRequests"), 0},
		{"logs nothing when a watch ends", closing(added, initialEnd), 0},
		{"logs nothing when a watch expires", closing(initialEnd, expired), 0},
		{"logs nothing for expired versions", refusing(410, "Expired"), 0},
		{"logs nothing if a server cannot stream the initial state", func(r *http.Request) answer {
			if r.URL.Query().Get("sendInitialEvents") != "" {
				return refusing(422, "Invalid")(r)
			}
			return closing(added)(r)
		}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var mu sync.Mutex
			var lines []string
			log := funcr.New(func(_, line string) {
				mu.Lock()
				defer mu.Unlock()
				lines = append(lines, line)
			}, funcr.Options{})
			klog.SetLogger(log)
			defer klog.ClearLogger()
			a := &answers{watch: tt.watch}
			bubble(t, a, log, func(_ *testing.T, w watching) {
				w.Look(observe.Scope{Resource: things}, "", "a")
				time.Sleep(10 * time.Minute)
				a.answer(nil)
				time.Sleep(10 * time.Minute)
			})
			assert.Len(t, lines, tt.lines, "%q", lines)
		})
	}
}
