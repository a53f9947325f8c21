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

// Path is where an Inbox takes deliveries, each under a name of its own below it.
const Path = "/retrieval/"

// ContentType is that of a delivery: tar, compressed with gzip.
const ContentType = "application/gzip"

// errLate: the time for a delivery is over.
var errLate = errors.New("nobody waits for it any more")

// Inbox takes what somebody was asked to send, once, from whoever has the token. What is sent to it otherwise is refused
// before anything but the head of the request is read. Its zero value is ready.
type Inbox struct {
	mu      sync.Mutex
	waiting map[string]*delivery
}

// delivery is one stream that is waited for.
type delivery struct {
	ctx   context.Context //nolint:containedctx // the time that the stream may take, not that of its request
	token [sha256.Size]byte
	read  func(ctx context.Context, stream io.Reader) error
	done  chan error
	// taken is set, under the inbox's lock, once somebody has begun to send; over is closed when nothing is read any more.
	taken bool
	over  chan struct{}
}

// expect has the inbox wait for one stream, which is read by read. It returns the token that opens the inbox for it, where
// the outcome is told, at most once, and what ends the wait: after it nothing is read any more.
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

// take hands out what is waited for under a name to whoever has the token, once. Unknown names take as long as wrong
// tokens.
func (b *Inbox) take(name, token string) (*delivery, bool) {
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
		http.Error(w, "a delivery is a PUT with a bearer token", http.StatusUnauthorized)
		return
	}
	d, ok := b.take(strings.TrimPrefix(req.URL.Path, Path), token)
	if !ok {
		http.Error(w, "nothing is expected from whoever has this token; it may have been used already", http.StatusForbidden)
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

// answerTime is what is left for the answer once the stream has been read.
const answerTime = 10 * time.Second

// receive reads the stream for as long as the delivery has time, whatever limits the server has for other requests.
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
	// Reading ends when nobody waits any more: the connection is the only thing that can be told.
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
