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

	"github.com/cluster-version/cvo/pkg/observe"
)

// The tests of this file are about time: they answer requests by hand, and the clock is that of a synctest bubble. What
// real servers answer, the tests of the other files ask real servers.

// answers is a server that answers watches of a resource as the test tells it, and everything else with a watch that
// stays open.
type answers struct {
	mu sync.Mutex
	// watch answers for the resource "things"; nil: the watch stays open.
	watch func(*http.Request) answer
	// asked is when things were asked for, and how.
	asked []time.Time
	// open are the watches of other resources, by path.
	open map[string]*io.PipeWriter
}

// answer is what a server says.
type answer struct {
	// err: nothing.
	err error
	// code, default 200, header and body are of the HTTP answer.
	code   int
	header http.Header
	body   io.ReadCloser
}

var things = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/things") {
		a.mu.Lock()
		a.asked = append(a.asked, time.Now())
		watch := a.watch
		a.mu.Unlock()
		if watch != nil {
			return watch(r).to(r)
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
	return stream(body).to(r)
}

func (a answer) to(r *http.Request) (*http.Response, error) {
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

// since returns the requests for things after a time.
func (a *answers) since(t time.Time) []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, at := range a.asked {
		if at.After(t) {
			return a.asked[i:]
		}
	}
	return nil
}

// tell has a watch of another resource deliver an event.
func (a *answers) tell(t *testing.T, path, event string) {
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

// text is a body.
func text(s string) io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }

// stream answers with a watch.
func stream(body io.ReadCloser) answer {
	return answer{header: http.Header{"Content-Type": {"application/json;stream=watch"}}, body: body}
}

// closing answers with a watch that ends after some events, and lists nothing.
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

// or answers watches, and lists, in different ways.
func or(watch, list func(*http.Request) answer) func(*http.Request) answer {
	return func(r *http.Request) answer {
		if r.URL.Query().Get("watch") == "" {
			return list(r)
		}
		return watch(r)
	}
}

// byTurns answers one way, then the other.
func byTurns(a, b func(*http.Request) answer) func(*http.Request) answer {
	return func(r *http.Request) answer {
		a, b = b, a
		return b(r)
	}
}

// refusing answers with a status.
func refusing(code int, reason metav1.StatusReason) func(*http.Request) answer {
	return func(*http.Request) answer {
		return answer{
			code: code, header: http.Header{"Content-Type": {"application/json"}},
			body: text(fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)),
		}
	}
}

func unreachable(*http.Request) answer { return answer{err: errors.New("no route to host")} }

// nobody is where no server runs.
func nobody(*http.Request) answer {
	return answer{err: &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}}
}

// bubble runs a test on a Watcher whose server is a.
func bubble(t *testing.T, a *answers, log logr.Logger, test func(*testing.T, watching)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := start(t, &rest.Config{Host: "http://cluster.test", Transport: a}, owned(t), log)
		test(t, w)
		w.stop()
	})
}

func TestPace(t *testing.T) {
	tests := []struct {
		name  string
		watch func(*http.Request) answer
		// most requests in ten minutes
		most int
	}{
		{"backs off from a resource that is not served", refusing(404, "NotFound"), 30},
		{"backs off from what is forbidden", refusing(403, "Forbidden"), 30},
		{"backs off from an API service that is down", refusing(503, "ServiceUnavailable"), 30},
		{"backs off from internal errors", refusing(500, "InternalError"), 30},
		{"backs off from a server that is busy", refusing(429, "TooManyRequests"), 30},
		{"backs off from a server that is away", unreachable, 30},
		{"backs off from versions that are always too old", refusing(410, "Expired"), 30},
		{"backs off from watches that end at once", closing(), 30},
		{"backs off from watches that end after an object", closing(added), 30},
		{"backs off from watches that end after the initial state", closing(added, initialEnd), 30},
		{"backs off from watches that end after an empty initial state", closing(initialEnd), 30},
		{"backs off from watches that expire at once", closing(expired), 60},
		{"backs off from watches that expire after an object", closing(added, expired), 60},
		{"backs off from watches that expire after the initial state", closing(added, initialEnd, expired), 30},
		{"backs off from watches that fail", closing(broken), 60},
		{"backs off from watches that fail after the initial state", closing(initialEnd, broken), 30},
		{"backs off from watches that make no sense", closing(garbage), 60},
		{"backs off from watches that end at once where lists fail", or(closing(), refusing(500, "InternalError")), 60},
		{"backs off from watches that fail where lists do", or(closing(broken), refusing(404, "NotFound")), 60},
		{"backs off from servers that answer differently", byTurns(refusing(500, "InternalError"), refusing(403, "Forbidden")), 30},
		{"backs off from a server that is away by turns", byTurns(unreachable, refusing(404, "NotFound")), 30},
		{"backs off from servers of which one closes watches", byTurns(closing(), refusing(404, "NotFound")), 60},
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
				assert.GreaterOrEqual(t, len(asked), 15, "it goes on trying")

				a.answer(nil)
				time.Sleep(time.Minute)
				assert.True(t, w.Look(observe.Scope{Resource: things}, "", "a").Synced)
			})
		})
	}
}

