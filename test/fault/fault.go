// Package fault makes a client's connection to an API server unreliable. It wraps an http.RoundTripper and simulates random faults from a
// seed. It responds with errors of an overloaded or broken server, loses connections before or after the server receives the request,
// truncates responses, delays them, and ends watches early. The clients decide how to handle the faults.
package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind is a kind of fault.
type Kind string

const (
	// InternalError responds with 500 without reaching the server.
	InternalError Kind = "internal error"
	// Conflict responds with 409, as if another client wrote at the same moment, without reaching the server.
	Conflict Kind = "conflict"
	// TooManyRequests responds with 429 and Retry-After without reaching the server.
	TooManyRequests Kind = "too many requests"
	// LostRequest resets the connection before the server receives the request.
	LostRequest Kind = "lost request"
	// LostAnswer resets the connection after the server has processed the request and before its response arrives.
	LostAnswer Kind = "lost answer"
	// CutAnswer truncates the response after the server has processed the request.
	CutAnswer Kind = "cut answer"
	// Delay delays the response.
	Delay Kind = "delay"
	// ClosedWatch ends a watch after a while, without an error.
	ClosedWatch Kind = "closed watch"
)

// Kinds returns all kinds in the order in which they are drawn.
func Kinds() []Kind {
	return []Kind{InternalError, Conflict, TooManyRequests, LostRequest, LostAnswer, CutAnswer, Delay, ClosedWatch}
}

// Options are the rates of faults. The zero value causes none.
type Options struct {
	// Seed determines all random choices. Parallel requests share it, so their faults depend on their order.
	Seed uint64
	// Rates are the shares of requests, from 0 to 1, that get each kind of fault. A request gets at most one. ClosedWatch applies only to
	// watches. Other than that, watches only get Delay and the responses of an overloaded server.
	Rates map[Kind]float64
	// RetryAfter is sent with a 429 in whole seconds; default 1 s. If it is negative, the header is 0.
	RetryAfter time.Duration
	// MaxDelay bounds Delay; default 100 ms.
	MaxDelay time.Duration
	// MaxWatch bounds the time until a watch is closed; default 1 s.
	MaxWatch time.Duration
	// Spare, if set, selects requests without faults.
	Spare func(*http.Request) bool
}

// Random returns options with random rates from a seed. Together they affect at most the given share of all requests.
func Random(seed uint64, share float64) Options {
	r := rand.New(rand.NewPCG(seed, 1))
	weights, sum := map[Kind]float64{}, 0.0
	for _, kind := range Kinds() {
		if weight := r.Float64(); r.IntN(3) > 0 {
			weights[kind] = weight
			sum += weight
		}
	}
	for kind := range weights {
		weights[kind] *= share / max(sum, 1)
	}
	return Options{Seed: seed, Rates: weights}
}

// Transport is an unreliable connection. It is safe for concurrent use.
type Transport struct {
	next    http.RoundTripper
	options Options

	mu     sync.Mutex
	random *rand.Rand
	count  map[Kind]int
}

// New makes the connection next unreliable. It fails if the rates are invalid.
func New(next http.RoundTripper, o Options) (*Transport, error) {
	sum := 0.0
	for kind, rate := range o.Rates {
		if rate < 0 || rate > 1 {
			return nil, fmt.Errorf("rate %v of %s: must be from 0 to 1", rate, kind)
		}
		sum += rate
	}
	if sum > 1 {
		return nil, fmt.Errorf("rates add up to %v: must be at most 1", sum)
	}
	if o.RetryAfter == 0 {
		o.RetryAfter = time.Second
	}
	if o.MaxDelay == 0 {
		o.MaxDelay = 100 * time.Millisecond
	}
	if o.MaxWatch == 0 {
		o.MaxWatch = time.Second
	}
	return &Transport{next: next, options: o, random: rand.New(rand.NewPCG(o.Seed, 2)), count: map[Kind]int{}}, nil
}

