package transport

import (
	"context"
	"net/http"
	"time"
)

// noticeAfter is the time without a response after which Patience.Notice is called.
const noticeAfter = 2 * time.Second

// Patience describes how long a user waits for the responses of registries. The zero value leaves requests as they are.
type Patience struct {
	// Limit is the time without a response after which a read fails, without a retry. It replaces Options.Stall, except for blobs, whose
	// download resumes. 0 for no such limit.
	Limit time.Duration
	// Notice, if set, is called with the host of a registry or token server that has not responded to a read for two seconds. Calls overlap.
	Notice func(host string)
}

type patienceKey struct{}

// WithPatience returns a context for the requests of a waiting user.
func WithPatience(ctx context.Context, p Patience) context.Context {
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
	}
	return p
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