// TestPaceResets is about watches that work again: what was before counts no more.
func TestPaceResets(t *testing.T) {
	for name, before := range map[string]func(*http.Request) answer{
		"forgets failures":           refusing(500, "InternalError"),
		"forgets watches that ended": closing(initialEnd),
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
				assert.InDelta(t, 10, len(a.since(begin)), 1, "a watch that has lived is opened again at once")

				a.answer(before)
				begin = time.Now()
				time.Sleep(time.Minute + 2*time.Second)
				assert.GreaterOrEqual(t, len(a.since(begin)), 2, "the first delays are short")
			})
		})
	}
}

func TestRetryAfter(t *testing.T) {
	tests := []struct {
		name, contentType, body string
		code                    int
	}{
		{"it waits as long as priority and fairness asks for", "text/plain", "Too many requests, please try again later.", 429},
		{"it waits as long as a busy server asks for", "application/json", `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,"details":{"retryAfterSeconds":7}}`, 429},
		{"it waits as long as a server that goes down asks for", "text/plain", "going down", 503},
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

// TestServed is about a resource that comes late.
func TestServed(t *testing.T) {
	const definitions, services = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/apiregistration.k8s.io/v1/apiservices"
	tests := []struct {
		name, path, object string
		code               int
		soon               bool
	}{
		{"looks again when its definition changes", definitions, "things.example.com", 404, true},
		{"does not look again when another definition changes", definitions, "others.example.com", 404, false},
		{"looks again when its API service changes", services, "v1.example.com", 503, true},
		{"looks again when its API service comes", services, "v1.example.com", 404, true},
		{"does not look again when another API service changes", services, "v2.example.com", 503, false},
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
				a.tell(t, tt.path, strings.ReplaceAll(added, `"a"`, `"`+tt.object+`"`))
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

// TestServedHerald is about the two watches that tell when a resource comes: they are there only as long as needed.
func TestServedHerald(t *testing.T) {
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
		assert.Equal(t, 0, heralds(), "nobody waits")
		w.Look(scope, "", "a")
		time.Sleep(time.Minute)
		assert.Equal(t, 2, heralds())
		a.answer(nil)
		time.Sleep(time.Minute)
		require.True(t, w.Look(scope, "", "a").Synced)
		assert.Equal(t, 0, heralds(), "it is served")
	})
}

// TestHeraldsStay is about these two watches while they have nothing to tell: they are not begun again and again.
func TestHeraldsStay(t *testing.T) {
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

// TestServerBack is about many scopes whose server was away for long: they do not wait for their next turn each.
func TestServerBack(t *testing.T) {
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

// TestStale is about what was known, when nothing new comes.
func TestStale(t *testing.T) {
	tests := []struct {
		name  string
		watch func(*http.Request) answer
	}{
		{"is nothing after two minutes without a server", unreachable},
		{"is nothing after two minutes in which no server runs", nobody},
		{"is nothing after two minutes of refusal", refusing(403, "Forbidden")},
		{"is nothing after two minutes of watches that are too old, or end too soon", func(r *http.Request) answer {
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
				assert.True(t, there(w.Look(scope, "", "a")), "it is being resumed")
				assert.Equal(t, changes, w.changes.Load())
				time.Sleep(2 * time.Minute)
				assert.Equal(t, observe.Look{}, w.Look(scope, "", "a"), "nobody knows what became of it")
				assert.Equal(t, changes+1, w.changes.Load())

				a.answer(nil)
				time.Sleep(time.Minute)
				assert.True(t, gone(w.Look(scope, "", "a")))
			})
		})
	}
}

// TestHangs is about servers that take a request and say nothing.
func TestHangs(t *testing.T) {
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
		{"tries again when the initial state does not come", silent},
		{"tries again when no answer comes", dead},
		{"tries again when no list comes", or(refusing(422, "Invalid"), dead)},
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

// TestLog is about ten minutes of trouble: what we say of it, and what the libraries below us say by themselves.
func TestLog(t *testing.T) {
	tests := []struct {
		name  string
		watch func(*http.Request) answer
		lines int
	}{
		{"tells once that a resource is not served, and once that it is", refusing(404, "NotFound"), 2},
		{"tells once that it may not watch, and once that it may", refusing(403, "Forbidden"), 2},
		{"leaves it to others that the server is away", unreachable, 0},
		{"leaves it to others that no server runs", nobody, 0},
		{"leaves it to others that the server is busy", refusing(429, "TooManyRequests"), 0},
		{"does not mind watches that end", closing(added, initialEnd), 0},
		{"does not mind watches that expire", closing(initialEnd, expired), 0},
		{"does not mind versions that are too old", refusing(410, "Expired"), 0},
		{"does not mind servers that cannot begin with the initial state", func(r *http.Request) answer {
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