// Count returns the number of requests with each kind of fault.
func (t *Transport) Count() map[Kind]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.count)
}

// draw chooses the fault of a request and its amount.
func (t *Transport) draw(watch bool) (kind Kind, amount float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, amount := t.random.Float64(), t.random.Float64()
	for _, k := range Kinds() {
		if at -= t.options.Rates[k]; at >= 0 {
			continue
		}
		if watch && (k == LostAnswer || k == CutAnswer || k == Conflict) || !watch && k == ClosedWatch {
			return "", 0
		}
		t.count[k]++
		return k, amount
	}
	return "", 0
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.options.Spare != nil && t.options.Spare(r) {
		return t.next.RoundTrip(r)
	}
	watch := r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1"
	kind, amount := t.draw(watch)
	switch kind {
	case InternalError:
		return answer(r, http.StatusInternalServerError, metav1.StatusReasonInternalError, "injected internal error", "")
	case Conflict:
		return answer(r, http.StatusConflict, metav1.StatusReasonConflict,
			"Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version and try again", "")
	case TooManyRequests:
		seconds := strconv.Itoa(int(max(t.options.RetryAfter, 0).Seconds()))
		return answer(r, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests, please try again later", seconds)
	case LostRequest:
		closeBody(r)
		return nil, reset("write")
	case LostAnswer:
		response, err := t.next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		_, _ = io.Copy(io.Discard, response.Body) // so that the server completes the request
		_ = response.Body.Close()
		return nil, reset("read")
	case CutAnswer:
		response, err := t.next.RoundTrip(r)
		if err == nil {
			response.Body, err = cut(response.Body, amount)
		}
		return response, err
	case Delay:
		if err := wait(r.Context(), time.Duration(amount*float64(t.options.MaxDelay))); err != nil {
			closeBody(r)
			return nil, err
		}
	case ClosedWatch:
		response, err := t.next.RoundTrip(r)
		if err == nil {
			response.Body = closeAfter(response.Body, time.Duration(amount*float64(t.options.MaxWatch)))
		}
		return response, err
	}
	return t.next.RoundTrip(r)
}

// answer returns an API server's response to a rejected request.
func answer(r *http.Request, code int, reason metav1.StatusReason, message, retryAfter string) (*http.Response, error) {
	closeBody(r)
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Reason: reason, Message: message, Code: int32(code),
	})
	if err != nil {
		return nil, err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if retryAfter != "" {
		header.Set("Retry-After", retryAfter)
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), StatusCode: code,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header, Request: r,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

// closeBody closes the body of a request that is not passed on, as a RoundTripper must do.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// reset returns the error of a connection that the other side has closed.
func reset(op string) error {
	return &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(op, syscall.ECONNRESET)}
}

// cut returns a body that ends with an error after a share of its content.
func cut(body io.ReadCloser, share float64) (io.ReadCloser, error) {
	data, err := io.ReadAll(body)
	if closeErr := body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, err
	}
	rest := io.MultiReader(bytes.NewReader(data[:int(share*float64(len(data)))]), failing{io.ErrUnexpectedEOF})
	return io.NopCloser(rest), nil
}

// failing is a reader that always fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// wait waits until the time is over or the request has ended.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// closeAfter returns a body that ends when the time is over, as if the server had ended it.
func closeAfter(body io.ReadCloser, d time.Duration) io.ReadCloser {
	b := &timed{ReadCloser: body}
	b.timer = time.AfterFunc(d, func() {
		b.mu.Lock()
		b.over = true
		b.mu.Unlock()
		_ = body.Close() // this ends a waiting read
	})
	return b
}

// timed is a body with a time limit.
type timed struct {
	io.ReadCloser
	timer *time.Timer

	mu   sync.Mutex
	over bool
}

func (b *timed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over && err != nil && !errors.Is(err, io.EOF) {
		err = io.EOF
	}
	return n, err
}

func (b *timed) Close() error {
	b.timer.Stop()
	return b.ReadCloser.Close()
}
