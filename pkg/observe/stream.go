package observe

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

const (
	// firstDelay and maxDelay bound the time between two attempts, without jitter.
	firstDelay = 200 * time.Millisecond
	maxDelay   = 30 * time.Second
	// shortLife is the life of a stream below which the next one is delayed as after a failure.
	shortLife = 5 * time.Second
	// staleAfter is how long a stream may be interrupted before what it told counts for nothing, and how long the initial
	// state may take.
	staleAfter = 2 * time.Minute
	// watchTimeout is how long the server is asked to keep a watch open, at least; at most twice that. Each end costs
	// one request.
	watchTimeout = 15 * time.Minute
	// overdue is how long after that a watch is given up from our side.
	overdue = time.Minute
	// reflectorLevel is added to the level of what the Reflector logs, which calls every end of a watch a warning.
	reflectorLevel = 3
)

// trouble is why a stream is down.
type trouble int

const (
	// fine: it is up, or was not tried yet.
	fine trouble = iota
	// unreachable: the server does not answer, or with an error of its own, or has forgotten what was before.
	unreachable
	// unserved: the resource is not served, or the server behind it is away.
	unserved
	// refused: the server will not, for instance for want of permission.
	refused
)

// stream keeps one watch alive. It leaves the protocol to a Reflector (initial state, bookmarks, resuming, expiry) and
// the pace to nobody: a Reflector lists at once where a watch fails, opens a closed watch at once again, and waits
// without listening for news.
type stream struct {
	resource schema.GroupVersionResource
	client   metadata.ResourceInterface
	selects  metav1.ListOptions
	sink     cache.TransformingStore
	log      logr.Logger
	// forget is called when what the stream told counts for nothing any more.
	forget func()
	// turned is called with the trouble that is over, and that has begun, whenever it is another one.
	turned func(before, after trouble)
	// news ends the wait for the next attempt.
	news chan struct{}

	// What follows belongs to the goroutine of run.

	// failures is the delay after attempts that failed, deaths that after streams that ended soon. They are apart, so that
	// one that works again, and breaks once more, does not pay for what was before.
	failures, deaths wait.Backoff
	// delay is what is still to be waited before the next attempt.
	delay time.Duration
	// notBefore is what the server asked for with Retry-After.
	notBefore time.Time
	// opened is when the stream was opened, zero if it is not open; tried when the last attempt was; interrupted since
	// when it does not tell what happens, zero if it does.
	opened, tried, interrupted time.Time
	// tooLong ends a stream whose initial state does not come; nil if that is not at stake.
	tooLong *time.Timer
	// failure is the last attempt's.
	failure error
	// told is whether the administrator was told of the trouble, answered whether the server has answered, with whatever,
	// since it was unreachable.
	told, answered bool

	mu      sync.Mutex
	trouble trouble
}

func (w *Watcher) newStream(s Scope, states *states) *stream {
	result := &stream{
		resource: s.Resource, client: w.client.Resource(s.Resource), sink: states,
		log:    w.log.WithValues("resource", s.Resource.GroupResource().String()),
		forget: states.forget, turned: w.turned,
		news: make(chan struct{}, 1), failures: newBackoff(), deaths: newBackoff(),
	}
	if s.Namespace != "" {
		result.client = w.client.Resource(s.Resource).Namespace(s.Namespace)
	}
	if s.Name != "" {
		result.selects.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.Name).String()
		result.log = result.log.WithValues("name", s.Name)
	} else {
		result.selects.LabelSelector = w.owned.String()
	}
	return result
}

func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: firstDelay, Factor: 2, Jitter: 0.2, Steps: math.MaxInt32, Cap: maxDelay}
}

// run keeps the watch alive until ctx ends.
func (s *stream) run(ctx context.Context) {
	// What the Reflector finds worth a line is none of an administrator's business: we tell what matters ourselves.
	ctx = logr.NewContext(ctx, s.log.V(reflectorLevel))
	reflector := s.reflector()
	for s.pace(ctx) == nil {
		s.failure = nil
		if err := reflector.ListAndWatchWithContext(ctx); err != nil && s.failure == nil && ctx.Err() == nil {
			s.failed(err)
		}
		if apierrors.IsNotFound(s.failure) {
			reflector = s.reflector() // the resource that comes back may be another one
		}
	}
}

func (s *stream) reflector() *cache.Reflector {
	log := s.log.V(reflectorLevel)
	return cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc:  s.list,
		WatchFuncWithContext: s.open,
	}, &metav1.PartialObjectMetadata{}, s.sink, cache.ReflectorOptions{
		Name:            "observe",
		Logger:          &log,
		TypeDescription: s.resource.String(),
		MinWatchTimeout: watchTimeout,
		// The pace is ours.
		Backoff: &wait.Backoff{Duration: time.Millisecond},
	})
}

// list is what the Reflector calls when the watch cannot deliver the initial state. That is of use only if the server
// does not know how to; any other failure would be the same.
func (s *stream) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	if s.failure != nil {
		return nil, final{s.failure}
	}
	s.selectOnly(&o)
	ctx, cancel := context.WithTimeout(ctx, staleAfter)
	defer cancel()
	return s.client.List(ctx, o)
}

