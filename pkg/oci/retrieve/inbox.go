package retrieve

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// Path is the URL path of an Inbox. Each delivery has its own name below it.
const Path = "/retrieval/"

// contentType is the media type of a delivery: tar, compressed with gzip.
const contentType = "application/gzip"

// errLate means that the receiver has stopped waiting for a delivery.
var errLate = errors.New("the operator has stopped waiting for this delivery")

// Inbox receives each expected delivery once, from the sender with its token. It rejects any other request before reading its body. The
// zero value is ready to use.
type Inbox struct {
	mu      sync.Mutex
	waiting map[string]*delivery
}

// delivery is an expected stream.
type delivery struct {
	ctx   context.Context // bounds the stream, not its request
	token [sha256.Size]byte
	read  func(ctx context.Context, stream io.Reader) error
	done  chan error
	// taken is set, under the inbox's lock, when a sender starts. over is closed when reading has ended.
	taken bool
	over  chan struct{}
}

// expect makes the inbox accept one stream, which read consumes. It returns the token for the sender, a channel that receives the outcome
// at most once, and a function that ends the wait. When end returns, read has finished.
func (b *Inbox) expect(ctx context.Context, name string, read func(context.Context, io.Reader) error) (token string, outcome <-chan error, end func()) {
	token = rand.Text()
	ctx, cancel := context.WithCancel(ctx)
	d := &delivery{ctx: ctx, token: sha256.Sum256([]byte(token)), read: read, done: make(chan error, 1), over: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting == nil {
		b.waiting = map[string]*delivery{}
	}
	b.waiting[name] = d
	return token, d.done, func() {
		b.mu.Lock()
		delete(b.waiting, name)
		taken := d.taken
		b.mu.Unlock()
		cancel()
		if taken {
			<-d.over
		}
	}
}

// claim returns the named delivery to the first request with its token. Rejecting an unknown name takes as long as rejecting a wrong token.
func (b *Inbox) claim(name, token string) (*delivery, bool) {
	sum := sha256.Sum256([]byte(token))
	b.mu.Lock()
	defer b.mu.Unlock()
	d, known := b.waiting[name]
	if !known {
		d = &delivery{}
	}
	if subtle.ConstantTimeCompare(sum[:], d.token[:]) != 1 || !known {
		return nil, false
	}
	delete(b.waiting, name)
	d.taken = true
	return d, true
}

// ServeHTTP implements http.Handler.
func (b *Inbox) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if req.Method != http.MethodPut || !ok {
		http.Error(w, "use PUT with a bearer token", http.StatusUnauthorized)
		return
	}
	d, ok := b.claim(strings.TrimPrefix(req.URL.Path, Path), token)
	if !ok {
		http.Error(w, "no delivery is expected for this token; the token may have been used already", http.StatusForbidden)
		return
	}
	err := d.receive(w, req)
	d.done <- err
	if err != nil {
		http.Error(w, "delivery refused: "+err.Error(), http.StatusUnprocessableEntity)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// answerTime bounds the response after the stream has been read.
const answerTime = 10 * time.Second

// receive reads the stream within the delivery's time. It replaces the server's general limits.
func (d *delivery) receive(w http.ResponseWriter, req *http.Request) error {
	defer close(d.over)
	control := http.NewResponseController(w)
	deadline, limited := d.ctx.Deadline()
	if !limited {
		return errLate
	}
	if err := errors.Join(control.SetReadDeadline(deadline), control.SetWriteDeadline(deadline.Add(answerTime))); err != nil {
		return fmt.Errorf("preparing to receive: %w", err)
	}
	// A read blocks only on the connection, so a deadline on the connection ends it with the delivery.
	stop := context.AfterFunc(d.ctx, func() { _ = control.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := d.read(d.ctx, req.Body); err != nil {
		if d.ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) {
			return errLate
		}
		return err
	}
	return nil
}
