package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cluster-version/cvo/test/e2e/registry/control"
)

// faulty responds like next unless a fault applies.
type faulty struct {
	next http.Handler
	now  func() time.Time

	mu       sync.Mutex
	faults   []*fault
	requests []control.Request
}

type fault struct {
	control.Fault
	path  *regexp.Regexp
	until time.Time
	hits  int
}

// control serves the control requests of tests.
func (f *faulty) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /faults", f.inject)
	mux.HandleFunc("DELETE /faults", func(http.ResponseWriter, *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.faults = nil
	})
	mux.HandleFunc("GET /requests", func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		_ = json.NewEncoder(w).Encode(f.requests)
	})
	mux.HandleFunc("DELETE /requests", func(http.ResponseWriter, *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.requests = nil
	})
	return mux
}

func (f *faulty) inject(w http.ResponseWriter, r *http.Request) {
	added := &fault{}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&added.Fault); err != nil {
		http.Error(w, "parsing the fault: "+err.Error(), http.StatusBadRequest)
		return
	}
	var err error
	if added.path, err = regexp.Compile(added.Path); err != nil {
		http.Error(w, "parsing the fault's path: "+err.Error(), http.StatusBadRequest)
		return
	}
	switch {
	case added.Kind == control.Slow && added.BytesPerSecond <= 0:
		http.Error(w, "kind slow needs bytesPerSecond", http.StatusBadRequest)
		return
	case added.Kind == control.Status && (added.Status < 200 || added.Status > 599):
		http.Error(w, "kind status needs a status from 200 to 599", http.StatusBadRequest)
		return
	case !slices.Contains([]control.Kind{control.Down, control.Slow, control.Status, control.Truncated, control.WrongDigest}, added.Kind):
		http.Error(w, "unknown kind "+strconv.Quote(string(added.Kind)), http.StatusBadRequest)
		return
	}
	if added.For > 0 {
		added.until = f.now().Add(added.For)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, added)
}

// hit returns the fault for a request.
func (f *faulty) hit(r *http.Request) control.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range slices.Backward(f.faults) {
		over := !fault.until.IsZero() && f.now().After(fault.until) || fault.Times > 0 && fault.hits >= fault.Times
		if over || !fault.path.MatchString(r.URL.Path) {
			continue
		}
		fault.hits++
		return fault.Fault
	}
	return control.Fault{}
}

// ServeHTTP implements http.Handler.
func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault := f.hit(r)
	out := &answer{ResponseWriter: w, r: r}
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.requests = append(f.requests, control.Request{
			Method: r.Method, Path: r.URL.Path, Status: out.status, From: r.RemoteAddr, Fault: fault.Kind,
		})
	}()
	switch fault.Kind {
	case control.Down:
		panic(http.ErrAbortHandler) // this is how net/http breaks a connection
	case control.Slow:
		out.pace = fault.BytesPerSecond
	case control.Status:
		if fault.RetryAfter != "" {
			out.Header().Set("Retry-After", fault.RetryAfter)
		}
		out.WriteHeader(fault.Status)
		return
	case control.Truncated, control.WrongDigest:
		f.mangle(out, r, fault.Kind)
		return
	}
	f.next.ServeHTTP(out, r)
}

// mangle sends a body that ends early or differs. It does not change error responses, because no client uses their bodies.
func (f *faulty) mangle(out *answer, r *http.Request, kind control.Kind) {
	whole := &buffer{header: out.Header(), status: http.StatusOK}
	f.next.ServeHTTP(whole, r)
	body := whole.body.Bytes()
	if whole.status >= 300 || len(body) == 0 || r.Method == http.MethodHead {
		out.WriteHeader(whole.status)
		_, _ = out.Write(body)
		return
	}
	out.Header().Set("Content-Length", strconv.Itoa(len(body)))
	out.WriteHeader(whole.status)
	if kind == control.WrongDigest {
		body[len(body)-1] ^= 1
		_, _ = out.Write(body)
		return
	}
	_, _ = out.Write(body[:len(body)/2])
	_ = http.NewResponseController(out.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

// answer records its status. If it has a rate, it writes at that rate.
type answer struct {
	http.ResponseWriter
	r      *http.Request
	status int
	pace   int
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter. It writes ten pieces per second.
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	if a.pace == 0 {
		return a.ResponseWriter.Write(p)
	}
	written := 0
	for piece := range slices.Chunk(p, max(a.pace/10, 1)) {
		n, err := a.ResponseWriter.Write(piece)
		written += n
		if err != nil {
			return written, err
		}
		_ = http.NewResponseController(a.ResponseWriter).Flush()
		select {
		case <-time.After(time.Duration(n) * time.Second / time.Duration(a.pace)):
		case <-a.r.Context().Done():
			return written, a.r.Context().Err()
		}
	}
	return written, nil
}

// buffer keeps a response in memory.
type buffer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (b *buffer) Header() http.Header { return b.header }

// WriteHeader implements http.ResponseWriter.
func (b *buffer) WriteHeader(status int) { b.status = status }

// Write implements http.ResponseWriter.
func (b *buffer) Write(p []byte) (int, error) { return b.body.Write(p) }
