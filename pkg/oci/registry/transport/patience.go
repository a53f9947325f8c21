package transport

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// noticeAfter is the time without a response after which Patience.Notice is called.
const noticeAfter = 2 * time.Second

// Patience describes how long a user waits for the responses of registries. The zero value leaves requests as they are.
type Patience struct {
	// Limit is the time without a response after which a read fails, without a retry. It replaces Options.Stall, except for blobs, whose
	// download resumes. 0 for no such limit.
	Limit time.Duration
	// FirstOnly restricts Limit to hosts that have not responded yet. It is for copies, which outlast a slow registry but not a dead one.
	FirstOnly bool
	// Notice, if set, is called with the host of a registry or token server that has not responded to a read for two seconds. Calls overlap.
	Notice func(host string)

	// responded contains the hosts that have responded.
	responded *sync.Map
}

type patienceKey struct{}

// WithPatience returns a context for the requests of a waiting user.
func WithPatience(ctx context.Context, p Patience) context.Context {
	p.responded = &sync.Map{}
	return context.WithValue(ctx, patienceKey{}, p)
}

// patienceFor returns the patience with a request.
func patienceFor(req *http.Request) Patience {
	p, ok := req.Context().Value(patienceKey{}).(Patience)
	switch {
	case !ok || !isRead(req):
		return Patience{}
	case blobRequest(req):
		p.Limit = 0
	case p.FirstOnly:
		if _, responded := p.responded.Load(req.URL.Host); responded {
			p.Limit = 0
		}
	}
	return p
}

// note records that a host has responded.
func (p Patience) note(host string) {
	if p.responded != nil {
		p.responded.Store(host, true)
	}
}

// watch calls Notice unless the returned function is called in time. That function waits for a running call.
func (p Patience) watch(host string) (stop func()) {
	if p.Notice == nil {
		return func() {}
	}
	done := make(chan struct{})
	timer := time.AfterFunc(noticeAfter, func() {
		defer close(done)
		p.Notice(host)
	})
	return func() {
		if !timer.Stop() {
			<-done
		}
	}
}