// open opens a watch.
func (s *stream) open(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.selectOnly(&o)
	resumes := o.SendInitialEvents == nil && o.ResourceVersion != "" && o.ResourceVersion != "0"
	for {
		if err := s.pace(ctx); err != nil {
			return nil, err
		}
		w, err := s.connect(ctx, o)
		if err == nil {
			return w, nil
		}
		if ctx.Err() != nil {
			return nil, final{err}
		}
		if o.SendInitialEvents != nil && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) {
			return nil, final{err} // an old server: the Reflector lists
		}
		s.failed(err)
		switch {
		case (apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || tooLarge(err)) && o.ResourceVersion != "":
			return nil, err // the Reflector asks for the newest state
		case !resumes || classify(err) != unreachable || s.stale():
			return nil, final{err}
		}
	}
}

// final hides the kind of an error from the Reflector, which would try again by itself: it would even resume a stream of
// which nothing is known any more.
type final struct{ err error }

func (f final) Error() string { return f.err.Error() }

// tooLarge reports whether the server is not as far as the resource version that we know, because of a restored backup
// or because it lags behind.
func tooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

func (s *stream) selectOnly(o *metav1.ListOptions) {
	o.LabelSelector, o.FieldSelector = s.selects.LabelSelector, s.selects.FieldSelector
}

func (s *stream) connect(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	// The server ends the watch in time. If it hangs with the connection alive, nobody else would.
	limit := 2*watchTimeout + overdue
	if o.TimeoutSeconds != nil {
		limit = time.Duration(*o.TimeoutSeconds)*time.Second + overdue
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	if o.SendInitialEvents != nil {
		s.tooLong = time.AfterFunc(staleAfter, cancel)
	}
	s.tried = time.Now()
	w, err := s.client.Watch(ctx, o)
	if err != nil {
		s.inTime()
		cancel()
		return nil, err
	}
	s.opened, s.failure, s.notBefore = time.Now(), nil, time.Time{}
	s.failures, s.answered = newBackoff(), false
	if o.SendInitialEvents == nil {
		s.complete()
	}
	if s.told {
		s.told = false
		s.log.Info("watching objects again")
	}
	s.turn(fine)
	return limited{w, cancel}, nil
}

// limited is a watch whose time is limited.
type limited struct {
	watch.Interface
	cancel context.CancelFunc
}

// Stop ends the watch.
func (l limited) Stop() {
	l.cancel()
	l.Interface.Stop()
}

// complete takes note that the stream tells what happens from now on: it was resumed, or the initial state is complete.
func (s *stream) complete() {
	s.inTime()
	s.interrupted = time.Time{}
}

func (s *stream) inTime() {
	if s.tooLong != nil {
		s.tooLong.Stop()
		s.tooLong = nil
	}
}

// interrupt takes note that the stream does not tell what happens.
func (s *stream) interrupt() {
	if s.interrupted.IsZero() {
		s.interrupted = time.Now()
	}
	if s.stale() {
		s.forget()
	}
}

func (s *stream) stale() bool {
	return !s.interrupted.IsZero() && time.Since(s.interrupted) > staleAfter
}

// closed takes note that the stream has ended, for whatever reason.
func (s *stream) closed() {
	if time.Since(s.opened) < shortLife {
		s.delay = max(s.delay, s.deaths.Step())
	} else {
		s.deaths = newBackoff()
	}
	s.opened = time.Time{}
	s.inTime()
	s.interrupt()
}

// failed takes note of a failed attempt.
func (s *stream) failed(err error) {
	kind := classify(err)
	if kind != unreachable && s.is() == unreachable && !s.answered {
		s.answered = true
		s.failures = newBackoff() // a server that starts refuses much at first, and not for long
	}
	s.failure, s.delay = err, s.failures.Step()
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		s.notBefore = time.Now().Add(time.Duration(seconds) * time.Second)
	}
	s.interrupt()
	if apierrors.IsNotFound(err) {
		s.forget()
	}
	// That the whole server is away others tell; that it does not want to serve this resource nobody else does.
	if kind != unreachable && !s.told {
		s.told = true
		s.log.Info("cannot watch objects for now", "reason", err.Error())
	} else {
		s.log.V(1).Info("cannot watch objects", "reason", err.Error(), "retry", s.delay.String())
	}
	s.turn(kind)
}

func classify(err error) trouble {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return unreachable
	}
	switch code := status.Status().Code; {
	case code == 404 || code == 503:
		return unserved
	case code >= 400 && code < 500 && code != 408 && code != 410 && code != 429:
		return refused
	}
	return unreachable
}

func (s *stream) turn(to trouble) {
	s.mu.Lock()
	before := s.trouble
	s.trouble = to
	s.mu.Unlock()
	if before != to {
		s.turned(before, to)
	}
}

// is reports what is the matter.
func (s *stream) is() trouble {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble
}

// hear ends the wait for the next attempt.
func (s *stream) hear() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// pace waits until the next attempt is due, or until there are news, or until ctx ends, which is the only error.
func (s *stream) pace(ctx context.Context) error {
	if !s.opened.IsZero() {
		s.closed()
	}
	if s.delay == 0 && s.notBefore.IsZero() {
		return ctx.Err()
	}
	timer := time.NewTimer(max(s.delay, time.Until(s.notBefore)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-s.news:
		s.failures = newBackoff()
		timer.Reset(max(time.Until(s.tried.Add(firstDelay)), time.Until(s.notBefore)))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	s.delay, s.notBefore = 0, time.Time{}
	return ctx.Err()
}
